# Removes what a killed test process leaves behind: processes and directories. It reads the
# directories from its input, one on each line. The end of the input means that the test
# process has ended.
trap '' HUP INT TERM
kept=
while read -r order dir; do
  case $order in
  keep) kept="$kept$dir
" ;;
  drop) kept=$(printf %s "$kept" | grep -Fxv -e "$dir")
    [ -z "$kept" ] || kept="$kept
" ;;
  esac
done

# users DIR lists the processes that work in the directory or name it in their arguments.
users() {
  for p in /proc/[0-9]*; do
    case $(readlink "$p/cwd" 2>/dev/null)/ in
    "$1"/*) ;;
    *) grep -qaF -e "$1" "$p/cmdline" "$p/environ" 2>/dev/null || continue ;;
    esac
    echo "${p#/proc/}"
  done
}

# A program that creates machines may create one more before it is killed, so this is
# repeated.
printf %s "$kept" | while read -r dir; do
  for try in 1 2 3 4 5 6 7 8 9 10; do
    found=$(users "$dir")
    [ -n "$found" ] || break
    kill -KILL $found 2>/dev/null
    sleep 0.1
  done
  rm -rf -- "$dir"
done
