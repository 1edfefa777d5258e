# nodes-wear: blocks $BAD of the volume cannot be read on the first node's disk until they are written, which
# puts them in another place: as a snapshot does it, of a disk that does not read them. (dm-dust, made for
# that, is not in Debian's kernels.)
table $BAD | dmsetup create worn || die 'no device'
echo "0 $SECTORS snapshot /dev/mapper/worn $(cat /run/spare) N 8" | becomes
