# nodes-reread: the first node's disk reads blocks $BAD of the volume, and they are what is wanted.
set -o pipefail
for block in $BAD; do
  sector=$(awk -v block=$block '$1 == block {print $2}' /run/places)
  dd if=/dev/mapper/failing bs=4096 skip=$((sector / 8)) count=1 iflag=direct 2>/run/dd.err | cmp - <(tail -c +$((block * 4096 + 1)) /run/wanted | head -c 4096) ||
    die "block $block: $(cat /run/dd.err)"
done
