//! `ursa snapshot diff`: what differs between two snapshots of a volume, page by page, so that the command
//! needs no more memory for more ranges.

use std::str::FromStr;

use api::{ChangedRange, Client, SnapshotDiffQuery};

use super::super::error::CliError;
use super::super::output::Output;
use super::super::table::size;

/// How many ranges are requested at a time: the most that a node returns.
const PAGE: usize = 4096;

/// A volume in a snapshot: `VOLUME@SNAPSHOT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeAt {
    pub(super) volume: String,
    pub(super) snapshot: String,
}

impl FromStr for VolumeAt {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<VolumeAt, &'static str> {
        // Names of snapshots have no `@`.
        match text.rsplit_once('@') {
            Some((volume, snapshot)) if !volume.is_empty() && !snapshot.is_empty() => {
                Ok(VolumeAt { volume: volume.to_owned(), snapshot: snapshot.to_owned() })
            }
            _ => Err("write VOLUME@SNAPSHOT, for example db@before-upgrade"),
        }
    }
}

/// Prints it: for people a line for each range, for programs a document for each page.
pub fn run(client: &Client, output: &Output, from: VolumeAt, to: Option<VolumeAt>) -> Result<(), CliError> {
    let mut query = query(from, to)?;
    let mut total = Total::default();
    loop {
        let page = client.snapshot_diff(&query)?;
        if output.is_for_people() {
            for range in &page.ranges {
                if total.ranges == 0 {
                    output.text(&format!("{}\n", row("OFFSET", "LENGTH", "CONTENT")))?;
                }
                total.add(range);
                output.line(range, shown)?;
            }
        } else {
            output.line(&page, |_| String::new())?;
        }
        match page.next {
            Some(next) => query.offset = next,
            None => return output.done(&total.text()),
        }
    }
}

fn query(from: VolumeAt, to: Option<VolumeAt>) -> Result<SnapshotDiffQuery, CliError> {
    let Some(to) = to else { return Err(CliError::DiffWithNow(from.volume)) };
    if from.volume != to.volume {
        return Err(CliError::DiffOfVolumes(from.volume, to.volume));
    }
    let (since, snapshot) = (Some(from.snapshot), to.snapshot);
    Ok(SnapshotDiffQuery { volume: to.volume, since, snapshot, offset: 0, limit: PAGE })
}

/// What was printed.
#[derive(Default)]
struct Total {
    ranges: u64,
    data: u64,
    zeroed: u64,
}

impl Total {
    fn add(&mut self, range: &ChangedRange) {
        self.ranges += 1;
        match range.zeroed {
            true => self.zeroed += range.len,
            false => self.data += range.len,
        }
    }

    fn text(&self) -> String {
        match self.ranges {
            0 => "The volume is the same in both snapshots.".into(),
            ranges => format!("Ranges: {ranges}. Data: {}, zeroed: {}.", size(self.data), size(self.zeroed)),
        }
    }
}

fn shown(range: &ChangedRange) -> String {
    let content = if range.zeroed { "zeroed" } else { "data" };
    row(&range.offset.to_string(), &range.len.to_string(), content)
}

/// The columns are as wide as the largest volume needs: lines are printed as they come.
fn row(offset: &str, len: &str, content: &str) -> String {
    format!("{offset:16}  {len:16}  {content}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> VolumeAt {
        text.parse().unwrap()
    }

    #[test]
    fn a_volume_in_a_snapshot_is_written_with_an_at_sign() {
        let both = at("db@before-upgrade");
        assert_eq!((both.volume.as_str(), both.snapshot.as_str()), ("db", "before-upgrade"));
        for text in ["db", "db@", "@before-upgrade", ""] {
            assert!(text.parse::<VolumeAt>().is_err(), "{text}");
        }
    }

    #[test]
    fn two_snapshots_of_one_volume_are_compared() {
        let query_of = |from: &str, to: Option<&str>| query(at(from), to.map(at));
        let wanted = query_of("db@a", Some("db@b")).unwrap();
        assert_eq!((wanted.since.as_deref(), wanted.snapshot.as_str(), wanted.offset), (Some("a"), "b", 0));
        let refused = query_of("db@a", Some("logs@b")).unwrap_err();
        assert!(matches!(refused, CliError::DiffOfVolumes(..)));
        let refused = query_of("db@a", None).unwrap_err().to_string();
        assert!(refused.contains("ursa snapshot create db"), "{refused}");
    }

    #[test]
    fn ranges_are_shown_in_bytes_and_summed_up() {
        let range = |offset, len, zeroed| ChangedRange { offset, len, zeroed };
        let mut total = Total::default();
        assert!(total.text().contains("same"));
        for range in [range(4096, 8192, false), range(1 << 30, 1 << 20, true)] {
            total.add(&range);
        }
        assert_eq!(total.text(), "Ranges: 2. Data: 8K, zeroed: 1M.");
        let shown = shown(&range(4096, 8192, false));
        assert_eq!(shown.split_whitespace().collect::<Vec<&str>>(), ["4096", "8192", "data"]);
    }
}
