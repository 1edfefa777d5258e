# Linux host for Ursa volumes. Paste it into a shell, or read it and take what you need.

# 1. The initiator. The host's name, which `ursa host create --initiator` wants, is in the last line.
#    (Fedora, RHEL: dnf install iscsi-initiator-utils device-mapper-multipath)
sudo apt-get install -y open-iscsi multipath-tools
sudo systemctl enable --now iscsid
sudo cat /etc/iscsi/initiatorname.iscsi

# 2. Log in, now and at each start of the host.
#    noop_out_*           A silent server is noticed after 5 + 5 seconds.
#    queue_depth          As many commands as the server lets a session have outstanding (its commands-max).
#    replacement_timeout  One way only: for 120 seconds I/O waits for the server to come back (a restart takes a few),
#                         then it fails, and file systems turn read-only. Rather wait than fail: use 86400.
sudo iscsiadm -m discovery -t sendtargets -p 10.1.1.5:3260
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.startup' -v automatic
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.timeo.replacement_timeout' -v 120
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.conn[0].timeo.noop_out_interval' -v 5
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.conn[0].timeo.noop_out_timeout' -v 5
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.cmds_max' -v 128
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.queue_depth' -v 128
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db --login

# 4. The disks.
#    timeout    A command may take 60 seconds, not 30, before Linux aborts it. Time without a connection does not count.
#    scheduler  None: the server orders requests itself.
sudo tee /etc/udev/rules.d/62-ursa.rules >/dev/null <<'END'
ACTION=="add|change", SUBSYSTEM=="scsi", ENV{DEVTYPE}=="scsi_device", ATTR{vendor}=="URSA*", ATTR{timeout}="60"
ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTRS{vendor}=="URSA*", ATTR{queue/scheduler}="none"
END
sudo udevadm control --reload
sudo udevadm trigger --subsystem-match=scsi --subsystem-match=block

# 5. Look. In /etc/fstab use the name under /dev/disk/by-id and the option _netdev.
sudo iscsiadm -m session -P 1
lsblk -o NAME,SIZE,VENDOR,MODEL,SERIAL
ls -l /dev/disk/by-id/wwn-*
