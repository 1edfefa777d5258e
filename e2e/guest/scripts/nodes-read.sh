# nodes-read: reads the blocks from $FROM, $COUNT of them and 16 at a time, by each of $BY: portals, and
# `disk` for multipath's device. All are what is wanted.
set -o pipefail
for way in $BY; do
  if [ $way = disk ]; then device=/run/disk; else disk_of "$way" && device=/dev/$disk || die "no way by $way"; fi
  dd if=$device bs=64k skip=$((FROM / 16)) count=$((COUNT / 16)) iflag=direct 2>/run/dd.err |
    cmp - <(tail -c +$((FROM * 4096 + 1)) /run/wanted | head -c $((COUNT * 4096))) || die "by $way: $(cat /run/dd.err)"
done
