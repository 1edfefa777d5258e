# disk-good: waits until all ways are in use, writes 8 MiB at $AT MiB of /run/disk, and reads them by each
# way.
all_ready() {
  for portal in $PORTALS; do
    disk_of "$portal" && sg_turs /dev/$disk >/dev/null 2>&1 && line_of $disk | grep -q 'active ready' || return 1
  done
}
for _ in $(seq 400); do all_ready && break; sleep 0.2; done
all_ready || { echo 'not all ways are in use'; tell_all; dmesg | tail -20; exit 1; }
head -c 8388608 /dev/urandom >/run/data
dd if=/run/data of=/run/disk bs=1M seek=$AT oflag=direct conv=notrunc 2>/run/dd.err || { cat /run/dd.err; tell_all; dmesg | tail -20; exit 1; }
for portal in $PORTALS; do
  disk_of "$portal"
  dd if=/dev/$disk bs=1M skip=$AT count=8 iflag=direct 2>/dev/null | cmp - /run/data || { echo "$disk reads other data"; exit 1; }
done
