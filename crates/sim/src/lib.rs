//! Whole nodes under faults, with hosts at work: sessions, units, volumes, copies, stores and links of
//! production, in one thread, on a virtual clock, network and disks. Everything follows from a seed:
//! [`Plan::from_seed`] says what it means, [`run`] carries it out and panics if something is not as it must
//! be.
//!
//! | what must be | checked by |
//! |---|---|
//! | A1 what hosts saw of each sector is linearizable | [`history`], by `load::hot` and `load::exchange` |
//! | A2, A8 what was acknowledged is on the disk of every copy in sync | [`media`], at each power loss |
//! | A3 what two copies would give to hosts in one epoch is equal; A4 where a copy in sync and another differ a bit says so; A5 nobody serves while others have gone on without it; A7 copies act in what the record has | [`inside`], every 25 ms |
//! | A5 no power loss makes anybody copy everything, or ask somebody | `run` |
//! | A6 epochs grow by one; somebody is always in sync | [`onlooker`] |
//! | A10 who was fenced off changes nothing any more; what was answered of registrations stays | `load::fence`, `load::registrant` |
//! | A11 COMPARE AND WRITE is one step | [`exchanges`], by `load::exchange` |
//! | A12 what was answered is not undone by what came before it, by whichever path | `load::own` |
//! | A13 all come in sync when nothing fails any more; then copies are equal and dirty maps empty | `run` |
//! | A14 no volume is split, and who continues alone is in sync by the record | [`onlooker`], [`inside`] |
//!
//! The cluster's record is kept by the nodes, by Raft, in half of the seeds, and in the others it is the
//! simulator's own (`cluster::memory`): who reaches it is what Raft would make of the network.

pub mod canary;
pub mod cluster;
pub mod exchanges;
pub mod floors;
pub mod harm;
pub mod history;
pub mod inside;
pub mod layout;
pub mod load;
pub mod media;
pub mod onlooker;
pub mod plan;
pub mod record;
mod rot;
mod run;

pub use canary::Canary;
pub use plan::{PARTS, Plan};
pub use run::{Outcome, run};
