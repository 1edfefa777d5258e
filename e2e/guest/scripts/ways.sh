# ways: how nodes, the kernel and multipath have the ways by $PORTALS. Other scripts begin with it.
disk_of() { # PORTAL: sets session and disk
  for connection in /sys/class/iscsi_connection/*; do
    [ "$(cat $connection/persistent_address):$(cat $connection/persistent_port)" = "$1" ] || continue
    number=${connection##*connection}; session=/sys/class/iscsi_session/session${number%%:*}
    disk=$(ls -d $session/device/target*/*/block/* | head -1); disk=${disk##*/}
    return 0
  done
  return 1
}
# The groups' states in the order of the nodes, as this path tells them: 0 is optimized, 1 is not, 3 is
# unavailable, f is transitioning.
told_by() { sg_rtpg --decode /dev/$1 2>/dev/null | sed -n 's/.*access state : 0x0\([0-9a-f]\).*/\1/p' | tr -d '\n'; }
# What the kernel has made of that, for the path itself.
kernel_of() { cat /sys/block/$1/device/access_state; }
line_of() { multipath -ll | grep -E "[ -]$1 +[0-9]+:"; }
# The group that multipath has the path in.
group_of() { multipath -ll | grep -E "policy=|[ -]$1 +[0-9]+:" | grep -B 1 "[ -]$1 " | head -1; }
tell_all() {
  multipath -ll
  for portal in $PORTALS; do
    disk_of "$portal" && echo "$portal is $disk: told $(told_by $disk), kernel $(kernel_of $disk)"
  done
}
