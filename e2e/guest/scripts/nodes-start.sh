# nodes-start: the two nodes with a volume that both have a copy of. 77: the program does not run in this
# guest.
mkdir -p /program
for _ in $(seq 200); do
  [ -e /dev/vdb ] && break
  sleep 0.05
done
mount -t squashfs -o ro /dev/vdb /program || exit 1
if ! $URSA --version >/run/log 2>&1; then
  grep -q GLIBC_ /run/log && { echo "the program needs a newer libc than the guest's"; exit 77; }
  die "the program does not run: $(cat /run/log)"
fi
modprobe -a loop dm_flakey dm_snapshot || die 'no modules'
truncate -s ${DISK_MIB}M /run/disk1.img /run/spare.img
losetup --find --show --sector-size 4096 /run/disk1.img >/run/loop1 && losetup --find --show --sector-size 4096 /run/spare.img >/run/spare || die 'no loop devices'
table | dmsetup create failing || die 'no device'
for node in 1 2; do
  ip=127.0.0.$node
  setsid $URSA serve --name node$node --data-dir /run/node$node --iscsi-listen $ip:3260 --api-listen $ip:3280 --pool-size 0 --cores 1 \
    --watcher false --data-max 64M >/run/node$node.log 2>&1 &
done
for node in 1 2; do
  for _ in $(seq 300); do at $node status >/dev/null 2>&1 && break; sleep 0.2; done
  at $node status >/dev/null || die "node $node does not answer"
done
at 1 node init --listen 127.0.0.1:3270 || die 'no cluster'
token=$(at 1 node token -o json | sed -n 's/.*"token": *"\([^"]*\)".*/\1/p')
at 2 node join "$token" --listen 127.0.0.2:3270 || die 'not joined'
at 1 pool create disks /dev/mapper/failing --yes || die 'no pool'
at 2 pool create disks /run/disk2.img --size ${DISK_MIB}M --yes || die 'no pool'
at 1 volume create db --size ${MIB}M --on 1,2 --target $TARGET || die 'no volume'
portals() { for portal in $PORTALS; do echo --portal $portal; done; }
at 1 host-setup linux --target $TARGET $(portals) >/run/host-setup || die 'no words for hosts'
