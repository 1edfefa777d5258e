# nodes-write: writes the blocks from $FROM, $COUNT of them and 16 at a time, to multipath's device: what is
# wanted, once more.
dd if=/run/wanted of=/run/disk bs=64k skip=$((FROM / 16)) seek=$((FROM / 16)) count=$((COUNT / 16)) oflag=direct conv=notrunc 2>/run/dd.err || die "$(cat /run/dd.err)"
