# Says every secret of $NAMES in every way that a shell has. The values are in
# S_<name>, more ways to write them in E_<n>. Nothing here puts a value on the
# command line of a process: printf and : are part of the shell.
mkdir -p own
: > "own/wait-$HUNT"
until [ -e "own/go-$HUNT" ]; do sleep 0.05; done
echo "begin to say"
for name in $NAMES; do
  eval "v=\$S_$name"
  printf '%s\n' "$v"
  printf 'password=%s;\r\n' "$v"
  printf '\033[1;31m%s\033[0m\n' "$v"
  printf '%s\n' "$v$v" >&2
  printf '%s' "$v" | base64
  printf '%s' "$v" | base64 | tr -d '\n'; echo
  printf 'u%s' "$v" | base64 | tr -d '\n'; echo
  printf 'us%s' "$v" | base64 | tr -d '\n'; echo
  printf '%s' "$v" | od -An -v -tx1 | tr -d ' \n'; echo
  printf '%s' "$v" | xxd -p
  (set -x; : "$v") 2>&1
  (set -x; w=$v; : "-p$v" --password "$v") 2>&1
  ( : < "./own/none/$v" ) 2>&1
  ( : "${NOT_SET?there is no $v}" ) 2>&1
  # Before, at and after the length at which lines are cut.
  for n in $LENGTHS; do printf "%${n}s%s\n" "" "$v"; done
done
for name in $SPLIT; do
  eval "v=\$S_$name"
  printf '%s' "${v%"${v#?????????????}"}"
  sleep 1.2
  printf '%s\n' "${v#?????????????}"
done
i=0
while eval "[ -n \"\${E_$i+x}\" ]"; do
  eval "v=\$E_$i"
  printf 'it is %s.\n' "$v"
  unset "E_$i"
  i=$((i + 1))
done
v=
env
set
export -p
if [ -n "${BASH_VERSION-}" ]; then
  for name in $NAMES; do
    v=S_$name
    printf '%q\n' "${!v}"
    printf '%s\n' "${!v@Q}"
    declare -p "$v"
  done
fi
: > "own/$S_PLAIN-$HUNT"
ls own
printf '%s' "$S_PLAIN"
printf '\nsaid it all\n'
