//! Scrubs, in words.

use api::{Scrub, ScrubState, VolumeScrub};
use terms::clock::utc;

use super::super::table::{fields, size};

/// The progress or result of a scrub of this volume.
pub(super) fn shown(volume: &str, scrub: &Scrub) -> String {
    let verdict = match scrub.state {
        ScrubState::Running => {
            format!("The scrub of volume {volume} is running: `ursa job list --node all` shows its progress.")
        }
        ScrubState::Interrupted => format!(
            "The scrub is interrupted ({}) and resumes automatically.",
            scrub.problem.as_deref().unwrap_or("unknown cause")
        ),
        ScrubState::Stopped => "The scrub was cancelled before everything was read.".to_owned(),
        ScrubState::Done => "Everything in use was read.".to_owned(),
    };
    let done = format!("{} of {} in {} s", size(scrub.done_bytes), size(scrub.total_bytes), scrub.took_s);
    let first = scrub.first_unrepaired.map(|lba| format!(", first LBA {lba}")).unwrap_or_default();
    let found = match (scrub.bad_blocks, scrub.unrepaired_blocks) {
        (0, _) => "none".to_owned(),
        (bad, 0) => format!("{bad}, all repaired"),
        (bad, unrepaired) => format!("{bad}, of which {unrepaired} CANNOT BE READ{first}"),
    };
    format!("{}\n{verdict}\n", fields([("Scrubbed", done), ("Bad blocks", found)]))
}

/// The result of the last scrub, and the time of the next one.
pub(super) fn last(scrub: &VolumeScrub) -> String {
    let outcome = match (scrub.stopped, scrub.bad_blocks, scrub.unrepaired_blocks) {
        (true, _, 0) => "cancelled".to_owned(),
        (true, _, unrepaired) => format!("cancelled, {} CANNOT BE READ", bad_blocks(unrepaired)),
        (_, 0, _) => "no bad blocks".to_owned(),
        (_, bad, 0) => format!("{}, all repaired", bad_blocks(bad)),
        (_, bad, unrepaired) => format!("{}, {unrepaired} CANNOT BE READ", bad_blocks(bad)),
    };
    let last = scrub.last.map_or_else(|| "never".to_owned(), |at| format!("{}: {outcome}", utc(at)));
    let next = match (scrub.done_bytes, scrub.overdue) {
        (Some(done), _) => format!("next in progress, {} done", size(done)),
        (None, true) => "OVERDUE".to_owned(),
        (None, false) => format!("next after {}", utc(scrub.next)),
    };
    format!("{last}; {next}")
}

pub(crate) fn bad_blocks(count: u64) -> String {
    format!("{count} bad {}", if count == 1 { "block" } else { "blocks" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_a_scrub_is_shown() {
        let scrub = Scrub {
            state: ScrubState::Done,
            total_bytes: 1 << 30,
            done_bytes: 1 << 30,
            bad_blocks: 3,
            repaired_blocks: 1,
            unrepaired_blocks: 2,
            first_unrepaired: Some(40),
            problem: None,
            age_s: 9,
            took_s: 9,
        };
        let text = shown("db", &scrub);
        assert!(text.contains("3, of which 2 CANNOT BE READ, first LBA 40"), "{text}");
        assert!(text.contains("Everything in use was read."), "{text}");
        let text = shown("db", &Scrub { state: ScrubState::Running, bad_blocks: 0, ..scrub });
        assert!(text.contains("none") && text.contains("is running"), "{text}");
    }

    #[test]
    fn the_last_and_the_next_scrub_are_shown() {
        let never = VolumeScrub {
            last: None,
            stopped: false,
            bad_blocks: 0,
            unrepaired_blocks: 0,
            done_bytes: None,
            next: 1_800_000_000,
            overdue: false,
        };
        assert!(last(&never).starts_with("never; next after "), "{}", last(&never));
        let found = VolumeScrub { last: Some(1_790_000_000), bad_blocks: 2, ..never };
        assert!(last(&found).contains(": 2 bad blocks, all repaired; next after "), "{}", last(&found));
        let one = VolumeScrub { bad_blocks: 1, done_bytes: Some(1 << 20), ..found.clone() };
        assert!(last(&one).contains(": 1 bad block, all repaired; next in progress, "), "{}", last(&one));
        // What an earlier one has left.
        let cancelled = VolumeScrub { stopped: true, unrepaired_blocks: 2, ..found.clone() };
        let text = last(&cancelled);
        assert!(text.contains(": cancelled, 2 bad blocks CANNOT BE READ; next after "), "{text}");
        let overdue = VolumeScrub { overdue: true, ..found };
        assert!(last(&overdue).ends_with("; OVERDUE"), "{}", last(&overdue));
    }
}
