//! `ursa bench`: load, and figures that users of this field recognise.
//!
//! [`Workload`] is a pattern in DISKSPD's terms, [`Target`] what it is used on. The `engine` carries patterns
//! out on the cores of a runtime, real or simulated; `driver` starts it on this machine, watches it from
//! outside and makes a [`record`] of it; `report` shows records.
//!
//! Honest by construction: what is measured begins after the warm-up and ends with the last answer; requests
//! under way at the end count with their latency; open-loop requests count from when they were due; data is
//! unique, so that nothing is won by compression that was not asked for; a target that is lost in mid-run is
//! reported with what was lost.

mod arrivals;
mod ceiling;
mod content;
mod device;
mod driver;
mod engine;
mod error;
mod knee;
mod latency;
mod ledger;
mod machine;
mod mail;
mod pack;
mod quantity;
mod ratio;
pub mod record;
mod recorder;
pub mod report;
mod saturation;
mod sequence;
mod target;
mod workload;

pub use ceiling::{Disks, RawDisk};
pub use content::{Content, InvalidContent};
pub use device::{Failure, NoWay};
pub use driver::{Driver, Progress, Setup, Watch};
pub use engine::{Misfit, Phase};
pub use error::Error;
pub use knee::{Point, knee};
pub use latency::Latency;
pub use mail::{LATE, MailProfile, MailProfileError, Role};
pub use pack::{PACKS, Pack};
pub use quantity::{grouped, micros, short_size};
pub use ratio::Ratio;
pub use saturation::{gains, has_stopped_growing, saturation};
pub use target::{InvalidTarget, PORT, PortalName, Target, UnitUrl};
pub use workload::{Access, BLOCK_BYTES_MAX, DEPTH_MAX, THREADS_MAX, Workload, WorkloadError};
