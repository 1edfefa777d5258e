//! Measures the memory of a log volume of 1 TiB that has a block in each 2 MiB.
//!
//! Its directory is as large as that of a volume that is full; its leaves are as small as possible, and its
//! blocks take a quarter of a slot each. So it costs half a GiB of disk, and shows what a log must have in
//! memory, except the bits of segments that it does not have: `docs/why/log.md`, *Memory*, and the test
//! `a_log_of_a_tebibyte_takes_less_than_a_gigabyte_per_terabyte`.
//!
//! Run `cargo run --release -p store --example sparse -- FILE [MIB]`, where FILE is created and removed
//! again, and MIB is the limit for the memory of logs, 1024 by default.

#![allow(clippy::unwrap_used, reason = "it is run by hand")]

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use base::{BlockSize, Buf, ByteLen, ByteOffset, Chain};
use rt::uring::{Config, Running};
use rt::{CoreId, Durability};
use store::{
    Compression, CreateOptions, Host, HostId, LogMemory, NewDisk, Pool, RamBudget, VolumeKind, VolumeSpec,
};

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;
const VOLUME_BYTES: u64 = 1 << 40;
const POOL_BYTES: u64 = 32 << 30;
/// What one leaf of the map covers.
const LEAF_BYTES: u64 = 2 * MIB;
const DEPTH: u64 = 64;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().expect("a file to be made"));
    let limit = arguments.next().map_or(1024, |mib| mib.parse::<u64>().expect("MiB"));
    let config = Config { processors: vec![0], pin: false, poll: Duration::ZERO };
    let (ended, end) = mpsc::channel();
    let file = path.clone();
    let main = move |_: CoreId| {
        let (ended, file) = (ended.clone(), file.clone());
        async move {
            measure(&file, ByteLen(limit * MIB)).await;
            let _ = ended.send(());
        }
    };
    let running = Running::start(config, main).expect("a ring");
    end.recv().expect("it ends");
    running.join();
    let _ = std::fs::remove_file(path);
}

async fn measure(file: &Path, limit: ByteLen) {
    let disk = NewDisk { path: file.to_owned(), create: Some(ByteLen(POOL_BYTES)), reserve: false };
    let host = Host { id: HostId([1; 16]), name: "sparse".into() };
    let ram = RamBudget::new(ByteLen(0));
    let new = CreateOptions { name: "sparse".into(), host, extent: None, wipe: false, ram };
    let pool = Pool::create(vec![disk], new).await.unwrap();
    let memory = LogMemory::new(limit);
    pool.set_log_memory(memory.clone());
    let spec = VolumeSpec {
        name: "sparse".into(),
        kind: VolumeKind::Log,
        block_size: BlockSize::B4096,
        physical_exponent: 0,
        capacity: ByteLen(VOLUME_BYTES),
        slices: Some(1),
        stripe_unit: None,
        created: 0,
        id: None,
        copy: None,
        space: store::SpacePolicy::default(),
        compression: Compression::default(),
        checksums: false,
    };
    let id = pool.create_volume(spec).await.unwrap().id;
    let disks = pool.share_disks().attach();
    let open = || pool.volume_slices(id, CoreId(0), 1).unwrap().remove(0).open(&disks);
    let slice = Rc::new(open());
    slice.ready().await.unwrap();
    let (resident, began) = (resident_bytes(), rt::now());
    let one = |first: u64| {
        let slice = Rc::clone(&slice);
        rt::spawn(async move {
            let mut data = Buf::zeroed(BLOCK);
            data.fill(7);
            let data = Chain::from(data);
            for at in (first * LEAF_BYTES..VOLUME_BYTES).step_by((DEPTH * LEAF_BYTES) as usize) {
                slice.write(ByteOffset(at), data.clone(), Durability::Cached).await.unwrap();
            }
        })
    };
    let tasks: Vec<_> = (0..DEPTH).map(one).collect();
    for task in tasks {
        task.await;
    }
    slice.flush().await.unwrap();
    println!("mapped in {:.1} s", (rt::now() - began).as_secs_f64());
    report(&pool, &memory, resident);
    drop(slice);
    pool.logs_ended().await;
    let began = rt::now();
    let slice = open();
    slice.ready().await.unwrap();
    println!("opened again in {:.2} s", (rt::now() - began).as_secs_f64());
    report(&pool, &memory, resident);
    drop(slice);
    pool.logs_ended().await;
}

fn report(pool: &Pool, memory: &LogMemory, before: u64) {
    let figures = pool.log_figures()[0].1;
    println!(
        "memory as counted {} MiB of {}; resident {} MiB more than before; written {} MiB, of which map {} MiB",
        memory.used().0 / MIB,
        memory.limit().0 / MIB,
        resident_bytes().saturating_sub(before) / MIB,
        figures.written / MIB,
        figures.written_map / MIB,
    );
}

/// The memory of the process that is not paged out.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
