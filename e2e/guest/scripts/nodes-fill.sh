# nodes-fill: writes what is wanted to the volume, notes where the first node's disk has it, and has nothing
# in the kernel's log from then on.
wanted >/run/wanted
dd if=/run/wanted of=/run/disk bs=1M oflag=direct conv=notrunc 2>/run/dd.err || die "$(cat /run/dd.err)"
find_blocks
dmesg -C
