# Proxmox VE for Ursa volumes, as root: A on every node of its cluster, then B once, on any one of them.
# Give all nodes one host group, with the initiator names of all of them. Paste A and B one after the other.

# A. On every node of the Proxmox cluster: a Linux host for Ursa volumes. Paste it into a shell, or read it and take what you need.

# 1. The initiator. The host's name, which `ursa host create --initiator` wants, is in the last line.
#    (Fedora, RHEL: dnf install iscsi-initiator-utils device-mapper-multipath)
apt-get install -y open-iscsi multipath-tools
systemctl enable --now iscsid
cat /etc/iscsi/initiatorname.iscsi

# 2. Log in, now and at each start of the host.
#    noop_out_*           A silent server is noticed after 5 + 5 seconds.
#    queue_depth          As many commands as the server lets a session have outstanding (its commands-max).
#    replacement_timeout  Several ways: after 5 seconds without a connection a way gives its I/O back to multipath,
#                         which repeats it on another one. How long I/O waits when all are gone is no_path_retry below.
iscsiadm -m discovery -t sendtargets -p 10.1.1.5:3260
iscsiadm -m discovery -t sendtargets -p 10.1.2.5:3261
iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.startup' -v automatic
iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.timeo.replacement_timeout' -v 5
iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.conn[0].timeo.noop_out_interval' -v 5
iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.conn[0].timeo.noop_out_timeout' -v 5
iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.cmds_max' -v 128
iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n 'node.session.queue_depth' -v 128
{ # As far as the brace at the end it is read before anything of it is run: the question takes no line that is pasted.
read -rsp 'CHAP secret: ' SECRET; echo
iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n node.session.auth.authmethod -v CHAP
iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n node.session.auth.username -v web
iscsiadm -m node -T iqn.2026-11.io.ursa:db -o update -n node.session.auth.password -v "$SECRET"
unset SECRET
iscsiadm -m node -T iqn.2026-11.io.ursa:db --login

# 3. One device of all ways to a volume.
#    find_multipaths yes   Any disk with two ways is one device. Without it Debian makes none of disks that it has never seen before.
#    path_grouping_policy  Ways with the same priority carry I/O together; the priority comes from the server (ALUA).
#    path_selector         Each request takes the way that is likely to be done first.
#    path_checker tur      TEST UNIT READY every polling_interval (5 seconds).
#    no_path_retry 24      With all ways gone, I/O waits 24 x 5 seconds = two minutes, then it fails.
#                          `queue` waits for ever: nothing fails, but what hangs cannot be ended either.
mkdir -p /etc/multipath/conf.d
tee /etc/multipath/conf.d/ursa.conf >/dev/null <<'END'
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
systemctl enable --now multipathd
multipathd reconfigure

# 4. The disks.
#    timeout    A command may take 60 seconds, not 30, before Linux aborts it. Time without a connection does not count.
#    scheduler  None: the server orders requests itself.
tee /etc/udev/rules.d/62-ursa.rules >/dev/null <<'END'
ACTION=="add|change", SUBSYSTEM=="scsi", ENV{DEVTYPE}=="scsi_device", ATTR{vendor}=="URSA*", ATTR{timeout}="60"
ACTION=="add|change", SUBSYSTEM=="block", ENV{DEVTYPE}=="disk", ATTRS{vendor}=="URSA*", ATTR{queue/scheduler}="none"
END
udevadm control --reload
udevadm trigger --subsystem-match=scsi --subsystem-match=block

# 5. Look: each volume is one device with one way a portal. In /etc/fstab use its name under /dev/mapper and the option
#    _netdev.
iscsiadm -m session -P 1
multipath -ll
}

# B. Once: LVM on the volume, shared by all nodes. Proxmox itself keeps two nodes from using one disk image.
#    The volume must be new: pvcreate ends what is on it.
pvcreate /dev/disk/by-id/dm-uuid-mpath-36abc
vgcreate ursa-db /dev/disk/by-id/dm-uuid-mpath-36abc
pvesm add lvm ursa-db --vgname ursa-db --shared 1 --content images,rootdir
pvesm status
