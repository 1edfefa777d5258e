# full-pool: a direct write that needs space ends with ENOSPC, and reads and both paths go on. Before that, the
# first MiB holds what dd has written there.
DISK=/dev/mapper/mpatha
head -c 1048576 /dev/urandom >/run/first
head -c 1048576 /dev/urandom >/run/second
if [ "$STEP" = before ]; then
  dd if=/run/first of=$DISK bs=1M oflag=direct || exit 1
  exit 0
fi
paths=$(echo "$PORTALS" | wc -w)
ready() { [ "$(multipath -ll | grep -c 'active ready')" = "$paths" ] || { multipath -ll; echo 'a path is lost'; exit 1; }; }
if [ "$STEP" = full ]; then
  dd if=/run/second of=$DISK bs=1M seek=1 oflag=direct >/run/dd.out 2>&1 && { echo 'it had room'; exit 1; }
  cat /run/dd.out
  grep -q 'No space left on device' /run/dd.out || exit 1
  dd if=$DISK of=/run/found bs=1M count=1 iflag=direct || exit 1
  ready
  exit 0
fi
dd if=/run/second of=$DISK bs=1M seek=1 oflag=direct || exit 1
dd if=$DISK of=/run/found bs=1M skip=1 count=1 iflag=direct && cmp /run/second /run/found || exit 1
ready
