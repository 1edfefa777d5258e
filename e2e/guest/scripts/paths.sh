# paths: waits until the ways by $PORTALS are, one by one, in the states $WANTED, and fio has seen no error until then:
#   active       multipath uses it
#   lost         there is no session, and multipath does not use it
#   unavailable  there is a session; by both ways the node that is asked says that the volume is unavailable (ALUA), and multipath does not use it
set -- $PORTALS
disk_of() { # PORTAL: sets session and disk
  for connection in /sys/class/iscsi_connection/*; do
    [ "$(cat $connection/persistent_address):$(cat $connection/persistent_port)" = "$1" ] || continue
    number=${connection##*connection}; session=/sys/class/iscsi_session/session${number%%:*}
    disk=$(ls -d $session/device/target*/*/block/* | head -1); disk=${disk##*/}
    return 0
  done
  return 1
}
# The groups' states in the order of the nodes, as this path tells them.
told_by() { sg_rtpg --decode /dev/$1 2>/dev/null | sed -n 's/.*access state : 0x0\([0-9a-f]\).*/\1/p' | tr -d '\n'; }
line_of() { multipath -ll | grep -E "[ -]$1 +[0-9]+:"; }
state_of() { # PORTAL NODE
  disk_of "$1" || return 1
  if [ "$(cat $session/state)" != LOGGED_IN ]; then
    line_of $disk | grep -q 'failed faulty' && echo lost
  elif sg_turs /dev/$disk >/dev/null 2>&1; then
    line_of $disk | grep -q 'active ready' && echo active
  else
    sg_turs -v /dev/$disk 2>&1 | grep -qi 'unavailable' || return 1
    told=$(told_by $disk)
    [ "$(echo $told | cut -c$2)" = 3 ] || return 1
    line_of $disk | grep -q 'failed faulty' && echo unavailable
  fi
}
for _ in $(seq 200); do
  states="$(state_of $1 1) $(state_of $2 2)"
  [ -e /run/failed ] && { echo 'fio has failed'; cat /run/fio.out /run/fio.err; exit 1; }
  [ "$states" = "$WANTED" ] && break
  sleep 0.2
done
multipath -ll; disk_of $1; told_by $disk; echo
[ "$states" = "$WANTED" ] || { echo "found: $states, wanted: $WANTED"; iscsiadm -m session -P 1 | grep State; dmesg | tail -20; exit 1; }
