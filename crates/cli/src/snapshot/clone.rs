//! `ursa snapshot clone`.

use api::{Client, SnapshotClone, SnapshotCloned};
use clap::Args;

use super::super::confirm::show_would;
use super::super::error::CliError;
use super::super::output::Output;
use super::super::table::size;

/// What to clone.
#[derive(Args, Debug)]
pub struct Clones {
    /// Snapshot name or number
    snapshot: String,
    /// Name of the clone; with --count, the clones are NAME-1, NAME-2, ...
    #[arg(long)]
    name: String,
    /// Volume to clone, if the snapshot has several
    #[arg(long)]
    volume: Option<String>,
    /// Create this many clones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: Option<u16>,
    /// Number of copies, on nodes whose copies have the snapshot [default: all of these]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=4))]
    copies: Option<u8>,
    /// Nodes to put a copy on, by number: 1,2. Their copies must have the snapshot
    #[arg(long, value_name = "NODES", value_delimiter = ',', conflicts_with = "copies")]
    on: Vec<u16>,
    /// Show what the command would do, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl Clones {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let Clones { snapshot, name, volume, count, copies, on, dry_run } = self;
        let nodes = (!on.is_empty()).then_some(on);
        let request = SnapshotClone { name, volume, count, copies, nodes };
        if dry_run {
            let what = format!("Clone snapshot {snapshot}");
            let would = client.would(|client| client.clone_snapshot(&snapshot, &request))?;
            return show_would(output, &what, &would);
        }
        output.show(&client.clone_snapshot(&snapshot, &request)?, created)
    }
}

fn created(cloned: &SnapshotCloned) -> String {
    let SnapshotCloned { snapshot, volume, clones, took_us, used } = cloned;
    let (what, first) = match clones.as_slice() {
        [] => return String::new(),
        [only] => (format!("Volume {} created", only.name), &only.name),
        [first, .., last] => {
            (format!("{} volumes created, {} to {}", clones.len(), first.name, last.name), &first.name)
        }
    };
    let (seconds, ms) = (took_us / 1_000_000, took_us / 1000 % 1000);
    let space = used.map_or(String::new(), |used| format!(", {} of space", size(used)));
    format!(
        "{what}: as {volume} was in snapshot {snapshot}. It took {seconds}.{ms:03} s{space}.\n\
         No host can use them before they are mapped: `ursa map create TARGET {first} --host HOST`.\n"
    )
}

#[cfg(test)]
mod tests {
    use api::ClonedVolume;

    use super::*;

    #[test]
    fn time_and_space_are_shown() {
        let clones = (1..=3).map(|number| ClonedVolume { name: format!("vm-{number}"), id: "1".into() });
        let all = SnapshotCloned {
            snapshot: "golden".into(),
            volume: "image".into(),
            clones: clones.collect(),
            took_us: 2_045_600,
            used: Some(0),
        };
        let text = created(&all);
        let line = "3 volumes created, vm-1 to vm-3: as image was in snapshot golden. It took 2.045 s, ";
        assert!(text.starts_with(line), "{text}");
        assert!(text.contains("`ursa map create TARGET vm-1 --host HOST`"), "{text}");
        let one = SnapshotCloned { clones: all.clones[..1].to_vec(), used: None, ..all };
        assert!(created(&one).starts_with("Volume vm-1 created: as image"), "{}", created(&one));
        assert!(created(&one).contains("It took 2.045 s.\n"), "{}", created(&one));
    }
}
