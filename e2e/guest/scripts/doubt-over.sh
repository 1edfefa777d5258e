# doubt-over: what was written in doubt is written without an error. Says what the kernel has noted of its
# paths.
for _ in $(seq 600); do [ -e /run/written ] && break; sleep 0.2; done
dmesg | grep 'port group' | tail -12
[ "$(cat /run/written)" = 0 ] || { echo 'the write that began in doubt:'; cat /run/dd.out; tell_all; dmesg | tail -20; exit 1; }
