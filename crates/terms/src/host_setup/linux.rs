//! Linux hosts: open-iscsi, dm-multipath, udev.
//!
//! The text is a shell script, so that all or part of it can be pasted.

use super::Setup;
use super::words::{SHELL_BEGIN, SHELL_END, shell_word, with_port};

/// The user who runs the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    /// A user who may become root.
    Sudoer,
    Root,
}

impl As {
    /// The prefix of a command that needs root.
    fn prefix(self) -> &'static str {
        match self {
            As::Sudoer => SUDO,
            As::Root => "",
        }
    }

    /// Adapts a part of the script that contains no user-chosen names.
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

/// Asks for the secret, which no text contains. No sudo command contains it either, since sudo logs its
/// commands.
fn chap(target: &str, user: &str, by: As) -> String {
    let sudo = by.prefix();
    let set = |what: &str| format!("iscsiadm -m node -T {target} -o update -n node.session.auth.{what}");
    let (method, name, password) =
        (set("authmethod -v CHAP"), set(&format!("username -v {}", shell_word(user))), set("password -v"));
    let secret = match by {
        As::Root => format!("{password} \"$SECRET\"\n"),
        As::Sudoer => format!(
            "\
# Through standard input, because sudo logs command lines. While iscsiadm runs, `ps` still shows the secret.
printf '%s\\n' \"$SECRET\" | sudo sh -c 'read -r S; exec {password} \"$S\"'
"
        ),
    };
    format!("{SHELL_BEGIN}{ASK}{sudo}{method}\n{sudo}{name}\n{secret}unset SECRET\n")
}

const ASK: &str = "read -rsp 'CHAP secret: ' SECRET; echo\n";

const INSTALL: &str = "\
# Linux host for Ursa volumes. Paste it into a shell, or read it and take what you need.

# 1. The initiator. The last line prints its name (IQN), for `ursa host create --initiator`.
#    (Fedora, RHEL: dnf install iscsi-initiator-utils device-mapper-multipath)
sudo apt-get install -y open-iscsi multipath-tools
sudo systemctl enable --now iscsid
sudo cat /etc/iscsi/initiatorname.iscsi

# 2. Log in, now and at each boot.
#    noop_out_*           A server that does not respond is detected after 5 + 5 seconds.
#    queue_depth          Outstanding commands per session; the server allows as many (its commands-max).
";

const ONE_WAY: &str = "\
#    replacement_timeout  Single path: I/O waits 120 seconds for the server to return (a restart takes a few), then it
#                         fails, and file systems turn read-only. To wait rather than fail, use 86400.
";

const SEVERAL_WAYS: &str = "\
#    replacement_timeout  Multipath: after 5 seconds without a connection a path returns its I/O to multipath, which
#                         retries it on another path. With all paths down, I/O waits as long as no_path_retry below.
";

const MULTIPATH: &str = "\
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
#    timeout    Linux aborts a command after 60 seconds, not 30. Time without a connection does not count.
#    scheduler  none: the server schedules requests itself.
sudo tee /etc/udev/rules.d/62-ursa.rules >/dev/null <<'END'
ACTION==\"add|change\", SUBSYSTEM==\"scsi\", ENV{DEVTYPE}==\"scsi_device\", ATTR{vendor}==\"URSA*\", ATTR{timeout}=\"60\"
ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{DEVTYPE}==\"disk\", ATTRS{vendor}==\"URSA*\", ATTR{queue/scheduler}=\"none\"
END
sudo udevadm control --reload
sudo udevadm trigger --subsystem-match=scsi --subsystem-match=block

";

const CHECK_ONE: &str = "\
# 5. Check. In /etc/fstab use the name under /dev/disk/by-id and the option _netdev.
sudo iscsiadm -m session -P 1
lsblk -o NAME,SIZE,VENDOR,MODEL,SERIAL
ls -l /dev/disk/by-id/wwn-*
";

const CHECK_SEVERAL: &str = "\
# 5. Check: each volume is one device with one path per portal. In /etc/fstab use its name under /dev/mapper and the
#    option _netdev.
sudo iscsiadm -m session -P 1
sudo multipath -ll
";
