# ublk-use: a disk of $BYTES bytes in blocks of $BLOCK bytes, with ext4 on it at /mnt, which fio writes and
# verifies. 77: it cannot be had in this guest.
mkdir -p /program /mnt
for _ in $(seq 200); do
  [ -e /dev/vdb ] && break
  sleep 0.05
done
mount -t squashfs -o ro /dev/vdb /program || exit 1
if ! $URSA --version >/run/log 2>&1; then
  grep -q GLIBC_ /run/log && { echo "the program needs a newer libc than the guest's"; exit 77; }
  die 'the program does not run'
fi
if [ ! -e /dev/ublk-control ]; then
  $URSA attach "$URL" --ublk >/run/log 2>&1 && die 'attached without a driver'
  grep -q 'modprobe ublk_drv' /run/log || die 'nobody says what is missing'
fi
modprobe ublk_drv || { echo "the guest's kernel has no ublk"; exit 77; }

attach
said() { echo "$1: $2"; [ "$2" = "$3" ] || die "$1 is not $3"; }
said block "$(blockdev --getss $DISK)" "$BLOCK"
said size "$(blockdev --getsize64 $DISK)" "$BYTES"
said cache "$(cat /sys/block/ublkb0/queue/write_cache)" 'write back'
said fua "$(cat /sys/block/ublkb0/queue/fua)" 1
[ "$(cat /sys/block/ublkb0/queue/discard_max_bytes)" -gt 0 ] || die 'nothing can be discarded'
# Zeros that the unit makes itself, and what is around them.
head -c 6291456 /dev/urandom >/run/random
dd if=/run/random of=$DISK bs=1M oflag=direct 2>/dev/null || die 'not written'
blkdiscard --zeroout --offset 1048576 --length 4194304 $DISK || die 'not zeroed'
dd if=/dev/zero of=/run/random bs=1M seek=1 count=4 conv=notrunc 2>/dev/null
dd if=$DISK bs=1M count=6 iflag=direct 2>/dev/null | cmp - /run/random || die 'not what was written'
rm /run/random
mkfs.ext4 -q -F -E lazy_itable_init=1 $DISK && mount $DISK /mnt || die 'no file system'
verified() { # MORE…: every block written once in random order; the blocks say themselves what belongs into them
  fio --name=verify --filename=/mnt/verified --size=8m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio \
    --iodepth=16 --fsync=64 --verify=crc32c --verify_fatal=1 --output=/run/fio.out "$@" || { cat /run/fio.out; die 'not verified'; }
  grep -E 'err=|IOPS' /run/fio.out
}
verified --do_verify=1
umount /mnt && e2fsck -f -n $DISK && mount $DISK /mnt || die 'not whole'
verified --verify_only
dmesg | grep -iE 'i/o error|corrupt|critical' && exit 1
true
