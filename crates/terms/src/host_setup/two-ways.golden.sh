# Linux host for Ursa volumes. Paste it into a shell, or read it and take what you need.

# 1. The initiator. The last line prints its name (IQN), for `ursa host create --initiator`.
#    (Fedora, RHEL: dnf install iscsi-initiator-utils device-mapper-multipath)
sudo apt-get install -y open-iscsi multipath-tools
sudo systemctl enable --now iscsid
sudo cat /etc/iscsi/initiatorname.iscsi

# 2. Log in, now and at each boot.
#    noop_out_*           A server that does not respond is detected after 5 + 5 seconds.
#    queue_depth          Outstanding commands per session; the server allows as many (its commands-max).
#    replacement_timeout  Multipath: after 5 seconds without a connection a path returns its I/O to multipath, which
#                         retries it on another path. With all paths down, I/O waits as long as no_path_retry below.
sudo iscsiadm -m discovery -t sendtargets -p 10.1.1.5:3260
sudo iscsiadm -m discovery -t sendtargets -p 10.1.2.5:3261
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.startup' -v automatic
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.timeo.replacement_timeout' -v 5
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.conn[0].timeo.noop_out_interval' -v 5
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.conn[0].timeo.noop_out_timeout' -v 5
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.cmds_max' -v 128
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.queue_depth' -v 128
sudo iscsiadm -m node -T iqn.2026-11.io.ursa:db --login

# 3. Multipath: one device for all paths to a volume.
#    find_multipaths yes   Any disk with two paths becomes a device. Without it, Debian ignores disks it has never seen before.
#    path_grouping_policy  Paths with the same priority share the I/O; the server sets the priority (ALUA).
#    path_selector         Each request takes the path with the shortest expected service time.
#    path_checker tur      TEST UNIT READY every polling_interval (5 seconds).
#    no_path_retry 24      With all paths down, I/O waits 24 x 5 seconds = two minutes, then it fails.
#                          `queue` waits forever: nothing fails, but hung processes cannot be killed.
sudo mkdir -p /etc/multipath/conf.d
sudo tee /etc/multipath/conf.d/ursa.conf >/dev/null <<'END'
defaults {
	find_multipaths "yes"
}
devices {
	device {
		vendor "URSA"
		product "VOLUME"
		path_grouping_policy "group_by_prio"
		prio "alua"
		hardware_handler "1 alua"
		path_selector "service-time 0"
		path_checker "tur"
		failback "immediate"
		no_path_retry 24
		fast_io_fail_tmo 5
	}
}
END
sudo systemctl enable --now multipathd
sudo multipathd reconfigure

# 4. The disks.
#    timeout    Linux aborts a command after 60 seconds, not 30. Time without a connection does not count.
#    scheduler  none: the server schedules requests itself.
sudo tee /etc/udev/rules.d/62-ursa.rules >/dev/null <<'END'
ACTION=="add|change", SUBSYSTEM=="scsi", ENV{DEVTYPE}=="scsi_device", ATTR{vendor}=="URSA*", ATTR{timeout}="60"
ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTRS{vendor}=="URSA*", ATTR{queue/scheduler}="none"
END
sudo udevadm control --reload
sudo udevadm trigger --subsystem-match=scsi --subsystem-match=block

# 5. Check: each volume is one device with one path per portal. In /etc/fstab use its name under /dev/mapper and the
#    option _netdev.
sudo iscsiadm -m session -P 1
sudo multipath -ll
