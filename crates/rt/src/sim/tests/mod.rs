//! Tests of the simulated world.

mod cuts;
mod disks;
mod everything;
mod network;
mod nodes;

use std::future::pending;

use super::{NodeId, World};

/// A world with one node that does nothing on its own.
fn one_node(seed: u64) -> (World, NodeId) {
    let world = World::new(seed);
    let node = world.add_node("a", 2, |_| pending());
    (world, node)
}
