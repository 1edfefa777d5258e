# nodes: two nodes of the program under test in the guest itself, and the disk of the first one, which can be
# made to fail. What other scripts begin with.
URSA=/program/ursa
# The disk in MiB and in sectors; the volume in MiB and in blocks of 4096 bytes.
DISK_MIB=48; SECTORS=98304; MIB=16; BLOCKS=4096
die() { echo "FAILED: $*"; tail -n 20 /run/node?.log; dmesg | tail -n 20; exit 1; }
at() { URSA_API=http://127.0.0.$1:3280 $URSA "${@:2}"; } # NODE ARGUMENTS…: a command of the command line
# Until nodes have found out and decided something by themselves, in fifths of a second.
TRIES=300
# What is to be in the volume: each block says which one it is.
wanted() { perl -e 'print sprintf("block %9d\n", $_) x 256 for 0 .. shift() - 1' $BLOCKS; }
# Notes in /run/places in which sector of the first node's disk each block of the volume is.
find_blocks() {
  perl -e 'for ($at = 0; read STDIN, $_, 4096; $at += 8) { print "$1 $at\n" if /^block +(\d+)\n/ }' </run/disk1.img >/run/places
  [ "$(wc -l </run/places)" = $BLOCKS ] || die "$(wc -l </run/places) of $BLOCKS blocks are on the disk"
}
# table BLOCKS…: the disk's table for device mapper, with an error instead of these blocks of the volume.
table() {
  perl -e 'my ($sectors, $device, @blocks) = @ARGV;
    open my $places, "<", "/run/places"; my %sector = map { split } <$places>;
    my $at = 0;
    for my $bad (sort { $a <=> $b } map { $sector{$_} // die "no block $_" } @blocks) {
      print "$at ", $bad - $at, " linear $device $at\n" if $bad > $at;
      print "$bad 8 error\n"; $at = $bad + 8;
    }
    print "$at ", $sectors - $at, " linear $device $at\n"' $SECTORS "$(cat /run/loop1)" "$@"
}
# The disk is now what the table on standard input says.
becomes() { dmsetup reload failing && dmsetup resume failing || die 'no such table'; }
