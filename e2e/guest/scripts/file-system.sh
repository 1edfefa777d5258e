# file-system: makes a $FS on $DISK, mounts it at /mnt, and has fio write and verify.
DISK=/dev/mapper/mpatha
mkdir -p /mnt
case $FS in
  ext4) mkfs.ext4 -q -F -E lazy_itable_init=1 $DISK ;;
  xfs) mkfs.xfs -q -f $DISK ;;
esac || exit 1
mount $DISK /mnt || exit 1
verified() { # MORE…: every block written once in random order; the blocks say themselves what belongs into them
  fio --name=verify --filename=/mnt/verified --size=8m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio \
    --iodepth=16 --verify=crc32c --verify_fatal=1 --output=/run/fio.out "$@" || { cat /run/fio.out; exit 1; }
  grep -E 'err=|IOPS' /run/fio.out
}
verified --do_verify=1
umount /mnt && mount $DISK /mnt || exit 1
verified --verify_only
dmesg | grep -iE 'i/o error|corrupt|critical' && exit 1
true
