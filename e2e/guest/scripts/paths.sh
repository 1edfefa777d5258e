# paths: waits until the ways by $PORTALS are, one by one, in the states $WANTED (or others, after a |), and
# fio has seen no error until then:
#   active         the node that is asked says that it is optimized (ALUA), and multipath uses it
#   non-optimized  the node says so, the kernel knows, and multipath has the path in a group that it would use if there were no better one
#   lost           there is no session, and multipath does not use it
#   unavailable    there is a session; the node says that the volume is unavailable, and multipath does not use it
set -- $PORTALS
state_of() { # PORTAL NODE
  disk_of "$1" || return 1
  if [ "$(cat $session/state)" != LOGGED_IN ]; then
    line_of $disk | grep -q 'failed faulty' && echo lost
  elif sg_turs /dev/$disk >/dev/null 2>&1; then
    line_of $disk | grep -q 'active ready' || return 1
    case $(told_by $disk | cut -c$2) in
      0) echo active ;;
      1) [ "$(kernel_of $disk)" = active/non-optimized ] && group_of $disk | grep -q 'prio=10 status=enabled' && echo non-optimized ;;
    esac
  else
    sg_turs -v /dev/$disk 2>&1 | grep -qi 'unavailable' || return 1
    told=$(told_by $disk)
    [ "$(echo $told | cut -c$2)" = 3 ] || return 1
    line_of $disk | grep -q 'failed faulty' && echo unavailable
  fi
}
as_wanted() { case "|$WANTED|" in *"|$states|"*) true ;; *) false ;; esac; }
for _ in $(seq 200); do
  states="$(state_of $1 1) $(state_of $2 2)"
  [ -e /run/failed ] && { echo 'fio has failed'; cat /run/fio.out /run/fio.err; exit 1; }
  as_wanted && break
  sleep 0.2
done
tell_all
echo "states: $states"
as_wanted || { echo "wanted: $WANTED"; iscsiadm -m session -P 1 | grep State; dmesg | tail -20; exit 1; }
