# detour: what fio writes goes by the way of $OPTIMIZED, and none of it by that of $SOURCE, whose node brings
# a copy up to date.
writes_of() { disk_of "$1" && set -- $(cat /sys/block/$disk/stat) && echo $5; }
disk_of "$OPTIMIZED"
group_of $disk | grep 'prio=50 status=active' || { echo "$disk is not in the group that is used"; tell_all; exit 1; }
sleep 1 # what was under way
by_optimized=$(writes_of "$OPTIMIZED"); by_source=$(writes_of "$SOURCE")
for _ in $(seq 300); do
  written=$(($(writes_of "$OPTIMIZED") - by_optimized))
  [ $written -ge 100 ] && break
  sleep 0.2
done
detoured=$(($(writes_of "$SOURCE") - by_source))
echo "$written writes by the optimized way, $detoured by the other"
[ $written -ge 100 ] && [ $detoured = 0 ] || { tell_all; cat /run/fio.out /run/fio.err; dmesg | tail -20; exit 1; }
