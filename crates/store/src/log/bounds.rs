//! How much the recovery of a log may have to read.

use super::LogTuning;
use super::space::ANNOUNCED_EXTRA;

/// How many segments a log replays by [`LogTuning::scan_bytes_all`] at most. A root announces 92, and some of
/// these are not for hosts' data.
const SEGMENTS_MAX: u64 = 64;

/// A log replays more only as long as the maps of all logs of the pool together have no more leaves than
/// this.
///
/// A recovery reads and writes all leaves that it changes: 300 MB each. In a larger map, each change is one
/// of another leaf, however many there are, so more of them between two checkpoints save little.
const LEAVES_ALL: usize = 64 << 10;

/// How many bytes of records a log may have to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayBounds {
    bytes: u64,
    /// The same as long as the map has no more leaves than `leaves`.
    bytes_of_small_map: u64,
    leaves: usize,
}

impl ReplayBounds {
    /// Those of each of this many logs of a pool, with segments of `segment` bytes.
    pub(crate) fn new(tuning: &LogTuning, logs: usize, segment: u64) -> ReplayBounds {
        let logs = logs.max(1);
        let part = (tuning.scan_bytes_all / logs as u64).saturating_sub(ANNOUNCED_EXTRA * segment);
        ReplayBounds {
            bytes: tuning.replay_bytes,
            bytes_of_small_map: tuning.replay_bytes.max(part.min(SEGMENTS_MAX * segment)),
            leaves: LEAVES_ALL / logs,
        }
    }

    /// The bytes for a log whose map has this many leaves.
    pub(super) fn bytes(self, leaves: usize) -> u64 {
        if leaves <= self.leaves { self.bytes_of_small_map } else { self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn mib(logs: usize, segment_mib: u64, leaves: usize) -> u64 {
        ReplayBounds::new(&LogTuning::default(), logs, segment_mib * MIB).bytes(leaves) / MIB
    }

    #[test]
    fn few_logs_with_small_maps_replay_more_each() {
        assert_eq!([1, 2, 3, 4, 8, 64].map(|logs| mib(logs, 64, 0)), [1024, 320, 256, 256, 256, 256]);
        assert_eq!([1, 2, 3, 4, 8, 64].map(|logs| mib(logs, 16, 0)), [1024, 608, 373, 256, 256, 256]);
        assert_eq!([1, 2, 4, 8, 16].map(|segment| mib(1, segment, 0)), [256, 256, 256, 512, 1024]);
        assert_eq!([LEAVES_ALL, LEAVES_ALL + 1].map(|leaves| mib(1, 64, leaves)), [1024, 256]);
        assert_eq!([LEAVES_ALL / 2, LEAVES_ALL / 2 + 1].map(|leaves| mib(2, 16, leaves)), [608, 256]);
    }

    /// What a recovery scans, and the leaves that it reads and writes, on a disk of 500 MB/s.
    #[test]
    fn what_few_logs_may_replay_takes_less_than_five_seconds() {
        const LEAF_BYTES: u64 = 4736;
        for segment in [8, 16, 32, 64] {
            for logs in 1..=2 {
                let scanned = logs as u64 * (mib(logs, segment, 0) + ANNOUNCED_EXTRA * segment) * MIB;
                let merged = 2 * LEAVES_ALL as u64 * LEAF_BYTES;
                assert!(scanned + merged < 5 * 500_000_000, "{logs} logs, segments of {segment} MiB");
            }
        }
    }
}
