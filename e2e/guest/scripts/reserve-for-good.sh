# reserve-for-good: a reservation that survives the loss of power (APTPL).
check() { echo "+ $*"; "$@" || { echo "FAILED: $*"; exit 1; }; }
pr() { sg_persist --no-inquiry "$@"; }
check pr --out --register --param-aptpl --param-sark=0xa7 /run/host-a
check pr --out --reserve --param-rk=0xa7 --prout-type=5 /run/host-a
pr --in --report-capabilities /run/host-a
