# write-through: starts fio in the background, slowly enough to be in the middle when the server goes away.
DISK=/dev/mapper/mpatha
setsid fio --name=through --filename=$DISK --size=8m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8 \
  --rate_iops=150 --verify=crc32c --do_verify=1 --verify_fatal=1 --output=/run/through.out >/run/through.err 2>&1 &
sleep 3
pidof fio >/dev/null || { cat /run/through.out /run/through.err; exit 1; }
