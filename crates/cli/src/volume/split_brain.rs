//! `ursa volume split-brain-policy` and `ursa volume resolve-split-brain`.

use api::{Client, ForkResolution, PolicyChoice, RecordPlace, SplitBrainPolicy, Volume, VolumeFork};
use clap::{Args, ValueEnum};
use terms::clock::utc;

use super::super::confirm::Confirm;
use super::super::error::CliError;
use super::super::output::Output;

/// What to choose for a volume.
#[derive(Args, Debug)]
pub struct Choice {
    /// Volume name or ID
    volume: String,
    /// Behavior of a node that is cut off and not preferred
    #[arg(value_enum)]
    policy: Policy,
    /// With `heartbeat`: accept that both nodes may continue, and that the writes of one of them are then
    /// discarded
    #[arg(long)]
    accept_split_brain: bool,
    /// Your name, for the record [default: the user who is logged in]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// See [`SplitBrainPolicy`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    /// Only the preferred node continues
    Prefer,
    /// Continue alone after about six seconds, although the other node may do so, too
    Heartbeat,
}

/// What to decide about a volume.
#[derive(Args, Debug)]
pub struct Resolution {
    /// Volume name or ID
    volume: String,
    /// Node whose data is kept, by number
    #[arg(long, value_name = "NODE")]
    keep: u16,
    /// Discard writes made only on the other node
    #[arg(long)]
    discard_other: bool,
    #[command(flatten)]
    confirm: Confirm,
}

impl Choice {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let policy = match self.policy {
            Policy::Prefer => SplitBrainPolicy::Prefer,
            Policy::Heartbeat => SplitBrainPolicy::Heartbeat,
        };
        let by = self.by.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "unknown".into());
        let choice = PolicyChoice { policy, accept_split_brain: self.accept_split_brain, by };
        let chosen = client.set_split_brain_policy(&self.volume, &choice)?;
        let volume = &self.volume;
        output.show(&chosen, |chosen| match policy {
            SplitBrainPolicy::Prefer => format!("Volume {volume}: {}.\n", decided_by(record_place(client))),
            SplitBrainPolicy::Heartbeat => {
                let warning = if chosen.one_way {
                    "\nWARNING: each node knows only one address of the other. If that network is lost, both continue. Give the nodes a second address (`ursa node list` shows addresses).\n"
                } else {
                    ""
                };
                format!(
                    "Volume {volume}: a node that is cut off continues alone. If both do, the volume is in split brain until you resolve it (`ursa volume resolve-split-brain`).\n{warning}"
                )
            }
        })
    }
}

impl Resolution {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let volume = client.volume(&self.volume)?;
        let what = format!("Keep the data of node {} for volume {}", self.keep, volume.name);
        let resolution = ForkResolution { keep: self.keep, discard_other: true };
        let would = || client.would(|client| client.resolve_fork(&volume.id, &resolution));
        if self.confirm.go_on_if(output, &what, !self.discard_other, would)? {
            client.resolve_fork(&volume.id, &resolution)?;
            output.done(&format!(
                "The data of node {} is kept for volume {}; the other copy is resyncing: `ursa volume show {}`.",
                self.keep, volume.name, volume.name
            ))?;
        }
        Ok(())
    }
}

/// Where the cluster of the node that is asked keeps its record.
///
/// Only for people, so errors are ignored.
pub(super) fn record_place(client: &Client) -> RecordPlace {
    client.node().map(|node| node.record_place).unwrap_or_default()
}

/// What decides which nodes continue, unless one may continue alone.
fn decided_by(place: RecordPlace) -> &'static str {
    match place {
        RecordPlace::Nodes => "the preferred node or a majority continues",
        RecordPlace::Etcd => "etcd, which keeps the cluster's record, decides which nodes continue",
    }
}

/// The policy, and who chose it.
pub(super) fn chosen(volume: &Volume, place: RecordPlace) -> String {
    match &volume.split_brain_policy {
        None if volume.copies.len() < 2 => "-".into(),
        None => decided_by(place).into(),
        Some(chosen) => {
            let what = match chosen.policy {
                SplitBrainPolicy::Prefer => format!("prefer: {}", decided_by(place)),
                SplitBrainPolicy::Heartbeat => "heartbeat: a node that is cut off continues alone".to_owned(),
            };
            format!("{what} (set by {}, {})", chosen.by, utc(chosen.at))
        }
    }
}

/// The message about a split brain, which comes before all else.
pub(super) fn fork_line(volume: &Volume, fork: &VolumeFork) -> String {
    let (name, node) = (&volume.name, fork.node);
    if fork.split {
        let other = volume.copies.iter().find(|copy| copy.node != node).map_or(0, |copy| copy.node);
        format!(
            "\nSPLIT BRAIN: nodes {other} and {node} have both served the volume independently, and each has data that the other lacks. \
             Node {other} serves it; the copy on node {node} stays unchanged. Choose which data to keep; writes made only on the other node are discarded: \
             `ursa volume resolve-split-brain {name} --keep NODE --discard-other`.\n"
        )
    } else {
        format!(
            "\nNode {node} has continued alone. Ursa resolves this automatically when the other node is back, if hosts used only one of the two. If the \
             disk of node {node} is lost, resolve it yourself: `ursa volume resolve-split-brain {name} --keep NODE --discard-other`.\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use api::{ChosenPolicy, CopyState};
    use terms::samples;

    use super::*;

    #[test]
    fn with_etcd_no_node_and_no_majority_decides() {
        let volume = |policy: Option<SplitBrainPolicy>| {
            let split_brain_policy = policy.map(|policy| ChosenPolicy { policy, by: "eva".into(), at: 9 });
            let copies = [1, 2].map(|node| samples::copy(usize::from(node) - 1, node, CopyState::InSync));
            Volume { split_brain_policy, ..samples::volume("db", copies.into()) }
        };
        let nodes = "the preferred node or a majority continues";
        let etcd = "etcd, which keeps the cluster's record, decides which nodes continue";
        for (place, who) in [(RecordPlace::Nodes, nodes), (RecordPlace::Etcd, etcd)] {
            assert_eq!(chosen(&volume(None), place), who);
            let said = chosen(&volume(Some(SplitBrainPolicy::Prefer)), place);
            assert_eq!(said, format!("prefer: {who} (set by eva, 1970-01-01 00:00:09Z)"));
        }
        let alone = chosen(&volume(Some(SplitBrainPolicy::Heartbeat)), RecordPlace::Nodes);
        assert!(alone.starts_with("heartbeat: a node that is cut off continues alone (set"), "{alone}");
        assert_eq!(chosen(&samples::volume("db", Vec::new()), RecordPlace::Nodes), "-", "nothing to decide");
    }
}
