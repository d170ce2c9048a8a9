#!/bin/sh
# Runs after the package is installed or upgraded. dpkg passes "configure" and the old version, rpm the number of
# installed versions.
set -e
name=@NAME@
case "$1" in
  configure | [0-9]*) ;;
  *) exit 0 ;;
esac
units=$(grep -lsE "^ExecStart=\"?/usr/bin/$name\"? " /etc/systemd/system/*.service || true)
if [ -z "$units" ]; then
  echo "Edit /etc/$name/config.env, and then make the service: $name install"
  exit 0
fi
# A container image that is being built has no running systemd.
[ -d /run/systemd/system ] || exit 0
for unit in $units; do
  service=$(basename "$unit" .service)
  # The service gets the unit of the new version. It restarts when the work of the old one is done.
  if "$name" install --name "$service" --no-start >/dev/null; then
    echo "$service restarts when the work of its previous version is done"
    systemctl try-restart --no-block "$service.service"
  else
    echo "warning: $service continues with the previous version. Run: $name install --name $service"
  fi
done
