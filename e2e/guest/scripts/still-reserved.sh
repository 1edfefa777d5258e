# still-reserved: after the server's restart the reservation holds; then its owner gives it up.
# A node that has lost its leases for a moment is not ready (2): it is tried again for a minute.
pr() { for _ in $(seq 60); do sg_persist --no-inquiry "$@"; code=$?; [ $code = 2 ] || break; sleep 1; done; return $code; }
for host in host-a host-b; do
  for _ in $(seq 300); do pr --in --read-keys /run/$host >/dev/null 2>&1 && break; sleep 0.2; done
done
iscsiadm -m session -P 1 | grep 'iSCSI Session State'
pr --in --read-keys /run/host-b | grep -i 0xa7 || { pr --in --read-keys /run/host-b; echo 'the key is lost'; exit 1; }
pr --in --read-reservation /run/host-b | grep -i 0xa7 || { echo 'the reservation is lost'; exit 1; }
for _ in 1 2 3; do sg_turs /run/host-b >/dev/null 2>&1; done
dd if=/dev/zero of=/run/host-b bs=4096 count=1 oflag=direct conv=notrunc 2>/dev/null && { echo 'it does not hold'; exit 1; }
dd if=/dev/zero of=/run/host-a bs=4096 count=1 oflag=direct conv=notrunc || { echo 'its owner may not write'; exit 1; }
pr --out --clear --param-rk=0xa7 /run/host-a && dd if=/dev/zero of=/run/host-b bs=4096 count=1 oflag=direct conv=notrunc
