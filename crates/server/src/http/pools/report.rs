//! Pools as nodes report them to each other: figures, codes and facts. The node that is asked words them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ::node::control::{NotEmptied, PoolFault, PoolState as Open, PoolStatus};
use api::{DiskFailure, DiskLeaving, Overcommit, Pool, PoolDisk, PoolLogs, PoolScrub, PoolState};
use serde::{Deserialize, Serialize};
use store::MetadataState;

/// A pool, as its node reports it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::http) struct PoolReport {
    /// The pool, without anything that is worded from the rest of the report.
    pool: Pool,
    /// Why it is not open.
    fault: Option<PoolFault>,
    /// Its disks that are out of service.
    failed: Vec<FailedDisk>,
    /// Why the disk that is leaving it makes no progress.
    stuck: Option<NotEmptied>,
}

/// A disk that is out of service.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct FailedDisk {
    path: PathBuf,
    /// The system's error number.
    errno: i32,
    /// In seconds since 1970.
    since: u64,
}

impl PoolReport {
    /// What a node reports about a pool of its own.
    pub(super) fn of(status: &PoolStatus, node: u16, node_name: String) -> PoolReport {
        let PoolStatus { name, paths, state } = status;
        let (name, fault) = (name.clone(), state.as_ref().err().map(PoolFault::from));
        match state {
            Ok(open) => PoolReport {
                pool: open_pool(name, open, node, node_name),
                fault,
                failed: failed_disks(open),
                stuck: open.leaving.as_ref().and_then(|leaving| leaving.problem.clone()),
            },
            Err(_) => {
                let pool = closed_pool(name, paths, node, node_name);
                PoolReport { pool, fault, failed: Vec::new(), stuck: None }
            }
        }
    }

    /// The pool in words.
    pub(in crate::http) fn shown(self) -> Pool {
        let PoolReport { mut pool, fault, failed, stuck } = self;
        let error = |disk: &FailedDisk| io::Error::from_raw_os_error(disk.errno).to_string();
        let reasons: Vec<String> = failed
            .iter()
            .map(|disk| format!("write error on {}: {}", disk.path.display(), error(disk)))
            .collect();
        let failures = (!reasons.is_empty()).then(|| reasons.join("; "));
        pool.reason = fault.map(|fault| fault.to_string()).or(failures);
        for disk in &mut pool.disks {
            let failure = failed.iter().find(|failed| text(&failed.path) == disk.path);
            disk.failure = failure.map(|failed| DiskFailure { error: error(failed), since: failed.since });
            if let Some(leaving) = &mut disk.leaving {
                leaving.problem = stuck.as_ref().map(ToString::to_string);
            }
        }
        pool
    }
}

fn failed_disks(open: &Open) -> Vec<FailedDisk> {
    // The result is out of range if the clock was set back; that must not panic.
    let since = |age| SystemTime::now().checked_sub(age)?.duration_since(UNIX_EPOCH).ok();
    let mut failed: Vec<FailedDisk> = open
        .failed
        .iter()
        .map(|disk| FailedDisk {
            path: disk.path.clone(),
            errno: disk.errno,
            since: since(disk.age).unwrap_or_default().as_secs(),
        })
        .collect();
    failed.sort_by(|one, other| one.path.cmp(&other.path));
    failed
}

fn closed_pool(name: String, paths: &[PathBuf], node: u16, node_name: String) -> Pool {
    let disk = |path: &PathBuf| PoolDisk {
        path: text(path),
        id: None,
        total: 0,
        free: 0,
        failure: None,
        leaving: None,
    };
    Pool {
        name,
        id: None,
        state: PoolState::Unavailable,
        reason: None,
        total: 0,
        free: 0,
        used: 0,
        logs: None,
        extent: 0,
        volumes: 0,
        disks: paths.iter().map(disk).collect(),
        promised: 0,
        overcommit: None,
        scrub: None,
        node,
        node_name,
    }
}

