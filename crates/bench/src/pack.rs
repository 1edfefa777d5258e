//! The patterns of published tests, by name.

use crate::{Access, Workload};

/// A list of patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    patterns: &'static [Pattern],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pattern {
    kib: u32,
    random: bool,
    write_percent: u8,
    threads: u32,
    depth: u32,
}

const fn random(kib: u32, write_percent: u8, threads: u32, depth: u32) -> Pattern {
    Pattern { kib, random: true, write_percent, threads, depth }
}

const fn sequential(kib: u32, write_percent: u8, threads: u32, depth: u32) -> Pattern {
    Pattern { kib, random: false, write_percent, threads, depth }
}

/// All packs.
pub const PACKS: &[Pack] = &[
    Pack {
        name: "hci-12",
        about: "hyperconverged clusters of twelve servers: 4K random 100/0, 90/10, 70/30; 2M sequential read, write",
        patterns: &[
            random(4, 0, 2, 32),
            random(4, 10, 2, 32),
            random(4, 30, 2, 32),
            sequential(2048, 0, 1, 8),
            sequential(2048, 100, 1, 8),
        ],
    },
    Pack {
        name: "nvme-4",
        about: "four servers with NVMe disks: 4K and 64K random read, write; 8K random 70/30; 1M sequential read",
        patterns: &[
            random(4, 0, 4, 32),
            random(4, 100, 4, 32),
            random(64, 0, 4, 8),
            random(64, 100, 4, 8),
            random(8, 30, 4, 32),
            sequential(1024, 0, 1, 8),
        ],
    },
    Pack {
        name: "sql",
        about: "SQL Server: 8K, 64K and 128K, random and sequential, depth 1 and 8, read and write",
        patterns: &SQL,
    },
];

/// All combinations, the small requests first.
const SQL: [Pattern; 24] = {
    let mut patterns = [random(8, 0, 1, 1); 24];
    let sizes = [8, 64, 128];
    let mut at = 0;
    while at < 24 {
        let write_percent = if at % 2 == 0 { 0 } else { 100 };
        let depth = if at / 2 % 2 == 0 { 1 } else { 8 };
        let kib = sizes[at / 8];
        patterns[at] = match at / 4 % 2 {
            0 => random(kib, write_percent, 1, depth),
            _ => sequential(kib, write_percent, 1, depth),
        };
        at += 1;
    }
    patterns
};

impl Pack {
    /// The pack of this name.
    pub fn find(name: &str) -> Option<Pack> {
        PACKS.iter().copied().find(|pack| pack.name == name)
    }

    /// Its patterns, with everything else as in `like`.
    pub fn workloads(&self, like: &Workload) -> Vec<Workload> {
        let workload = |pattern: &Pattern| {
            let block = pattern.kib << 10;
            let access = match pattern.random {
                true => Access::Random { align: block.into() },
                false => Access::Sequential { stride: block.into(), interlocked: false },
            };
            Workload {
                block,
                access,
                write_percent: pattern.write_percent,
                threads: pattern.threads,
                depth: pattern.depth,
                ..like.clone()
            }
        };
        self.patterns.iter().map(workload).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pack: &str) -> Vec<String> {
        let workloads = Pack::find(pack).unwrap().workloads(&Workload::default());
        assert!(workloads.iter().all(|workload| workload.check().is_ok()));
        workloads.iter().map(Workload::to_string).collect()
    }

    #[test]
    fn packs_have_the_published_patterns() {
        assert_eq!(
            names("hci-12"),
            [
                "4K random read, 2 x 32",
                "4K random 90/10, 2 x 32",
                "4K random 70/30, 2 x 32",
                "2M sequential read, 1 x 8",
                "2M sequential write, 1 x 8"
            ]
        );
        assert_eq!(names("nvme-4").len(), 6);
        assert_eq!(Pack::find("hci"), None);
    }

    #[test]
    fn databases_combine_everything() {
        let mut sql = names("sql");
        assert_eq!(
            sql[..4],
            [
                "8K random read, 1 x 1",
                "8K random write, 1 x 1",
                "8K random read, 1 x 8",
                "8K random write, 1 x 8"
            ]
        );
        assert_eq!(sql[23], "128K sequential write, 1 x 8");
        sql.sort();
        sql.dedup();
        assert_eq!(sql.len(), 24);
    }
}
