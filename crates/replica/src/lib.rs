//! The replication protocol without any I/O: the order of writes to the copies of a volume, and what each
//! copy may do.
//!
//! [`Replica`] is one copy of one slice. [`Membership`] decides in which configuration of the volume a node
//! acts, [`Leases`] who may answer reads, [`Config`] how a configuration may change, and [`MembershipPolicy`]
//! which change a node proposes. Time, messages, completed writes and configurations go in; messages, writes
//! and answers come out. The driver carries out what comes out and reports back.
//!
//! The protocol is Hermes (ASPLOS 2020), extended for disks: restarts, power loss, copies that return. Its
//! rules R1 to R27 and the reasons for them are in `docs/why/replication.md`; rule names in comments refer to
//! that page.

mod blocks;
pub mod canary;
mod config;
mod dirty_map;
mod id;
mod lease;
mod media;
mod membership;
mod membership_policy;
mod message;
mod regions;
mod replica;
mod table;
mod timestamp;
pub mod wire;
#[cfg(test)]
mod world;

pub use blocks::{Blocks, Digest, Geometry, Payload};
pub use config::{Config, CopyState, Refusal, Standing};
pub use dirty_map::{Damaged, DirtyMap, PAGE_BYTES, PAGE_REGIONS, PageWrite};
pub use id::{Epoch, Incarnation, NodeId, Revision, Slot, Slots};
pub use lease::{LEASE_LENGTH, LeaseGrant, LeaseRequest, Leases, Terms};
pub use media::{Apply, ApplyId, ApplyKind};
pub use membership::{Activation, BEYOND_RECORD, Membership};
pub use membership_policy::{MembershipPolicy, Proposal, Reason, SILENCE_MAX, View};
pub use message::{Envelope, LostBlocks, LostUnits, Message, ProbeId, RoundId, SyncId};
pub use regions::Regions;
pub use replica::{
    Around, Command, Confirmation, Confirmed, DiskFailed, DiskFault, LOST_UNIT, LOST_UNITS_MAX, NotAround,
    Outcome, Output, ReadMark, Receivers, RegionCompare, RegionRead, Replica, SyncFrom, SyncNext, SyncState,
    TICK, Unreadable, Unwritable, VALIDATE_AFTER,
};
pub use timestamp::Timestamp;
