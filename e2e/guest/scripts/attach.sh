# attach: logs in to $TARGET through $PORTALS and waits until dm-multipath has put its paths into one device:
# $DISK.
DISK=/dev/mapper/mpatha
modprobe -a dm_round_robin dm_queue_length
pidof iscsid >/dev/null || iscsid
pidof multipathd >/dev/null || multipathd
for portal in $PORTALS; do
  record() { iscsiadm -m node -T "$TARGET" -p "$portal" "$@"; }
  record -o new >/dev/null || exit 1
  # A path that is gone is reported to multipath soon.
  record -o update -n node.session.timeo.replacement_timeout -v 5
  record -o update -n 'node.conn[0].timeo.noop_out_interval' -v 5
  record -o update -n 'node.conn[0].timeo.noop_out_timeout' -v 10
  record -o update -n node.session.initial_login_retry_max -v 60
  record --login || exit 1
done
paths=$(echo "$PORTALS" | wc -w)
for _ in $(seq 300); do
  [ "$(multipath -ll | grep -c 'active ready')" = "$paths" ] && break
  sleep 0.2
done
multipath -ll
[ "$(multipath -ll | grep -c 'active ready')" = "$paths" ] || { echo "multipath has not $paths paths"; dmesg | tail; exit 1; }
[ "$(ls /dev/mapper | grep -c mpath)" = 1 ] || { echo 'not one device'; exit 1; }
