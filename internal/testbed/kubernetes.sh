# Runs a cluster as one process, which ends with its input and then removes the whole
# cluster. At its start it also removes the remains of clusters that were killed.
#
#   sh -c "$(cat kubernetes.sh)" sh DIR KEEPER
#
# DIR is the directory of the cluster. The control groups of the cluster have the same name.
trap '' INT QUIT HUP TERM
dir=$1

# groups NAME lists the control groups of a cluster, the innermost first.
groups() {
  find /sys/fs/cgroup -depth -type d \( -path "*/$1" -o -path "*/$1/*" \) 2>/dev/null
}

# clear DIR removes a cluster whose processes have ended or are ending; they leave their
# groups soon.
clear() {
  for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    for group in $(groups "${1##*/}"); do
      for pid in $(cat "$group/cgroup.procs" 2>/dev/null); do kill -KILL "$pid"; done
      rmdir "$group"
    done
    rm -rf "$1"
    [ -e "$1" ] || [ -n "$(groups "${1##*/}")" ] || return 0
    sleep 0.1
  done 2>/dev/null
}

# The process that holds the lock owns the cluster. No other process may start between the
# creation of the directory and this line.
exec 9>"$dir/lock"
flock -n 9 || exit 1
for other in "${dir%-*}"-*; do
  if [ "$other" != "$dir" ] && flock -n "$other/lock" true 2>/dev/null; then clear "$other"; fi
done

for controller in /sys/fs/cgroup/*/; do
  [ -e /sys/fs/cgroup/cgroup.controllers ] && controller=/sys/fs/cgroup/
  group=$controller${dir##*/}
  mkdir -p "$group" || continue
  for f in cpuset.cpus cpuset.mems; do
    if [ -s "$controller/$f" ]; then cat "$controller/$f" >"$group/$f"; fi
  done
done

env -i PATH="$PATH" DIR="$dir" unshare --mount --propagation private --net --pid --fork --kill-child sh -c "$2" 9>&-
clear "$dir"
