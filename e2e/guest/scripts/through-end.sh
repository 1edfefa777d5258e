# through-end: waits for the background fio, which must have seen no error, and reads everything once more.
DISK=/dev/mapper/mpatha
while pidof fio >/dev/null; do sleep 0.5; done
cat /run/through.err
grep -E 'err= *0' /run/through.out || { cat /run/through.out; dmesg | tail -20; exit 1; }
fio --name=through --filename=$DISK --size=8m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8 \
  --verify=crc32c --verify_only --verify_fatal=1 --output=/run/again.out || { cat /run/again.out; exit 1; }
multipath -ll
[ "$(multipath -ll | grep -c 'active ready')" = 2 ] || { echo 'a path did not come back'; exit 1; }
