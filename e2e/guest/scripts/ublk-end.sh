# ublk-end: what is in use stays, what is to be read only is, and who is killed leaves a number that is used
# again.
mount $DISK /mnt || die 'not mounted'
echo kept >/mnt/kept && sync
kill -TERM "$(pidof ursa)"
sleep 2
[ ! -e /run/status ] && grep -q 'the device is in use' /run/log || die 'taken away while it was mounted'
echo 'kept, too' >>/mnt/kept && sync && umount /mnt || die 'not served any more'
ends

attach --read-only
[ "$(blockdev --getro $DISK)" = 1 ] || die 'it can be written'
dd if=/dev/zero of=$DISK bs=4096 count=1 oflag=direct 2>/dev/null && die 'it was written'
mount -o ro $DISK /mnt && [ "$(wc -l </mnt/kept)" = 2 ] && umount /mnt || die 'not what was written'
# A loop device uses it, too, and so does who has it open.
modprobe loop && LOOP=$(losetup --find --show --read-only $DISK) || die 'no loop device'
kill -TERM "$(pidof ursa)"
sleep 2
[ ! -e /run/status ] && grep -q 'the device is in use.*loop' /run/log || die 'taken away while a loop device was on it'
exec 5<$DISK && losetup --detach "$LOOP"
sleep 2
[ ! -e /run/status ] || die 'taken away while it was open'
exec 5<&-
ends

attach
kill -KILL "$(pidof ursa)"
for _ in $(seq 300); do
  [ -e $DISK ] || break
  sleep 0.1
done
[ ! -e $DISK ] && [ -e /dev/ublkc0 ] || die 'not as it is when the server of a device is killed'
attach
mount -o ro $DISK /mnt && [ "$(wc -l </mnt/kept)" = 2 ] && umount /mnt || die 'not what was written'
# A second signal does not ask who uses it.
mount $DISK /mnt || die 'not mounted'
kill -TERM "$(pidof ursa)"
sleep 2
kill -TERM "$(pidof ursa)"
for _ in $(seq 600); do
  [ -e /run/status ] && break
  sleep 0.1
done
[ "$(cat /run/status)" = 1 ] && [ ! -e $DISK ] || die 'it is there in spite of a second signal'
umount -l /mnt
