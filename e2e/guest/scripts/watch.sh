# watch: notes in /run/seen, in the background and until /run/watched is there, what the node of the first of
# $PORTALS tells of all nodes, and how the kernel has that path: a line each time that it is something else.
rm -f /run/seen /run/watched
set -- $PORTALS
disk_of "$1" || exit 1
{
  declare -f told_by kernel_of
  echo "disk=$disk"
  cat <<'LOOP'
while [ ! -e /run/watched ]; do
  sg_turs /dev/$disk >/dev/null 2>&1 # a change is told to who asks next, and then the kernel looks
  now="$(told_by $disk) $(kernel_of $disk)"
  [ "$now" = "$last" ] || echo "$now" >>/run/seen
  last=$now
  sleep 0.02
done
LOOP
} >/run/watching
setsid bash /run/watching >/dev/null 2>&1 &
for _ in $(seq 100); do
  grep -qx '00 active/optimized' /run/seen 2>/dev/null && exit 0
  sleep 0.1
done
echo 'it does not begin with two optimized paths:'; cat /run/seen; tell_all; exit 1
