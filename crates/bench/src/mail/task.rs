//! The tasks of users, and the I/O of each.
//!
//! The day of 131 tasks is a published one: 80 messages received and read, 13 sent, 12 calendar tasks, 9
//! contacts tasks, and 17 others. Reads and writes of the tasks are fitted to what Microsoft has published
//! for the sizing of Exchange 2010 (pages of 32 KiB; with 100 messages a day 0.12 I/Os per second to the
//! databases in the busiest hours, three reads to two writes, and 20 log files of 1 MiB a day); a test checks
//! this.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Tasks of this kind out of [`PUBLISHED`].
    pub(crate) share: u32,
    /// Pages that are not in the server's memory. They are read one after the other, since each one says
    /// where the next is.
    pub(crate) reads: u32,
    /// Pages that change. They are written some time after the log.
    pub(crate) writes: u32,
    /// What must be in the log before the task is done, in KiB; zero if nothing changes.
    pub(crate) log_kib: u32,
}

/// Tasks of the published day.
pub(crate) const PUBLISHED: u32 = 131;

/// The index of "send mail" in [`KINDS`].
pub(crate) const SEND: usize = 1;

const fn kind(name: &'static str, share: u32, reads: u32, writes: u32, log_kib: u32) -> Kind {
    Kind { name, share, reads, writes, log_kib }
}

pub(crate) const KINDS: [Kind; 7] = [
    kind("receive and read", 80, 9, 6, 192),
    kind("send mail", 13, 8, 7, 192),
    kind("calendar", 12, 8, 4, 64),
    kind("contacts", 9, 6, 3, 32),
    kind("move or delete", 8, 5, 5, 32),
    kind("browse folders", 6, 12, 0, 0),
    kind("log on or off", 3, 10, 1, 4),
];

/// The kind of a task, by a random number below [`PUBLISHED`].
pub(crate) fn drawn(number: u64) -> usize {
    let mut end = 0;
    let found = KINDS.iter().position(|kind| {
        end += u64::from(kind.share);
        number < end
    });
    found.expect("the shares add up to all tasks")
}

/// The percentage of writes among the pages that are read or written.
pub(crate) fn write_percent() -> u8 {
    let [reads, writes] = pages();
    (100 * writes / (reads + writes)) as u8
}

/// Pages read and written by the tasks of the published day.
fn pages() -> [u32; 2] {
    let of = |pages: fn(&Kind) -> u32| KINDS.iter().map(|kind| kind.share * pages(kind)).sum();
    [of(|kind| kind.reads), of(|kind| kind.writes)]
}

const _: () = {
    let (mut at, mut sum) = (0, 0);
    while at < KINDS.len() {
        sum += KINDS[at].share;
        at += 1;
    }
    assert!(sum == PUBLISHED, "the shares are those of the published day");
};

#[cfg(test)]
mod tests {
    use super::*;

    /// 93 messages a day; the busiest hours have twice the average of a day of eight hours.
    #[test]
    fn the_day_is_what_was_published() {
        let [reads, writes] = pages();
        let busiest = 2.0 * f64::from(reads + writes) / (8.0 * 3600.0);
        assert!((busiest / (0.12 * 93.0 / 100.0) - 1.0).abs() < 0.15, "{busiest}");
        let share = f64::from(reads) / f64::from(reads + writes);
        assert!((share - 0.6).abs() < 0.03, "{share}");
        let log_kib: u32 = KINDS.iter().map(|kind| kind.share * kind.log_kib).sum();
        assert!((f64::from(log_kib) / 1024.0 / (20.0 * 93.0 / 100.0) - 1.0).abs() < 0.1, "{log_kib}");
    }

    #[test]
    fn tasks_are_drawn_by_their_shares() {
        let mut counts = [0; KINDS.len()];
        (0..u64::from(PUBLISHED)).for_each(|number| counts[drawn(number)] += 1);
        assert_eq!(counts, KINDS.map(|kind| kind.share));
        assert_eq!(KINDS[SEND].name, "send mail");
    }
}
