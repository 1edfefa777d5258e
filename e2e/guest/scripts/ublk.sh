# ublk: attaches $TARGET's unit $LUN through $PORTALS as /dev/ublkb0, by the program under test on the second
# disk. What the scripts ublk-* begin with.
DISK=/dev/ublkb0
URSA=/program/ursa
URL=iscsi://${PORTALS// /,}/$TARGET/$LUN
die() { echo "$*"; cat /run/said /run/log 2>/dev/null; dmesg | tail -n 20; exit 1; }
attach() { # OPTIONS…
  rm -f /run/said /run/status
  setsid bash -c '"$@" >/run/said 2>/run/log; echo $? >/run/status' - $URSA attach "$URL" --ublk --ublk-id 0 "$@" >/dev/null 2>&1 &
  for _ in $(seq 1200); do
    grep -q "^$DISK is iscsi://" /run/said 2>/dev/null && return
    [ -e /run/status ] && break
    sleep 0.1
  done
  die 'it was not attached'
}
ends() { # waits for the end of what was asked to end: a good one, and nothing is left
  for _ in $(seq 600); do
    [ -e /run/status ] && break
    sleep 0.1
  done
  [ "$(cat /run/status)" = 0 ] || die 'it has not ended well'
  [ ! -e $DISK ] && [ ! -e /dev/ublkc0 ] || die 'the device is not gone'
}
