# The first process of a cluster's namespaces. It reads one order on each line, and answers
# each with one line. All processes in the namespaces end with it.

# /proc is still that of the machine, so it has the id of this process on the machine.
read -r self rest </proc/self/stat
mount -t proc proc /proc || exit 1
for dir in /run /var/lib /var/log; do
  mount -t tmpfs tmpfs $dir || exit 1
done
mkdir -p /run/lock /var/lib/kubelet /var/lib/cni
# The kubelet requires these settings. Setting them would change the whole machine.
mkdir /run/sysctl
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
  kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  file=/run/sysctl/$(echo "${setting%%=*}" | tr / .)
  echo "${setting#*=}" >"$file"
  mount --bind "$file" "/proc/sys/${setting%%=*}" || exit 1
done
# Name lookups fail at once.
printf 'nameserver 127.0.0.1\noptions timeout:1 attempts:1\n' >/run/resolv.conf
[ ! -e /etc/resolv.conf ] || mount --bind /run/resolv.conf /etc/resolv.conf || exit 1
ip link set lo up || exit 1
echo "up $self"

while read -r order name gateway; do
  case $order in
  network) # network ADDRESS GATEWAY
    ip addr add "$name" dev eth0 && ip link set eth0 up && ip route add default via "$gateway" ;;
  start)
    sh "$DIR/run/$name" >>"$DIR/log/$name" 2>&1 </dev/null &
    echo $! >"$DIR/pid/$name" ;;
  kill)
    pid=$(cat "$DIR/pid/$name")
    kill -KILL "$pid"
    wait "$pid"
    true ;;
  esac 2>>"$DIR/log/keeper" && echo done || echo failed
done
