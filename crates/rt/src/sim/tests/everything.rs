//! All faults at once, in a world that is busy meanwhile.

use std::cell::Cell;
use std::future::pending;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, Rng, SendBatch};

use crate::sim::{Astray, DiskFaults, DiskLatency, FaultCounts, NetProfile, NodeId, NodeStatus, World};
use crate::{CoreId, Disk, Durability, Listener, OpenOptions, Stream, call, sleep, spawn, timeout};

const NODES: u32 = 3;

/// Serves all clients: 4096 bytes to write at an offset, then one byte as the answer.
async fn serve(core: CoreId, address: SocketAddr) {
    if core.0 != 0 {
        return pending().await;
    }
    let Ok(listener) = Listener::bind(address).await else { return pending().await };
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        spawn(call(CoreId((crate::random() % crate::cores() as u64) as u16), move || async move {
            let stream = stream.attach();
            while let Ok(buf) = stream.receive_exact(Buf::zeroed(4096), 0).await {
                let path = if buf[0] % 2 == 0 { "/disk" } else { "/file" };
                let answer = keep(path, u64::from(buf[1]) * 4096, buf).await;
                let mut batch = SendBatch::new();
                batch.push(&[u8::from(answer)]);
                if stream.send(batch).await.is_err() {
                    return;
                }
            }
        }))
        .detach();
    }
}

/// Writes, reads and flushes; returns whether all succeeded.
async fn keep(path: &str, offset: u64, buf: Buf) -> bool {
    let create = (path == "/file").then_some(1 << 20);
    let mut options = OpenOptions { create, ..OpenOptions::default() };
    let mut disk = Disk::open(path.as_ref(), options).await;
    if disk.is_err() {
        options.create = None;
        disk = Disk::open(path.as_ref(), options).await;
    }
    let Ok(disk) = disk else { return false };
    let durability = if buf[2].is_multiple_of(2) { Durability::Cached } else { Durability::Durable };
    let written = disk.write(offset, buf.share(), durability).await;
    written.is_ok() && disk.read(offset, Buf::zeroed(4096)).await.is_ok() && disk.flush().await.is_ok()
}

/// Writes to every node in turn until it is `over`.
async fn ask(servers: Rc<Vec<SocketAddr>>, over: Rc<Cell<bool>>) {
    while !over.get() {
        for address in servers.iter() {
            let Ok(stream) = Stream::connect(*address, Duration::from_secs(1)).await else { continue };
            let mut buf = [0; 4096];
            buf[..8].copy_from_slice(&crate::random().to_le_bytes());
            let mut batch = SendBatch::new();
            batch.push(&buf);
            if stream.send(batch).await.is_ok() {
                // Some wait forever.
                let patience = if crate::random().is_multiple_of(8) { 100_000 } else { 1 };
                drop(timeout(Duration::from_secs(patience), stream.receive_exact(Buf::zeroed(1), 0)).await);
            }
        }
        sleep(Duration::from_micros(crate::random() % 5000)).await;
    }
}

fn disturb(world: &World, rng: &mut Rng) {
    let (a, b) = (NodeId(rng.below(NODES.into()) as u32), NodeId(rng.below(u64::from(NODES) + 1) as u32));
    match (rng.below(16), world.status(a)) {
        (_, NodeStatus::Off | NodeStatus::Ended) => {
            let address = SocketAddr::new(world.address(a), 3260);
            world.restart(a, move |core| serve(core, address));
        }
        (0..8, NodeStatus::Paused) => world.resume(a),
        (_, NodeStatus::Paused) => world.resume_with_time_of_day(a),
        (0, _) => world.crash(a),
        (1, _) => world.kill(a),
        (2, _) => world.pause(a),
        (3..6, _) => world.cut_one_way(a, b),
        (6, _) => world.heal_all(),
        (7, _) => drop(world.break_connections(a, b)),
        (8, _) => world.set_disk_dead(a, "/disk", rng.one_in(2)),
        (9, _) => world.corrupt_disk(a, "/disk", 0..4096),
        (13, _) => world.lead_write_astray(a, "/disk", 0..1 << 20, Astray::Lost),
        (14, _) => world.lead_write_astray(a, "/disk", 0..1 << 19, Astray::Misdirected(1 << 19)),
        (10, _) => world.set_space(a, rng.one_in(2).then(|| rng.below(10) * 4096)),
        (11, _) => world.set_clock_drift(a, rng.below(400) as i32 - 200),
        (12, _) => world.freeze(a),
        (15, _) => match rng.below(3) {
            0 => world.leap_clock(a, Duration::from_millis(rng.below(5000))),
            1 => world.put_time_of_day_back(a, Duration::from_secs(rng.below(5000))),
            _ => world.put_time_of_day_forward(a, Duration::from_secs(rng.below(5000))),
        },
        (16.., _) => unreachable!("it is less than 16"),
    }
}

fn run(seed: u64) -> (u64, FaultCounts) {
    let world = World::new(seed);
    let mut rng = Rng::new(seed);
    world.set_net_profile(NetProfile { spike_one_in: 50, break_one_in: 500, ..NetProfile::default() });
    let servers: Vec<SocketAddr> =
        (1..=NODES).map(|n| SocketAddr::new([10, 0, 0, n as u8].into(), 3260)).collect();
    for address in &servers {
        let address = *address;
        let node = world.add_node("server", 3, move |core| serve(core, address));
        world.add_disk(node, "/disk", 1 << 20, 4096);
        let (read_error_one_in, write_error_one_in, flush_error_one_in) = (40, 40, 40);
        let faults =
            DiskFaults { read_error_one_in, write_error_one_in, flush_error_one_in, ..DiskFaults::default() };
        world.set_disk_faults(node, "/disk", faults);
        world.set_disk_latency(node, "/disk", DiskLatency { spike_one_in: 20, ..DiskLatency::default() });
    }
    let servers = Rc::new(servers);
    let over = Rc::new(Cell::new(false));
    let is_over = Rc::clone(&over);
    world.add_node("client", 4, move |core| {
        let (servers, over) = (Rc::clone(&servers), Rc::clone(&is_over));
        async move {
            ask(servers, over).await;
            // The end of core 0 would be the end of the node.
            if core.0 == 0 {
                pending().await
            }
        }
    });
    for _ in 0..200 {
        world.run_for(Duration::from_millis(rng.below(40)));
        disturb(&world, &mut rng);
    }
    over.set(true);
    world.run_for(Duration::from_secs(1500));
    (world.log_hash(), world.fault_counts())
}

#[test]
fn every_fault_happens_and_every_run_can_be_repeated() {
    let mut counts = FaultCounts::default();
    let mut hashes = Vec::new();
    for seed in 0..12 {
        let (hash, faults) = run(seed);
        if seed < 4 {
            assert_eq!((hash, &faults), (run(seed).0, &faults), "seed {seed}");
        }
        hashes.push(hash);
        counts.merge(&faults);
    }
    assert_eq!(counts.missing(), []);
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 12);
}
