//! Tests of the initiator against a small in-memory target, in both worlds of the runtime.

#![allow(clippy::unwrap_used)]

mod array;
mod faults;
mod limits;
mod load;
mod multipath;
mod ram_target;
mod reservations;
mod session;

use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use ram_target::RamTarget;
use rt::sim::World;
use rt::uring::{self, Running};

/// Runs `client` against `target` in the simulator.
fn simulated<T: 'static, F: Future<Output = T> + 'static>(
    seed: u64,
    target: RamTarget,
    client: impl FnOnce(SocketAddr) -> F + 'static,
) -> T {
    let world = World::new(seed);
    let server = world.add_node("target", 1, |_| std::future::pending());
    let address = SocketAddr::new(world.address(server), 3260);
    let _serving = world.spawn_on(server, rt::CoreId(0), move || target.serve(address));
    let machine = world.add_node("client", 1, |_| std::future::pending());
    world.block_on(machine, rt::CoreId(0), move || client(address))
}

/// Runs `client` against `target` on one core of this machine.
fn real<T: Send + 'static, F: Future<Output = T> + 'static>(
    target: RamTarget,
    client: impl Fn(SocketAddr) -> F + Send + Clone + 'static,
) -> T {
    let (done, result) = mpsc::channel();
    let config = uring::Config { processors: vec![0], pin: false, poll: Duration::ZERO };
    let running = Running::start(config, move |_| {
        let (done, client, target) = (done.clone(), client.clone(), target.clone());
        async move {
            let listener = rt::Listener::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
            let address = listener.local_address();
            rt::spawn(target.serve_at(listener)).detach();
            done.send(client(address).await).unwrap();
        }
    });
    running.unwrap().join();
    result.recv().unwrap()
}
