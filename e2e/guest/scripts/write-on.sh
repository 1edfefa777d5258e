# write-on: has fio write /run/disk again and again in the background, and read what it has just written,
# until /run/enough is there. Each pass has a seed of its own, which its blocks tell: what an earlier pass has
# written is an error.
cat >/run/passes <<'END'
for pass in $(seq 1000); do
  [ -e /run/enough ] && break
  fio --name=pass --filename=/run/disk --size=4m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=4 --rate_iops=100 \
    --randseed=$pass --verify=crc32c --verify_backlog=64 --do_verify=1 --verify_fatal=1 --output=/run/fio.out || { touch /run/failed; break; }
  echo $pass >/run/last-pass
done
touch /run/over
END
stat=/sys/block/$(basename "$(readlink -f /run/disk)")/stat
setsid bash /run/passes >/run/fio.err 2>&1 &
for _ in $(seq 300); do
  grep -q fio /proc/[0-9]*/comm 2>/dev/null && [ "$(awk '{print $5}' "$stat")" != 0 ] && exit 0
  [ -e /run/failed ] && break
  sleep 0.2
done
cat /run/fio.out /run/fio.err; exit 1
