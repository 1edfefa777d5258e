//! The world of tests: many nodes in one thread, on a virtual clock, network and disks, all from a seed.
//!
//! A [`World`] has nodes; each has cores that run the same code as in production, disks at paths, and
//! addresses on a network. Something only happens while the world is run ([`World::run_for`],
//! [`World::block_on`] …); then virtual time advances from one event to the next without waiting. Whatever
//! production leaves open is drawn from the seed: the order in which cores run, how long disks and packets
//! take, where streams of bytes are split, what a power cut leaves on a disk. Two runs of one scenario with
//! one seed are identical, event by event: compare [`World::log_hash`].
//!
//! ```
//! use std::path::Path;
//! use base::Buf;
//! use rt::{CoreId, Disk, Durability, sim::World};
//!
//! let world = World::new(7);
//! let node = world.add_node("a", 1, |_| std::future::pending());
//! world.add_disk(node, "/disk", 1 << 20, 512);
//! world.block_on(node, CoreId(0), || async {
//!     let disk = Disk::open(Path::new("/disk"), Default::default()).await.unwrap();
//!     disk.write(0, Buf::copy_of(&[1; 512]).share(), Durability::Cached).await.unwrap();
//!     disk.flush().await.unwrap();
//! });
//! world.crash(node);
//! assert_eq!(world.disk_image(node, "/disk").allocated_bytes(), 4096);
//! ```

mod clock;
mod crash;
mod disk;
mod fault;
mod image;
mod ledger;
pub mod linear;
mod log;
mod net;
mod node;
mod recording;
#[cfg(test)]
mod tests;
mod universe;
mod world;

pub use clock::{CALENDAR_START, DRIFT_PPM_MAX};
pub use crash::{Cut, Subsets, for_each_cut};
pub use disk::{Astray, Disk, DiskFaults, DiskLatency, SECTOR, SharedDisk};
pub use fault::{Fault, FaultCounts};
pub use image::DiskImage;
pub use net::{DetachedStream, Listener, NetProfile, Received, Stream};
pub use node::{NodeId, NodeStatus};
pub use recording::Recording;
pub use world::{IDLE_LIMIT, World};

/// Whether the current core belongs to a simulated world.
pub fn is_current() -> bool {
    universe::is_current()
}
