# Ends what a test process leaves behind when it is killed. It is told which
# folders things live in, a line for each, and learns of the end from its input's.
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

# users DIR: the processes that are in the folder, or name it.
users() {
  for p in /proc/[0-9]*; do
    case $(readlink "$p/cwd" 2>/dev/null)/ in
    "$1"/*) ;;
    *) grep -qaF -e "$1" "$p/cmdline" "$p/environ" 2>/dev/null || continue ;;
    esac
    echo "${p#/proc/}"
  done
}

# What makes machines may make one more before it is killed itself.
printf %s "$kept" | while read -r dir; do
  for try in 1 2 3 4 5 6 7 8 9 10; do
    found=$(users "$dir")
    [ -n "$found" ] || break
    kill -KILL $found 2>/dev/null
    sleep 0.1
  done
  rm -rf -- "$dir"
done
