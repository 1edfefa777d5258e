# through-stat: the background fio is still there.
pidof fio >/dev/null || { echo 'fio is over already'; cat /run/through.out; exit 1; }
iscsiadm -m session -P 1 | grep -E 'Persistent Portal|Session State'
multipath -ll
