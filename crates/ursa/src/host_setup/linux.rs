//! Linux hosts: open-iscsi, dm-multipath, udev. The text is a shell script, so that all of it, or a part, can be pasted.

use super::Setup;
use super::words::{SHELL_BEGIN, SHELL_END, shell_word, with_port};

/// Who runs the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    /// Somebody who may become root.
    Sudoer,
    Root,
}

impl As {
    /// What goes before a command that needs root.
    fn prefix(self) -> &'static str {
        match self {
            As::Sudoer => SUDO,
            As::Root => "",
        }
    }

    /// A part without names that somebody has chosen.
    fn part(self, text: &str) -> String {
        text.replace(SUDO, self.prefix())
    }
}

const SUDO: &str = "sudo ";

/// The script.
pub(super) fn text(setup: &Setup, by: As) -> String {
    let several = setup.has_several_ways();
    let mut text = by.part(INSTALL);
    text.push_str(if several { SEVERAL_WAYS } else { ONE_WAY });
    text.push_str(&log_in(setup, by, if several { 5 } else { 120 }));
    if several {
        text.push_str(&by.part(MULTIPATH));
    }
    text.push_str(&by.part(UDEV));
    text.push_str(&by.part(if several { CHECK_SEVERAL } else { CHECK_ONE }));
    if setup.chap_user.is_some() {
        text.push_str(SHELL_END);
    }
    text
}

fn log_in(setup: &Setup, by: As, replacement_timeout: u32) -> String {
    let sudo = by.prefix();
    let discover: String = setup
        .portals
        .iter()
        .map(|portal| format!("{sudo}iscsiadm -m discovery -t sendtargets -p {}\n", with_port(portal)))
        .collect();
    let settings = [
        ("node.startup", "automatic".to_owned()),
        ("node.session.timeo.replacement_timeout", replacement_timeout.to_string()),
        ("node.conn[0].timeo.noop_out_interval", "5".into()),
        ("node.conn[0].timeo.noop_out_timeout", "5".into()),
        ("node.session.cmds_max", "128".into()),
        ("node.session.queue_depth", "128".into()),
    ];
    let target = &setup.target;
    let set: String = settings
        .iter()
        .map(|(name, value)| format!("{sudo}iscsiadm -m node -T {target} -o update -n '{name}' -v {value}\n"))
        .collect();
    let chap = setup.chap_user.as_deref().map(|user| chap(target, user, by)).unwrap_or_default();
    format!("{discover}{set}{chap}{sudo}iscsiadm -m node -T {target} --login\n\n")
}

/// Asks for the secret: no text has it. Nor has a command of sudo, which logs them.
fn chap(target: &str, user: &str, by: As) -> String {
    let sudo = by.prefix();
    let set = |what: &str| format!("iscsiadm -m node -T {target} -o update -n node.session.auth.{what}");
    let (method, name, password) =
        (set("authmethod -v CHAP"), set(&format!("username -v {}", shell_word(user))), set("password -v"));
    let secret = match by {
        As::Root => format!("{password} \"$SECRET\"\n"),
        As::Sudoer => format!(
            "\
# By standard input: sudo logs what a command is given. While iscsiadm runs, `ps` has the secret all the same.
printf '%s\\n' \"$SECRET\" | sudo sh -c 'read -r S; exec {password} \"$S\"'
"
        ),
    };
    format!("{SHELL_BEGIN}{ASK}{sudo}{method}\n{sudo}{name}\n{secret}unset SECRET\n")
}

const ASK: &str = "read -rsp 'CHAP secret: ' SECRET; echo\n";

const INSTALL: &str = "\
# Linux host for Ursa volumes. Paste it into a shell, or read it and take what you need.

# 1. The initiator. The host's name, which `ursa host create --initiator` wants, is in the last line.
#    (Fedora, RHEL: dnf install iscsi-initiator-utils device-mapper-multipath)
sudo apt-get install -y open-iscsi multipath-tools
sudo systemctl enable --now iscsid
sudo cat /etc/iscsi/initiatorname.iscsi

# 2. Log in, now and at each start of the host.
#    noop_out_*           A silent server is noticed after 5 + 5 seconds.
#    queue_depth          As many commands as the server lets a session have outstanding (its commands-max).
";

const ONE_WAY: &str = "\
#    replacement_timeout  One way only: for 120 seconds I/O waits for the server to come back (a restart takes a few),
#                         then it fails, and file systems turn read-only. Rather wait than fail: use 86400.
";

const SEVERAL_WAYS: &str = "\
#    replacement_timeout  Several ways: after 5 seconds without a connection a way gives its I/O back to multipath,
#                         which repeats it on another one. How long I/O waits when all are gone is no_path_retry below.
";

const MULTIPATH: &str = "\
# 3. One device of all ways to a volume.
#    find_multipaths yes   Any disk with two ways is one device. Without it Debian makes none of disks that it has never seen before.
#    path_grouping_policy  Ways with the same priority carry I/O together; the priority comes from the server (ALUA).
#    path_selector         Each request takes the way that is likely to be done first.
#    path_checker tur      TEST UNIT READY every polling_interval (5 seconds).
#    no_path_retry 24      With all ways gone, I/O waits 24 x 5 seconds = two minutes, then it fails.
#                          `queue` waits for ever: nothing fails, but what hangs cannot be ended either.
sudo mkdir -p /etc/multipath/conf.d
sudo tee /etc/multipath/conf.d/ursa.conf >/dev/null <<'END'
defaults {
	find_multipaths \"yes\"
}
devices {
	device {
		vendor \"URSA\"
		product \"VOLUME\"
		path_grouping_policy \"group_by_prio\"
		prio \"alua\"
		hardware_handler \"1 alua\"
		path_selector \"service-time 0\"
		path_checker \"tur\"
		failback \"immediate\"
		no_path_retry 24
		fast_io_fail_tmo 5
	}
}
END
sudo systemctl enable --now multipathd
sudo multipathd reconfigure

";

const UDEV: &str = "\
# 4. The disks.
#    timeout    A command may take 60 seconds, not 30, before Linux aborts it. Time without a connection does not count.
#    scheduler  None: the server orders requests itself.
sudo tee /etc/udev/rules.d/62-ursa.rules >/dev/null <<'END'
ACTION==\"add|change\", SUBSYSTEM==\"scsi\", ENV{DEVTYPE}==\"scsi_device\", ATTR{vendor}==\"URSA*\", ATTR{timeout}=\"60\"
ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{DEVTYPE}==\"disk\", ATTRS{vendor}==\"URSA*\", ATTR{queue/scheduler}=\"none\"
END
sudo udevadm control --reload
sudo udevadm trigger --subsystem-match=scsi --subsystem-match=block

";

const CHECK_ONE: &str = "\
# 5. Look. In /etc/fstab use the name under /dev/disk/by-id and the option _netdev.
sudo iscsiadm -m session -P 1
lsblk -o NAME,SIZE,VENDOR,MODEL,SERIAL
ls -l /dev/disk/by-id/wwn-*
";

const CHECK_SEVERAL: &str = "\
# 5. Look: each volume is one device with one way a portal. In /etc/fstab use its name under /dev/mapper and the option
#    _netdev.
sudo iscsiadm -m session -P 1
sudo multipath -ll
";
