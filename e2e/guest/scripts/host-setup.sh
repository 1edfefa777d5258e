# host-setup: does what `ursa host-setup linux` prints, which is in /run/host-setup, word by word; /run/disk
# is the disk then. Four words mean something else here: nothing is installed, nobody starts services, and
# discovery would find the server's own idea of its addresses.
mkdir -p /run/words
word() { cat >"/run/words/$1"; chmod 755 "/run/words/$1"; }
word sudo <<'END'
#!/bin/sh
exec "$@"
END
word apt-get <<'END'
#!/bin/sh
exit 0
END
word systemctl <<'END'
#!/bin/sh
# As systemd does it: it is ready when this ends.
case "$*" in
  *" iscsid") pidof iscsid >/dev/null || iscsid ;;
  *" multipathd")
    pidof multipathd >/dev/null || multipathd
    for _ in $(seq 100); do multipathd show daemon >/dev/null 2>&1 && exit 0; sleep 0.1; done
    exit 1 ;;
esac
END
word iscsiadm <<'END'
#!/bin/sh
case "$*" in
  *discovery*) exec /usr/sbin/iscsiadm -m node -T "$TARGET" -p "${*##* }" -o new ;;
  *) exec /usr/sbin/iscsiadm "$@" ;;
esac
END
export TARGET
echo '# Debian has none' >/etc/multipath.conf
PATH=/run/words:$PATH bash -e /run/host-setup || { echo 'the printed commands failed'; exit 1; }
for _ in $(seq 100); do
  multipath -ll | grep -q active && ln -sf "/dev/$(multipath -ll | grep -om 1 'dm-[0-9]*')" /run/disk && exit 0
  sleep 0.2
done
multipath -v3; exit 1
