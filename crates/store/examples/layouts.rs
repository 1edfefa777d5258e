//! Writes blocks of 4 KiB, durably and at random, to a thick and to a log-structured volume of one pool, in
//! turns: at depth 1 and 32. `cargo run --release -p store --example layouts -- FILE [SECONDS]`, where FILE
//! is made and removed again.

#![allow(clippy::unwrap_used, reason = "it is run by hand")]

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use base::{BlockSize, Buf, ByteLen, ByteOffset, Chain, Rng};
use rt::uring::{Config, Running};
use rt::{CoreId, Durability};
use store::{CreateOptions, Host, HostId, NewDisk, Pool, RamBudget, Slice, VolumeKind, VolumeSpec};

const BLOCK: u64 = 4096;
const VOLUME_BYTES: u64 = 1 << 30;
const POOL_BYTES: u64 = 4 << 30;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().expect("a file to be made"));
    let seconds = arguments.next().map_or(3, |seconds| seconds.parse().expect("seconds"));
    let config = Config { processors: vec![0], pin: false, poll: Duration::ZERO };
    let (ended, end) = mpsc::channel();
    let file = path.clone();
    let main = move |_: CoreId| {
        let (ended, file) = (ended.clone(), file.clone());
        async move {
            compare(file, seconds).await;
            let _ = ended.send(());
        }
    };
    let running = Running::start(config, main).expect("a ring");
    end.recv().expect("it ends");
    running.join();
    let _ = std::fs::remove_file(path);
}

async fn compare(path: PathBuf, seconds: u64) {
    let disk = NewDisk { path, create: Some(ByteLen(POOL_BYTES)), reserve: false };
    let host = Host { id: HostId([1; 16]), name: "layouts".into() };
    let ram = RamBudget::new(ByteLen(0));
    let options = CreateOptions { name: "layouts".into(), host, extent: None, wipe: false, ram };
    let pool = Pool::create(vec![disk], options).await.unwrap();
    let disks = pool.share_disks().attach();
    let mut volumes = Vec::new();
    for (name, kind) in [("thick", VolumeKind::Thick), ("log", VolumeKind::Log)] {
        let spec = VolumeSpec {
            name: name.into(),
            kind,
            block_size: BlockSize::B4096,
            physical_exponent: 0,
            capacity: ByteLen(VOLUME_BYTES),
            slices: Some(1),
            created: 0,
            id: None,
            copy: None,
        };
        let id = pool.create_volume(spec).await.unwrap().id;
        let spec = pool.volume_slices(id, CoreId(0), 1).unwrap().remove(0);
        let slice = Rc::new(spec.open(&disks));
        slice.ready().await.unwrap();
        fill(&slice).await;
        volumes.push((name, slice));
    }
    for depth in [1, 32] {
        for _ in 0..3 {
            for (name, slice) in &volumes {
                let (count, mut latencies) = write(slice, depth, Duration::from_secs(seconds)).await;
                latencies.sort_unstable();
                let at = |permille: usize| latencies[(latencies.len() - 1) * permille / 1000] / 1000;
                println!(
                    "{name:>5}, depth {depth:>2}: {:>7} writes/s; latency in us: median {}, 99 % {}, worst {}",
                    count / seconds,
                    at(500),
                    at(990),
                    at(1000),
                );
            }
        }
    }
    for (number, figures) in pool.log_figures() {
        println!("log {number}: {figures:?}");
    }
    drop(volumes);
    pool.logs_ended().await;
}

/// Writes all of a volume once, in order: neither layout has to find space for what comes then.
async fn fill(slice: &Slice) {
    let mut rng = Rng::new(1);
    let mut data = Buf::zeroed(1 << 20);
    rng.fill(&mut data);
    let data = data.share();
    for at in (0..VOLUME_BYTES).step_by(1 << 20) {
        slice.write(ByteOffset(at), Chain::from(data.clone()), Durability::Cached).await.unwrap();
    }
    slice.flush().await.unwrap();
}

/// Writes for some time; the number of writes, and the time that each took in nanoseconds.
async fn write(slice: &Rc<Slice>, depth: u64, time: Duration) -> (u64, Vec<u64>) {
    let latencies: Rc<RefCell<Vec<u64>>> = Rc::default();
    let end = rt::now() + time;
    let seed = Rc::new(Cell::new(rt::random()));
    let writer = || {
        let (slice, latencies) = (Rc::clone(slice), Rc::clone(&latencies));
        seed.set(seed.get() + 1);
        let mut rng = Rng::new(seed.get());
        rt::spawn(async move {
            let mut data = Buf::zeroed(BLOCK as usize);
            rng.fill(&mut data);
            let data = data.share();
            while rt::now() < end {
                let at = ByteOffset(rng.below(VOLUME_BYTES / BLOCK) * BLOCK);
                let began = rt::now();
                slice.write(at, Chain::from(data.clone()), Durability::Durable).await.unwrap();
                latencies.borrow_mut().push(rt::now().0 - began.0);
            }
        })
    };
    let writers: Vec<_> = (0..depth).map(|_| writer()).collect();
    for writer in writers {
        writer.await;
    }
    let latencies = latencies.take();
    (latencies.len() as u64, latencies)
}
