# Linux host for Ursa volumes. Paste it into a shell, or read it and take what you need.

# 1. The initiator. The last line prints its name (IQN), for `ursa host create --initiator`.
#    (Fedora, RHEL: dnf install iscsi-initiator-utils device-mapper-multipath)
sudo apt-get install -y open-iscsi multipath-tools
sudo systemctl enable --now iscsid
sudo cat /etc/iscsi/initiatorname.iscsi

# 2. Log in, now and at each boot.
#    noop_out_*           A server that does not respond is detected after 5 + 5 seconds.
#    queue_depth          Outstanding commands per session; the server allows as many (its commands-max).
#    replacement_timeout  Single path: I/O waits 120 seconds for the server to return (a restart takes a few), then it
#                         fails, and file systems turn read-only. To wait rather than fail, use 86400.
sudo iscsiadm -m discovery -t sendtargets -p 10.1.1.5:3260
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.startup' -v automatic
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.timeo.replacement_timeout' -v 120
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.conn[0].timeo.noop_out_interval' -v 5
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.conn[0].timeo.noop_out_timeout' -v 5
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.cmds_max' -v 128
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.queue_depth' -v 128
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db --login

# 4. The disks.
#    timeout    Linux aborts a command after 60 seconds, not 30. Time without a connection does not count.
#    scheduler  none: the server schedules requests itself.
sudo tee /etc/udev/rules.d/62-ursa.rules >/dev/null <<'END'
ACTION=="add|change", SUBSYSTEM=="scsi", ENV{DEVTYPE}=="scsi_device", ATTR{vendor}=="URSA*", ATTR{timeout}="60"
ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTRS{vendor}=="URSA*", ATTR{queue/scheduler}="none"
END
sudo udevadm control --reload
sudo udevadm trigger --subsystem-match=scsi --subsystem-match=block

# 5. Check. In /etc/fstab use the name under /dev/disk/by-id and the option _netdev.
sudo iscsiadm -m session -P 1
lsblk -o NAME,SIZE,VENDOR,MODEL,SERIAL
ls -l /dev/disk/by-id/wwn-*
