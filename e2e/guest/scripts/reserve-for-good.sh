# reserve-for-good: a reservation that survives the loss of power (APTPL).
check() { echo "+ $*"; "$@" || { echo "FAILED: $*"; exit 1; }; }
# A node that has lost its leases for a moment is not ready (2): it is tried again for a minute.
pr() { for _ in $(seq 60); do sg_persist --no-inquiry "$@"; code=$?; [ $code = 2 ] || break; sleep 1; done; return $code; }
check pr --out --register --param-aptpl --param-sark=0xa7 /run/host-a
check pr --out --reserve --param-rk=0xa7 --prout-type=5 /run/host-a
pr --in --report-capabilities /run/host-a
