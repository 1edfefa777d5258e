//! `ursa volume strategy` and `ursa volume resolve-fork`.

use api::{Client, ForkResolution, RecordPlace, Strategy, StrategyChoice, Volume, VolumeFork};
use clap::{Args, ValueEnum};

use super::super::confirm::Confirm;
use super::super::exit::CliError;
use super::super::output::Output;

/// What to choose for a volume.
#[derive(Args, Debug)]
pub struct Choice {
    /// The volume's name or identity
    volume: String,
    /// What a node does that hears of nobody and does not decide
    #[arg(value_enum)]
    strategy: Chosen,
    /// With `heartbeat`: accept that both nodes may go on, and that what one of them has written is given up then
    #[arg(long)]
    accept_split_brain: bool,
    /// Who chooses this, for whoever asks later [default: the user who is logged in]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// See [`Strategy`].
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Chosen {
    /// It waits; the other one is the one that decides
    Prefer,
    /// It goes on alone after about six seconds, though the other one may, too
    Heartbeat,
}

/// What to decide about a volume.
#[derive(Args, Debug)]
pub struct Resolution {
    /// The volume's name or identity
    volume: String,
    /// The number of the node whose data is kept
    #[arg(long, value_name = "NODE")]
    keep: u16,
    /// Give up what the other node alone has written
    #[arg(long)]
    discard_other: bool,
    #[command(flatten)]
    confirm: Confirm,
}

impl Choice {
    /// Does it.
    ///
    /// # Errors
    /// See [`CliError`].
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let strategy = match self.strategy {
            Chosen::Prefer => Strategy::Prefer,
            Chosen::Heartbeat => Strategy::Heartbeat,
        };
        let by = self.by.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "nobody named".into());
        let choice = StrategyChoice { strategy, accept_split_brain: self.accept_split_brain, by };
        let chosen = client.choose_strategy(&self.volume, &choice)?;
        let volume = &self.volume;
        output.show(&chosen, |chosen| match strategy {
            Strategy::Prefer => format!("Volume {volume}: {}.\n", decided_by(record_place(client))),
            Strategy::Heartbeat => {
                let warning = if chosen.one_way {
                    "\nWARNING: the nodes know only one address of each other. When that network is lost, both go on: give them a second one (`ursa node list` shows addresses).\n"
                } else {
                    ""
                };
                format!(
                    "Volume {volume}: a node that hears of nobody goes on alone. If both do, it is split until somebody decides (`ursa volume resolve-fork`).\n{warning}"
                )
            }
        })
    }
}

impl Resolution {
    /// Does it.
    ///
    /// # Errors
    /// See [`CliError`].
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let volume = client.volume(&self.volume)?;
        let what = format!("Keep what node {} has of volume {}", self.keep, volume.name);
        let resolution = ForkResolution { keep: self.keep, discard_other: true };
        let would = || client.would_resolve_fork(&volume.id, &resolution);
        if self.confirm.go_on_if(output, &what, !self.discard_other, would)? {
            client.resolve_fork(&volume.id, &resolution)?;
            output.done(&format!(
                "What node {} has of volume {} is kept; the other copy is brought up to date: `ursa volume show {}`.",
                self.keep, volume.name, volume.name
            ))?;
        }
        Ok(())
    }
}

/// Where the record is of the cluster whose node is asked. Only for texts: an answer without it is as good for a program.
pub(super) fn record_place(client: &Client) -> RecordPlace {
    client.node().map(|node| node.record_place).unwrap_or_default()
}

/// Who says which nodes go on, unless one may go on alone.
fn decided_by(place: RecordPlace) -> &'static str {
    match place {
        RecordPlace::Nodes => "the node that decides goes on, or a majority",
        RecordPlace::Etcd => "etcd, which has the cluster's record, decides which nodes go on",
    }
}

/// What was chosen, and by whom.
pub(super) fn chosen(volume: &Volume, place: RecordPlace) -> String {
    match &volume.strategy {
        None => decided_by(place).into(),
        Some(chosen) => {
            let what = match chosen.strategy {
                Strategy::Prefer => format!("prefer: {}", decided_by(place)),
                Strategy::Heartbeat => "heartbeat: a node that hears of nobody goes on alone".to_owned(),
            };
            format!("{what} (chosen by {}, {} s after 1970)", chosen.by, chosen.at)
        }
    }
}

/// What is to be said of a fork before all else.
pub(super) fn fork_line(volume: &Volume, fork: &VolumeFork) -> String {
    let (name, node) = (&volume.name, fork.node);
    if fork.split {
        let other = volume.copies.iter().find(|copy| copy.node != node).map_or(0, |copy| copy.node);
        format!(
            "\nTHE VOLUME IS SPLIT: nodes {other} and {node} have both gone on alone with it, and each has data that the other has not. \
             Node {other} serves it; what node {node} has stays as it is. Decide whose data is kept, and what the other one has written alone is given up: \
             `ursa volume resolve-fork {name} --keep NODE --discard-other`.\n"
        )
    } else {
        format!(
            "\nNode {node} has gone on alone with it. When the other node is back, that is settled by itself if only one of them was used; if it is not, because the \
             disk of node {node} is lost: `ursa volume resolve-fork {name} --keep NODE --discard-other`.\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use api::VolumeStrategy;

    use super::*;
    use crate::samples;

    #[test]
    fn with_etcd_no_node_and_no_majority_decides() {
        let volume = |strategy: Option<Strategy>| {
            let strategy = strategy.map(|strategy| VolumeStrategy { strategy, by: "eva".into(), at: 9 });
            Volume { strategy, ..samples::volume("db", Vec::new()) }
        };
        let nodes = "the node that decides goes on, or a majority";
        let etcd = "etcd, which has the cluster's record, decides which nodes go on";
        for (place, who) in [(RecordPlace::Nodes, nodes), (RecordPlace::Etcd, etcd)] {
            assert_eq!(chosen(&volume(None), place), who);
            let said = chosen(&volume(Some(Strategy::Prefer)), place);
            assert_eq!(said, format!("prefer: {who} (chosen by eva, 9 s after 1970)"));
        }
        let alone = chosen(&volume(Some(Strategy::Heartbeat)), RecordPlace::Nodes);
        assert!(alone.starts_with("heartbeat: a node that hears of nobody goes on alone (chosen"), "{alone}");
    }
}
