# disk-write: 8 MiB are written at $AT MiB of /run/disk without an error.
dd if=/dev/urandom of=/run/disk bs=1M seek=$AT count=8 iflag=fullblock oflag=direct conv=notrunc 2>/run/dd.err || { cat /run/dd.err; tell_all; dmesg | tail -20; exit 1; }
