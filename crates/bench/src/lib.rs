//! `ursa bench`: generates load, and reports figures that users of storage benchmarks recognize.
//!
//! A [`Workload`] is a pattern in DISKSPD's terms, and a [`Target`] is what it runs on. The `engine` executes
//! patterns on the cores of a runtime, real or simulated; `driver` starts it on this machine, observes it
//! from outside and creates a [`record`] of it; `report` shows records.
//!
//! The measurement is honest by design: it begins after the warm-up and ends with the last answer; requests
//! under way at the end count with their latency; the latency of open-loop requests counts from when they
//! were due; data is unique, so that compression gains nothing unless the user asked for compressible data; a
//! target that is lost during a run is reported, with what was lost.

mod arrivals;
mod ceiling;
mod coarse;
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
pub use workload::{
    Access, BLOCK_BYTES_MAX, DEPTH_MAX, InvalidShare, Share, THREADS_MAX, Workload, WorkloadError,
};
