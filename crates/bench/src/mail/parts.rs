//! Which part of which target holds a database, and which holds the log.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::PAGE_BYTES;
use crate::engine::Misfit;
use crate::sequence::Region;

/// The purpose of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Half of the users' mailboxes.
    Database1,
    /// The other half.
    Database2,
    /// The logs of both databases.
    Log,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Database1 => "database 1",
            Role::Database2 => "database 2",
            Role::Log => "log",
        })
    }
}

/// A part of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) role: Role,
    /// The number of the target.
    pub(crate) place: usize,
    pub(crate) region: Region,
}

/// The smallest database: four times as many pages as tasks may request at once.
const DATABASE_BYTES_MIN: u64 = 4 * super::WORKERS as u64 * PAGE_BYTES as u64;
/// The smallest log: some of the largest writes.
const LOG_BYTES_MIN: u64 = 16 << 20;
/// The log's share of a target that holds all three: one part in this number.
const LOG_SHARE: u64 = 8;

/// The parts of one to three targets.
///
/// Three targets are the databases and the log. Of two, the first is divided into the databases and the
/// second is the log. One is divided into all three.
///
/// # Errors
/// [`Misfit::SmallPart`] and the number of the target.
pub(crate) fn parts(regions: &[Region]) -> Result<[Part; 3], (usize, Misfit)> {
    let halves = |region: Region| {
        let half = whole_pages(region.len / 2);
        let rest = Region { start: region.start + half, len: region.len - half };
        [Region { start: region.start, len: half }, rest]
    };
    let [first, second, log] = match *regions {
        [only] => {
            let databases = whole_pages(only.len - only.len / LOG_SHARE);
            let [first, second] = halves(Region { start: only.start, len: databases });
            let log = Region { start: only.start + databases, len: only.len - databases };
            [(0, first), (0, second), (0, log)]
        }
        [databases, log] => {
            let [first, second] = halves(databases);
            [(0, first), (0, second), (1, log)]
        }
        [first, second, log] => [(0, first), (1, second), (2, log)],
        _ => unreachable!("the command line takes one to three targets"),
    };
    for ((place, region), (what, min)) in [first, second, log].into_iter().zip([
        ("a database", DATABASE_BYTES_MIN),
        ("a database", DATABASE_BYTES_MIN),
        ("the log", LOG_BYTES_MIN),
    ]) {
        if region.len < min {
            return Err((place, Misfit::SmallPart { what, bytes: region.len, min }));
        }
    }
    let part = |role, (place, region)| Part { role, place, region };
    Ok([part(Role::Database1, first), part(Role::Database2, second), part(Role::Log, log)])
}

fn whole_pages(bytes: u64) -> u64 {
    bytes - bytes % u64::from(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn targets_are_split_if_there_are_too_few() {
        let region = Region { start: 0, len: GIB };
        let places = |regions: &[Region]| parts(regions).unwrap().map(|part| (part.place, part.region.len));
        assert_eq!(places(&[region; 3]), [(0, GIB), (1, GIB), (2, GIB)]);
        assert_eq!(places(&[region; 2]), [(0, GIB / 2), (0, GIB / 2), (1, GIB)]);
        let [first, second, log] = parts(&[region]).unwrap().map(|part| part.region);
        assert_eq!((first.start, first.len), (0, GIB / 16 * 7));
        assert_eq!((second.start, second.len), (GIB / 16 * 7, GIB / 16 * 7));
        assert_eq!((log.start, log.len), (GIB / 8 * 7, GIB / 8));
    }

    #[test]
    fn parts_that_are_too_small_are_refused() {
        let small = Region { start: 0, len: 64 << 20 };
        let region = Region { start: 0, len: GIB };
        assert!(matches!(
            parts(&[small]),
            Err((0, Misfit::SmallPart { what: "a database", bytes: 29_360_128, min: 33_554_432 }))
        ));
        let tiny = Region { start: 0, len: 8 << 20 };
        assert!(matches!(parts(&[region, tiny]), Err((1, Misfit::SmallPart { what: "the log", .. }))));
    }
}
