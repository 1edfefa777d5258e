# fenced: host-a's node is back, and host-a is still out.
# A node that has lost its leases for a moment is not ready (2): it is tried again for a minute.
pr() { for _ in $(seq 60); do sg_persist --no-inquiry "$@"; code=$?; [ $code = 2 ] || break; sleep 1; done; return $code; }
for _ in $(seq 300); do sg_turs /run/host-a >/dev/null 2>&1 && break; sleep 0.2; done
[ "$(pr --in --read-keys /run/host-a | grep -oiE '0x[0-9a-f]+$')" = 0xb7 ] || { pr --in --read-keys /run/host-a; exit 1; }
LC_ALL=C dd if=/dev/zero of=/run/host-a bs=4096 count=1 oflag=direct conv=notrunc 2>/run/refused && { echo 'it is not fenced off'; exit 1; }
grep 'Invalid exchange' /run/refused || { cat /run/refused; exit 1; }
dd if=/run/host-a of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null || { echo 'it may read, and cannot'; exit 1; }
pr --out --clear --param-rk=0xb7 /run/host-b && dd if=/dev/zero of=/run/host-a bs=4096 count=1 oflag=direct conv=notrunc
