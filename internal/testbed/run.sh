#!/usr/bin/env bash
# Runs a command, normally the tests, with the real parts that it needs. It finds, installs
# and starts them if it can, and stops the ones that it started.
#
#   internal/testbed/run.sh COMMAND...
#
# Downloads and builds of tests are stored in .cache, or in DLITE_TEST_CACHE, which several
# clones can share.
#
# At the end it lists the missing parts. With DLITE_TEST_REQUIRE=all, a missing part is a
# failure, and so is each test that would skip without it.
set -euo pipefail

left_out=()
started=()
scratch=$(mktemp -d)

finish() {
  local status=$? pid
  for pid in "${started[@]:-}"; do
    [ -n "$pid" ] && kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
  done
  rm -rf "$scratch" 2>/dev/null || true
  for what in "${left_out[@]:-}"; do
    [ -n "$what" ] && echo "LEFT OUT: $what" >&2
  done
  if [ ${#left_out[@]} -gt 0 ] && [ "${DLITE_TEST_REQUIRE:-}" = all ]; then
    echo "FAILED: with DLITE_TEST_REQUIRE=all no part may be missing" >&2
    [ "$status" -ne 0 ] || status=1
  fi
  exit "$status"
}
trap finish EXIT

# install PACKAGE... installs packages as root on Debian. Elsewhere it fails.
install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  echo "testbed: installing $*" >&2
  { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" ||
    { apt-get -o DPkg::Lock::Timeout=300 update && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"; }
  } >"$scratch/apt.log" 2>&1 || { tail -n 5 "$scratch/apt.log" >&2; return 1; }
}

engine_answers() { docker info >/dev/null 2>&1; }

start_engine() {
  command -v dockerd >/dev/null || install docker.io || return 1
  engine_answers && return 0 # the package may have started it
  [ "$(id -u)" = 0 ] || return 1
  echo "testbed: starting a Docker engine" >&2
  dockerd --data-root "$scratch/docker" --exec-root "$scratch/exec" --pidfile "$scratch/dockerd.pid" \
    -H "unix://$scratch/docker.sock" >"$scratch/dockerd.log" 2>&1 &
  started+=($!)
  export DOCKER_HOST="unix://$scratch/docker.sock"
  for _ in $(seq 100); do
    engine_answers && return 0
    read -rt 0.1 <> <(:) || true
  done
  tail -n 5 "$scratch/dockerd.log" >&2
  return 1
}

# Debian starts the server that it installs, but the tests start separate servers.
install_for_projects() {
  install redis-server redis-tools make debian-archive-keyring || return 1
  service redis-server stop >/dev/null 2>&1 || true
}

static_busybox() {
  for b in /bin/busybox /usr/bin/busybox; do
    [ -x "$b" ] && ! ldd "$b" >/dev/null 2>&1 && return 0
  done
  return 1
}

engine_answers || start_engine ||
  left_out+=("container tests: no Docker engine answers and none could be started")
static_busybox || install busybox-static ||
  left_out+=("container tests: no static busybox to make an image of (package busybox-static)")
command -v git >/dev/null || install git ca-certificates || left_out+=("clones: there is no git")
command -v git-lfs >/dev/null || install git-lfs || left_out+=("clones with LFS: there is no git-lfs")
command -v "$(go env CC)" >/dev/null || install gcc libc6-dev || {
  left_out+=("the race detector: it needs a C compiler")
  export DLITE_NO_RACE=1
}
{ command -v redis-server && command -v redis-cli && command -v make && command -v apt-get && [ -e /usr/share/keyrings/debian-archive-keyring.gpg ]; } >/dev/null ||
  install_for_projects ||
  left_out+=("real projects: they need redis, make, and packages of Debian")

compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || install postgresql ||
  left_out+=("pipelines on PostgreSQL: there is no server (package postgresql)")

command -v chromium >/dev/null || install chromium fonts-dejavu-core ||
  left_out+=("the page of the manager: there is no chromium")

{ command -v zsh && command -v fish; } >/dev/null || install zsh fish ||
  left_out+=("completions in shells: there is no zsh or fish")
{ command -v gnome-keyring-daemon && command -v dbus-run-session; } >/dev/null || install gnome-keyring dbus-daemon ||
  left_out+=("tokens in a keyring: they need gnome-keyring and dbus-run-session")

{ [ -x /usr/lib/systemd/systemd ] && command -v systemctl && command -v nsenter && command -v ip && command -v useradd && command -v curl; } >/dev/null ||
  install systemd dbus util-linux iproute2 passwd curl ||
  left_out+=("services: a machine with systemd needs systemd, util-linux, iproute2, passwd and curl")

for tool in xxd jq openssl curl hexdump python3; do
  command -v "$tool" >/dev/null || {
    install xxd jq openssl curl bsdextrautils python3 ||
      left_out+=("the hunt for secrets in the output of tools: it needs xxd, jq, openssl, curl, hexdump and python3")
    break
  }
done

{ [ -x /usr/sbin/sshd ] && command -v docker-registry; } >/dev/null || install openssh-server docker-registry ||
  left_out+=("connectors to servers with SSH and registries: there is no openssh-server or docker-registry")

for tool in containerd ctr runc iptables ip unshare flock /usr/lib/cni/bridge; do
  command -v "$tool" >/dev/null || {
    install containerd runc containernetworking-plugins iptables iproute2 util-linux ||
      left_out+=("Kubernetes: a cluster needs containerd, runc, containernetworking-plugins, iptables and iproute2")
    break
  }
done

guests() {
  command -v qemu-system-x86_64 && command -v qemu-img && command -v lz4 && command -v mke2fs && compgen -G '/boot/vmlinuz-*-cloud-amd64'
}
guests >/dev/null || install qemu-system-x86 qemu-utils linux-image-cloud-amd64 lz4 e2fsprogs ||
  left_out+=("virtual machines: they need qemu-system-x86, qemu-utils, linux-image-cloud-amd64, lz4 and e2fsprogs")
command -v libvirtd >/dev/null || install libvirt-daemon libvirt-daemon-driver-qemu ||
  left_out+=("virtual machines of libvirt: there is no libvirtd (package libvirt-daemon-driver-qemu)")

"$@"
