//! How to attach a volume that was just mapped, for `ursa volume create` and `ursa map create`.

use api::{Client, Volume};
use terms::attach::attach_lines;
use terms::host_setup::portals_of;

/// A LUN that was just mapped.
#[derive(Clone, Copy)]
pub struct Lun<'a> {
    pub volume: &'a Volume,
    /// The target's IQN.
    pub target: &'a str,
    /// The host group that has access.
    pub host: &'a str,
}

impl Lun<'_> {
    /// The commands that attach it on a host of its group, for people. Asks the node for the portals.
    pub fn instructions(self, client: &Client) -> String {
        let of_volume = if self.is_local() { Vec::new() } else { portals_of(client, self.volume) };
        let portals = match of_volume.is_empty() {
            true => client.node().map(|node| node.portals).unwrap_or_default(),
            false => of_volume,
        };
        self.with_portals(&portals)
    }

    /// Whether only the node's own machine has access, which uses the portals of its own node.
    fn is_local(self) -> bool {
        self.host == api::DEFAULT_HOST
    }

    fn with_portals(self, portals: &[String]) -> String {
        let Lun { volume, target, .. } = self;
        let name = &volume.name;
        let lines = attach_lines(portals, target, self.is_local());
        let copies = volume.copies.iter().filter(|copy| !copy.leaves).count();
        let give_access = format!(
            "  ursa host create HOST --initiator IQN\n  \
               ursa map create {target} {name} --host HOST\n"
        );
        match (self.is_local(), copies) {
            (false, _) => {
                let more = match portals {
                    [_, _, ..] => format!(
                        "Multipath settings, and other systems: `ursa host-setup linux --volume {name}`.\n"
                    ),
                    _ => String::new(),
                };
                format!("\nTo attach it to a host of that group:\n{lines}{more}")
            }
            (true, 0..=1) => format!(
                "\nTo attach it to this machine:\n{lines}\n\
                 To give another host access (its IQN is in its /etc/iscsi/initiatorname.iscsi):\n{give_access}"
            ),
            (true, _) => format!(
                "\nTo attach it to this machine:\n{lines}\n\
                 This is one path only: this machine loses the disk while the service of this node is down.\n\
                 For failover (multipath), attach it through a host group instead. Other hosts need one, too.\n\
                 A host's IQN is in its /etc/iscsi/initiatorname.iscsi:\n{give_access}  \
                   ursa host-setup linux --volume {name}\n"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use api::{CopyState, VolumeCopy};
    use terms::samples;

    use super::*;
    use crate::mentioned::mistake_in;

    const TARGET: &str = "iqn.2026-11.io.ursa:db";
    const PORTALS: [&str; 2] = ["10.0.0.1:3260", "10.0.0.2:3260"];
    const ONE_PATH: &str = "This is one path only";

    fn instructions(host: &str, copies: &[VolumeCopy], portals: &[&str]) -> String {
        let volume = samples::volume("db", copies.to_vec());
        let portals: Vec<String> = portals.iter().map(|&portal| portal.to_owned()).collect();
        Lun { volume: &volume, target: TARGET, host }.with_portals(&portals)
    }

    fn copies() -> [VolumeCopy; 2] {
        [1, 2].map(|node| samples::copy(usize::from(node) - 1, node, CopyState::InSync))
    }

    #[test]
    fn this_machine_is_told_that_its_one_path_does_not_fail_over() {
        let text = instructions(api::DEFAULT_HOST, &copies(), &PORTALS[..1]);
        assert_eq!(text.matches("--login").count(), 1, "{text}");
        let (_, after) = text.split_once(ONE_PATH).expect(&text);
        assert!(after.contains("failover (multipath)"), "{text}");
        for command in [
            "host create HOST --initiator IQN",
            "map create iqn.2026-11.io.ursa:db db --host HOST",
            "host-setup linux --volume db",
        ] {
            assert!(after.contains(&format!("\n  ursa {command}\n")), "{text}");
            assert_eq!(mistake_in(command), None);
        }
    }

    #[test]
    fn a_volume_without_another_copy_has_no_other_path() {
        let [first, second] = copies();
        let leaves = VolumeCopy { leaves: true, ..second };
        for copies in [vec![], vec![first.clone()], vec![first, leaves]] {
            let text = instructions(api::DEFAULT_HOST, &copies, &PORTALS[..1]);
            assert!(!text.contains(ONE_PATH), "{text}");
            assert!(text.contains("To give another host access"), "{text}");
        }
    }

    #[test]
    fn a_host_of_a_group_uses_all_portals() {
        let text = instructions("web", &copies(), &PORTALS);
        for part in ["-p 10.0.0.1:3260\n", "-p 10.0.0.2:3260\n", "`ursa host-setup linux --volume db`"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains(ONE_PATH), "{text}");
    }
}
