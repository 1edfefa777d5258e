# write-end: ends the background fio, which must have seen no error, and reads what it has written last by
# each path.
touch /run/enough
for _ in $(seq 600); do [ -e /run/over ] && break; sleep 0.2; done
[ -e /run/failed ] && { cat /run/fio.out /run/fio.err; dmesg | tail -20; exit 1; }
pass=$(cat /run/last-pass) || exit 1
grep -E 'err= *0' /run/fio.out || { cat /run/fio.out; exit 1; }
for disk in /sys/block/"$(basename "$(readlink -f /run/disk)")"/slaves/*; do
  fio --name=pass --filename=/dev/${disk##*/} --size=4m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=4 --randseed=$pass \
    --verify=crc32c --verify_only --verify_fatal=1 --output=/run/again.out || { echo "by $disk"; cat /run/again.out; exit 1; }
done
echo "$pass passes"
