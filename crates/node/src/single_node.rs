//! For tests: a node on a simulated machine of its own.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;

use rt::CoreId;
use rt::sim::{NodeId, World};

use crate::config::RecordEngine;
use crate::{Config, StartSpec};

/// A node that serves, without pools, and its machine.
pub(crate) fn single_node(cores: usize) -> (World, NodeId) {
    let world = World::new(1);
    let server = world.add_machine("server", cores);
    let portals = vec![SocketAddr::new(world.address(server), 3260)];
    let record = RecordEngine::Memory(cluster::memory::Memory::new(cluster::NodeId::new(1)));
    let config = Arc::new(Config { data_dir: "/ursa".into(), portals, record, ..Config::default() });
    let (ready, started) = rt::sync::oneshot();
    let start = Cell::new(Some((StartSpec::default(), ready)));
    world.restart(server, move |core| {
        let start = (core == CoreId(0)).then(|| start.take()).flatten();
        crate::run(Arc::clone(&config), start)
    });
    world.wait_for(started).expect("the node answers").expect("it starts");
    (world, server)
}
