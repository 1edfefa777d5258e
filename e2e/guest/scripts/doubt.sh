# doubt: waits until the kernel knows that the watched path is unavailable, and prints what it was before. A
# write that begins meanwhile goes on in the background (doubt-over.sh).
rm -f /run/written
for _ in $(seq 400); do
  if [ -z "$writes" ] && grep -q '^[f3]' /run/seen; then
    writes=yes
    setsid bash -c 'dd if=/dev/urandom of=/run/disk bs=4096 count=1 oflag=direct conv=notrunc; echo $? >/run/written' >/run/dd.out 2>&1 &
  fi
  grep -qx '3. unavailable' /run/seen && break
  sleep 0.1
done
touch /run/watched
cat /run/seen
grep -qx '3. unavailable' /run/seen && exit 0
echo 'it was not told that it is unavailable, or the kernel does not know it'
iscsiadm -m session -P 1 | grep State; dmesg | tail -20; exit 1
