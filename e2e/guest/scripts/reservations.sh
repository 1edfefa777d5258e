# reservations: register, reserve, conflict, preempt, clear, by two hosts (SPC-4 5.13).
A=/run/host-a B=/run/host-b
exec 9>&1 # for what must be seen from within `refused`
# A node that has lost its leases for a moment is not ready (2): it is tried again for a minute.
pr() { for _ in $(seq 60); do sg_persist --no-inquiry "$@"; code=$?; [ $code = 2 ] || break; sleep 1; done; return $code; }
check() { echo "+ $*"; "$@" || { echo "FAILED: $*"; exit 1; }; }
refused() { echo "+ must conflict: $*"; "$@" >/run/refused 2>&1 && { echo "FAILED: it was allowed"; exit 1; }; cat /run/refused; true; }
# Fails at a RESERVATION CONFLICT only ("Invalid exchange" is what Linux makes of it). Each of these hosts has
# one path: when the disk of its node takes so long for a write that its copy leaves the in-sync set, I/O
# fails until the copy is in sync again, and multipath would take the other path. It is tried again for a
# minute.
io() {
  for _ in $(seq 60); do
    LC_ALL=C dd "$@" bs=4096 count=1 2>/run/io && return 0
    grep -q 'Invalid exchange' /run/io && return 1
    sleep 1
  done
  { echo "FAILED: dd $*"; cat /run/io; } >&9; exit 1
}
writes() { io if=/dev/zero of="$1" seek=64 oflag=direct conv=notrunc; }
reads() { io if="$1" of=/dev/null skip=64 iflag=direct; }
keys() { pr --in --read-keys "$1" | grep -oiE '0x[0-9a-f]+$' | sort | tr '\n' ' '; }
holder() { pr --in --read-reservation "$1" | grep -iE 'key=|scope' | tr '\n' ' '; }
# A change by one host may be a unit attention for the other: it is taken here, so that it does not hide an
# answer.
settle() { for disk in $A $B; do for _ in 1 2; do sg_turs "$disk" >/dev/null 2>&1; done; done; }

check writes $A; check writes $B
refused pr --out --reserve --param-rk=0xa1 --prout-type=1 $A        # not registered
check pr --out --register --param-sark=0xa1 $A
refused pr --out --register --param-rk=0xbad --param-sark=0xa2 $A   # a wrong key
check pr --out --register --param-sark=0xb1 $B
[ "$(keys $A)" = '0xa1 0xb1 ' ] || { echo "keys: $(keys $A)"; exit 1; }

echo '--- write exclusive'
check pr --out --reserve --param-rk=0xa1 --prout-type=1 $A
holder $B
check writes $A; check reads $B; refused writes $B
refused pr --out --reserve --param-rk=0xb1 --prout-type=1 $B
check pr --out --release --param-rk=0xa1 --prout-type=1 $A; settle
check writes $B

echo '--- exclusive access, registrants only: both are registrants'
check pr --out --reserve --param-rk=0xa1 --prout-type=6 $A; settle
check writes $B; check reads $B
echo '--- A leaves out: its key is preempted'
check pr --out --preempt --param-rk=0xb1 --param-sark=0xa1 --prout-type=5 $B; settle
[ "$(keys $B)" = '0xb1 ' ] || { echo "keys: $(keys $B)"; exit 1; }
holder $B | grep -qi 0xb1 || { holder $B; exit 1; }
check writes $B; refused writes $A; check reads $A

echo '--- clear'
check pr --out --clear --param-rk=0xb1 $B; settle
[ -z "$(keys $A)" ] || { echo "keys: $(keys $A)"; exit 1; }
check writes $A; check writes $B
