# fence: the node that host-a has reserved through is gone. Its reservation holds; then host-b takes it over.
# A node that has lost its leases for a moment is not ready (2): it is tried again for a minute.
pr() { for _ in $(seq 60); do sg_persist --no-inquiry "$@"; code=$?; [ $code = 2 ] || break; sleep 1; done; return $code; }
check() { echo "+ $*"; "$@" || { echo "FAILED: $*"; exit 1; }; }
settle() { for _ in 1 2 3; do sg_turs /run/host-b >/dev/null 2>&1; done; }
settle
pr --in --read-reservation /run/host-b | grep -i 0xa7 || { echo 'the reservation is lost'; exit 1; }
LC_ALL=C dd if=/dev/zero of=/run/host-b bs=4096 count=1 oflag=direct conv=notrunc 2>/run/refused && { echo 'it does not hold'; exit 1; }
grep 'Invalid exchange' /run/refused || { cat /run/refused; exit 1; } # what Linux makes of RESERVATION CONFLICT
check pr --out --register --param-sark=0xb7 --param-aptpl /run/host-b
check pr --out --preempt-abort --param-rk=0xb7 --param-sark=0xa7 --prout-type=5 /run/host-b
settle
check dd if=/dev/zero of=/run/host-b bs=4096 count=1 oflag=direct conv=notrunc
