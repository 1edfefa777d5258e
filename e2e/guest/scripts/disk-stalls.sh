# disk-stalls: begins to write /run/data (disk-good) at $AT MiB of /run/disk, in the background, and waits
# until no way is ready any more: TEST UNIT READY says that somebody has to see to the unit, and multipath
# uses none of them.
rm -f /run/write.status
setsid bash -c 'LC_ALL=C dd if=/run/data of=/run/disk bs=1M seek=$0 oflag=direct conv=notrunc; echo $? >/run/write.status' $AT >/run/write.out 2>&1 &
needs_help() {
  sg_turs -v /dev/$disk 2>&1 | grep -qi 'manual intervention required' && line_of $disk | grep -q 'failed faulty'
}
for portal in $PORTALS; do
  disk_of "$portal" || { echo "there is no session with $portal"; exit 1; }
  for _ in $(seq 300); do needs_help && break; sleep 0.2; done
  needs_help || { echo "$disk is in use"; sg_turs -v /dev/$disk; tell_all; cat /run/write.out; dmesg | tail -20; exit 1; }
done
tell_all
