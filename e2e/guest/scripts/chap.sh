# chap: finds $TARGET by SendTargets, is turned away without the secret, with a wrong one, and by itself where
# the target does not know its own; then $USER with $SECRET and the target as $TARGET_USER with $TARGET_SECRET
# prove themselves to each other, and the disk can be used.
pidof iscsid >/dev/null || iscsid
set -- $PORTALS
check() { echo "+ $*"; "$@" || { echo "FAILED: $*"; dmesg | tail; exit 1; }; }

echo '--- SendTargets'
found=$(iscsiadm -m discovery -t sendtargets -p "$1") || { echo "no discovery: $found"; exit 1; }
echo "$found"
# The server names its own address, which is this guest's loopback interface: the ports are those that are
# reached.
for portal in $PORTALS; do
  echo "$found" | grep -qE "^127\.0\.0\.1:${portal#*:},[0-9]+ $TARGET\$" || { echo "$TARGET is not told at $portal"; exit 1; }
  check iscsiadm -m node -T "$TARGET" -p "127.0.0.1:${portal#*:}" -o show >/dev/null
  check iscsiadm -m node -T "$TARGET" -p "127.0.0.1:${portal#*:}" -o delete
done

record() { iscsiadm -m node -T "$TARGET" -p "$portal" "$@"; }
set_to() { record -o update -n "$1" -v "$2"; }
portal=$1
check record -o new >/dev/null
# One try: who is turned away does not come again.
check set_to node.session.initial_login_retry_max 1

present() { # SECRET TARGET_SECRET
  check set_to node.session.auth.authmethod CHAP
  check set_to node.session.auth.username "$USER"
  check set_to node.session.auth.password "$1"
  check set_to node.session.auth.username_in "$TARGET_USER"
  check set_to node.session.auth.password_in "$2"
}
turned_away() {
  echo '+ must fail: --login'
  timeout 120 iscsiadm -m node -T "$TARGET" -p "$portal" --login && { echo 'FAILED: it logged in'; exit 1; }
  iscsiadm -m session 2>/dev/null | grep -F "$TARGET" && { echo 'FAILED: there is a session'; exit 1; }
  true
}

echo '--- no secret'
turned_away
echo '--- a wrong one'
present "wrong-$SECRET" "$TARGET_SECRET"
turned_away
echo '--- a target that does not know its own'
present "$SECRET" "wrong-$TARGET_SECRET"
turned_away

echo '--- both are who they say'
present "$SECRET" "$TARGET_SECRET"
check record --login
for _ in $(seq 100); do
  disk=$(ls -d /sys/class/iscsi_session/session*/device/target*/*/block/* 2>/dev/null | head -1)
  [ -n "$disk" ] && [ -b "/dev/${disk##*/}" ] && break
  sleep 0.1
done
[ -n "$disk" ] || { echo 'there is no disk'; dmesg | tail; exit 1; }
dd if=/dev/urandom of=/run/data bs=64k count=16 2>/dev/null
check dd if=/run/data of="/dev/${disk##*/}" bs=64k oflag=direct conv=fsync
dd if="/dev/${disk##*/}" bs=64k count=16 iflag=direct 2>/dev/null | cmp - /run/data || { echo 'FAILED: it reads other data'; exit 1; }
check record --logout