fn open_pool(name: String, open: &Open, node: u16, node_name: String) -> Pool {
    let leaving = |path: &Path| {
        let leaving = open.leaving.as_ref().filter(|leaving| leaving.path == path)?;
        Some(DiskLeaving { left: leaving.left.0, problem: None })
    };
    let disk = |disk: &store::DiskUsage| PoolDisk {
        path: text(&disk.path),
        id: Some(disk.id.to_string()),
        total: disk.total.0,
        free: disk.free.0,
        failure: None,
        leaving: leaving(&disk.path),
    };
    let logs = open.filling.map(|filling| PoolLogs {
        lent: filling.space.lent,
        used: filling.space.live,
        reserved: filling.space.reserved,
        snapshots: filling.space.snapshots,
        freeing: filling.space.freeing,
        room: filling.space.room,
        percent: filling.percent(),
        level: filling.level,
    });
    let has_failed = !open.failed.is_empty();
    Pool {
        name,
        used: open.used(),
        logs,
        id: Some(open.id.clone()),
        state: match open.metadata {
            MetadataState::Writable | MetadataState::Failed if has_failed => PoolState::DiskFailed,
            MetadataState::Writable => PoolState::Online,
            MetadataState::Failed => PoolState::ReadOnly,
            MetadataState::Exported => PoolState::Exported,
        },
        reason: None,
        total: open.usage.total.0,
        free: open.usage.free.0,
        extent: open.usage.extent.0,
        volumes: open.volumes,
        disks: open.usage.disks.iter().map(disk).collect(),
        promised: open.promised,
        overcommit: open.overcommit.as_ref().map(|of| Overcommit { promised: of.promised, free: of.free }),
        scrub: Some(PoolScrub {
            oldest: open.scrubs.oldest,
            unrepaired_blocks: open.scrubs.unrepaired,
            unfinished: open.scrubs.unfinished,
        }),
        node,
        node_name,
    }
}

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> PoolReport {
        let paths = [PathBuf::from("/dev/sdb"), PathBuf::from("/dev/sdc")];
        let pool = closed_pool("main".into(), &paths, 2, "san2".into());
        PoolReport { pool, fault: None, failed: Vec::new(), stuck: None }
    }

    /// As the node that asked shows it; and what was sent.
    fn sent(report: &PoolReport) -> (Pool, String) {
        let sent = serde_json::to_string(report).unwrap();
        (serde_json::from_str::<PoolReport>(&sent).unwrap().shown(), sent)
    }

    #[test]
    fn a_pool_of_another_node_is_worded_here() {
        let fault = Some(PoolFault::DiskUnopened { path: "/dev/sdb".into(), errno: 2 });
        let (pool, sent_closed) = sent(&PoolReport { fault, ..report() });
        let reason = "/dev/sdb cannot be opened: No such file or directory (os error 2)";
        assert_eq!(pool.reason.as_deref(), Some(reason));

        let failed = vec![FailedDisk { path: "/dev/sdc".into(), errno: 5, since: 9 }];
        let (pool, sent_failed) = sent(&PoolReport { failed, ..report() });
        let error = "Input/output error (os error 5)";
        assert_eq!(pool.reason, Some(format!("write error on /dev/sdc: {error}")));
        assert_eq!(pool.disks[1].failure, Some(DiskFailure { error: error.into(), since: 9 }));
        assert_eq!(pool.disks[0].failure, None);

        let mut leaves = PoolReport { stuck: Some(NotEmptied::VolumeNotHeld("ab".into())), ..report() };
        leaves.pool.disks[0].leaving = Some(DiskLeaving { left: 7, problem: None });
        let (pool, sent_stuck) = sent(&leaves);
        let leaving = pool.disks[0].leaving.as_ref().unwrap();
        assert!(leaving.problem.as_deref().unwrap().starts_with("volume ab cannot be moved"), "{leaving:?}");
        assert_eq!(pool.disks[1].leaving, None);

        for sent in [sent_closed, sent_failed, sent_stuck] {
            assert!(["cannot", "error on", "os error"].iter().all(|words| !sent.contains(words)), "{sent}");
        }
    }
}
