# disk-ends: waits until the write of disk-stalls has ended, for $LIMIT seconds at most: well, if $WANTED is
# done; refused: in an error. Then a read of the multipath device ends so, too, and none hangs; by each way
# what was written before can be read.
ends() { # NAME: its /run/NAME.status is there in time. A process that waits for a disk cannot be killed: nobody waits for its end.
  until [ -e /run/$1.status ]; do
    [ $SECONDS -lt $LIMIT ] || { echo "the $1 has not ended in $LIMIT s"; tell_all; dmesg | tail -20; exit 1; }
    sleep 0.2
  done
  echo "the $1 has ended after $SECONDS s with $(cat /run/$1.status)"
}
refused() { [ "$(cat /run/$1.status)" != 0 ] && grep -q 'Input/output error' /run/$1.out; }
ends write
if [ "$WANTED" = done ]; then
  [ "$(cat /run/write.status)" = 0 ] && exit 0
  cat /run/write.out; tell_all; dmesg | tail -20; exit 1
fi
refused write || { echo 'the write was not refused'; cat /run/write.out; exit 1; }
rm -f /run/read.status
setsid bash -c 'LC_ALL=C dd if=/run/disk of=/dev/null bs=1M skip=$0 count=1 iflag=direct; echo $? >/run/read.status' $AT >/run/read.out 2>&1 &
ends read
refused read || { echo 'the read was not refused'; cat /run/read.out; exit 1; }
for portal in $PORTALS; do
  disk_of "$portal"
  dd if=/dev/$disk bs=1M skip=$AT count=8 iflag=direct 2>/dev/null | cmp - /run/data || { echo "$disk cannot be read"; dmesg | tail -20; exit 1; }
done
