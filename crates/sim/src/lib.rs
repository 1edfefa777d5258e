//! Whole nodes under faults, with hosts doing I/O.
//!
//! The sessions, units, volumes, copies, stores and links of production run in one thread, on a virtual
//! clock, network and disks. A seed determines everything: [`Plan::from_seed`] turns it into a plan, and
//! [`run()`] executes the plan and panics if a check fails.
//!
//! | what must hold | checked by |
//! |---|---|
//! | A1 what hosts saw of each sector is linearizable | [`history`], by `load::hot` and `load::exchange` |
//! | A2, A8 acknowledged writes are on the disk of every copy in sync, and its logs open and are consistent | [`media`], at each power loss |
//! | A3 in one epoch, two copies that may serve reads have equal data; A4 where a copy in sync and another copy differ, a dirty map has a bit; A5 a node stops serving before others go on without it; A7 copies act only in configurations that the record has | [`inside`], every 25 ms; A3 and A4 of logs every 1.5 s |
//! | A5 a power loss causes no full resync, and needs no administrator | `run` |
//! | A6 epochs grow by one, and at least one copy is always in sync | [`onlooker`] |
//! | A10 a host that was fenced off changes nothing any more; answers about registrations stay true | `load::fence`, `load::registrant` |
//! | A11 COMPARE AND WRITE is atomic | [`exchanges`], by `load::exchange` |
//! | A12 an answered command is not undone by an earlier one, by whichever path that came | `load::own` |
//! | A13 when faults end, all copies come in sync; then copies are equal and dirty maps are empty | `run` |
//! | A14 no split brain occurs, and a copy that continues alone is in sync according to the record | [`onlooker`], [`inside`] |
//! | A15 a snapshot is one instant of all of its volumes, the same on all copies and forever; it is there if it was taken, and not if it was refused or deleted | [`snapshots`], [`onlooker`] |
//! | A16 a restore replaces all that its volumes hold by what the snapshot has, at one instant and on all copies, or nothing; it has happened if it was confirmed, and not if it was refused; what was there directly before is a snapshot, unless it is discarded | [`snapshots`], [`onlooker`], [`history`] |
//!
//! In half of the seeds the nodes keep the cluster's record themselves, by Raft. In the others it is the
//! simulator's own (`cluster::memory`): a node reaches it when, on the same network, it would reach a quorum
//! of Raft.

pub mod canary;
pub mod cluster;
pub mod exchanges;
pub mod floors;
pub mod harm;
pub mod history;
pub mod inside;
pub mod layout;
pub mod load;
pub mod logs;
pub mod media;
pub mod onlooker;
pub mod plan;
pub mod record;
pub mod replaced;
mod rot;
mod run;
pub mod snapshots;

pub use canary::Canary;
pub use plan::{PARTS, Plan};
pub use run::{Outcome, run};
