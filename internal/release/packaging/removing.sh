#!/bin/sh
# Runs before the package is removed or upgraded. dpkg passes "remove" or "upgrade", rpm the number of versions that
# stay.
set -e
name=@NAME@
case "$1" in
  remove | 0) ;;
  *) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
for unit in $(grep -lsE "^ExecStart=\"?/usr/bin/$name\"? " /etc/systemd/system/*.service || true); do
  # Ends after the work of the service. DRAIN_TIMEOUT_SECS limits that time.
  "$name" uninstall --name "$(basename "$unit" .service)" --keep-settings
done
