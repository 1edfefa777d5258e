//! Compares a thick volume, one with checksums and a log-structured one of the same pool, in turns.
//!
//! It measures random durable writes of 4 KiB, random reads of the blocks written, and sequential transfers
//! of 1 MiB.
//!
//! Run `cargo run --release -p store --example layouts -- FILE [OPTION]...`, where FILE is created and
//! removed again:
//!
//! - `--seconds N`: duration of each measurement, 3 by default; `--rounds N`: number of rounds, 3 by default;
//! - `--only WORD`: only measurements whose names contain the word; `--kind thick`, `--kind checked` (with
//!   checksums) or `--kind log`: only those of that kind;
//! - `--written`: writes the whole file first, so that no segment lies in unwritten extents, as on a block
//!   device. (Those of a thick volume are written when it is filled.)
//! - `--compressible PERCENT`: this part of each block is the same byte, 0 by default; `--compression off`:
//!   log volumes do not compress;
//! - `--fill PERCENT`: instead, fills a log volume of that part of the pool and overwrites it at random,
//!   `--seconds` for each of `--rounds` lines; with `--skewed` four fifths of the writes go to a fifth of it;
//!   `--depth N`, 32 by default.
//!
//! `--replay MIB` and `--segment MIB` set bounds of the log ([`LogTuning`]).
//!
//! CPU time is that of the process, from `/proc/self/stat`. The bytes written per request are those that the
//! process had written, from `/proc/self/io`.

#![allow(clippy::unwrap_used, reason = "it is run by hand")]

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use base::{BlockSize, Buf, ByteLen, ByteOffset, Chain, Rng};
use rt::uring::{Config, Running};
use rt::{CoreId, Durability};
use store::{
    Compression, CreateOptions, Host, HostId, LogFigures, LogTuning, NewDisk, Pool, RamBudget, Slice,
    VolumeKind, VolumeSpec,
};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
const VOLUME_BYTES: u64 = 1 << 30;
const POOL_BYTES: u64 = 4 << 30;

/// One measurement.
struct Load {
    name: &'static str,
    what: What,
    depth: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    RandomWrites,
    SkewedWrites,
    RandomReads,
    SequentialWrites,
    SequentialReads,
}

const LOADS: [Load; 8] = [
    Load { name: "4K-write-1", what: What::RandomWrites, depth: 1 },
    Load { name: "4K-write-32", what: What::RandomWrites, depth: 32 },
    Load { name: "4K-read-1", what: What::RandomReads, depth: 1 },
    Load { name: "4K-read-32", what: What::RandomReads, depth: 32 },
    Load { name: "1M-read-8-after-random-writes", what: What::SequentialReads, depth: 8 },
    Load { name: "1M-write-8", what: What::SequentialWrites, depth: 8 },
    Load { name: "1M-write-8-again", what: What::SequentialWrites, depth: 8 },
    Load { name: "1M-read-8", what: What::SequentialReads, depth: 8 },
];

#[derive(Clone)]
struct Options {
    path: PathBuf,
    seconds: u64,
    rounds: u64,
    only: String,
    kind: String,
    written: bool,
    fill: Option<u64>,
    skewed: bool,
    depth: u64,
    /// Percentage of each block that is the same byte.
    compressible: u64,
    compression: Compression,
    tuning: LogTuning,
}

fn options() -> Options {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().expect("a file to be made"));
    let mut options = Options {
        path,
        seconds: 3,
        rounds: 3,
        only: String::new(),
        kind: String::new(),
        written: false,
        fill: None,
        skewed: false,
        depth: 32,
        compressible: 0,
        compression: Compression::default(),
        tuning: LogTuning::default(),
    };
    while let Some(option) = arguments.next() {
        let mut value = || arguments.next().expect("a value");
        match option.as_str() {
            "--seconds" => options.seconds = value().parse().expect("seconds"),
            "--rounds" => options.rounds = value().parse().expect("a number"),
            "--depth" => options.depth = value().parse().expect("a number"),
            "--compressible" => options.compressible = value().parse().expect("percent"),
            "--compression" => {
                options.compression = match value().as_str() {
                    "off" => Compression::Off,
                    "lz4" => Compression::Lz4,
                    other => panic!("{other} is no compression"),
                }
            }
            "--replay" => {
                options.tuning.replay_bytes = MIB * value().parse::<u64>().expect("MiB");
                options.tuning.scan_bytes_all = 0;
            }
            "--segment" => options.tuning.segment = Some(ByteLen(MIB * value().parse::<u64>().expect("MiB"))),
            "--fill" => options.fill = Some(value().parse().expect("percent")),
            "--only" => options.only = value(),
            "--kind" => options.kind = value(),
            "--written" => options.written = true,
            "--skewed" => options.skewed = true,
            other => panic!("{other} is no option"),
        }
    }
    options
}

fn main() {
    let options = options();
    let config = Config { processors: vec![0], pin: false, poll: Duration::ZERO };
    let (ended, end) = mpsc::channel();
    let path = options.path.clone();
    let main = move |_: CoreId| {
        let (ended, options) = (ended.clone(), options.clone());
        async move {
            match options.fill {
                None => compare(options).await,
                Some(percent) => wear(options, percent).await,
            }
            let _ = ended.send(());
        }
    };
    let running = Running::start(config, main).expect("a ring");
    end.recv().expect("it ends");
    running.join();
    let _ = std::fs::remove_file(path);
}

async fn make_pool(options: &Options) -> Pool {
    let create = if options.written {
        let mut file = std::fs::File::create_new(&options.path).unwrap();
        for _ in 0..POOL_BYTES / MIB {
            file.write_all(&[0; MIB as usize]).unwrap();
        }
        file.sync_all().unwrap();
        None
    } else {
        Some(ByteLen(POOL_BYTES))
    };
    let disk = NewDisk { path: options.path.clone(), create, reserve: false };
    let host = Host { id: HostId([1; 16]), name: "layouts".into() };
    let ram = RamBudget::new(ByteLen(0));
    let new = CreateOptions { name: "layouts".into(), host, extent: None, wipe: false, ram };
    let pool = Pool::create(vec![disk], new).await.unwrap();
    pool.set_log_tuning(options.tuning);
    pool
}

async fn make_volume(
    pool: &Pool,
    name: &str,
    kind: VolumeKind,
    bytes: u64,
    compression: Compression,
    checksums: bool,
) -> Rc<Slice> {
    let spec = VolumeSpec {
        name: name.into(),
        kind,
        block_size: BlockSize::B4096,
        physical_exponent: 0,
        capacity: ByteLen(bytes),
        slices: Some(1),
        stripe_unit: None,
        created: 0,
        id: None,
        copy: None,
        space: store::SpacePolicy::default(),
        compression,
        checksums,
    };
    let id = pool.create_volume(spec).await.unwrap().id;
    let spec = pool.volume_slices(id, CoreId(0), 1).unwrap().remove(0);
    let slice = Rc::new(spec.open(&pool.share_disks().attach()));
    slice.ready().await.unwrap();
    slice
}

async fn compare(options: Options) {
    let pool = make_pool(&options).await;
    let mut volumes = Vec::new();
    let kinds = [
        ("thick", VolumeKind::Thick, false),
        ("checked", VolumeKind::Thick, true),
        ("log", VolumeKind::Log, false),
    ];
    for (name, kind, checksums) in kinds.into_iter().filter(|(name, ..)| name.contains(&options.kind)) {
        let slice = make_volume(&pool, name, kind, VOLUME_BYTES, options.compression, checksums).await;
        fill(&slice, VOLUME_BYTES, options.compressible).await;
        volumes.push((name, slice));
    }
    println!(
        "{:>30} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "", "per s", "CPU us", "KiB wr.", "median us", "99 %", "99.9 %", "worst"
    );
    for load in LOADS.iter().filter(|load| load.name.contains(&options.only)) {
        for _ in 0..options.rounds {
            for (name, slice) in &volumes {
                let time = Duration::from_secs(options.seconds);
                let measured = measure(slice, load, VOLUME_BYTES, time, options.compressible).await;
                println!("{:>30} {name:>7} {measured}", load.name);
            }
        }
    }
    for volume in pool.volumes() {
        println!("{}: {:?}, ratio {:.2}", volume.name, volume.in_logs, volume.in_logs.ratio().unwrap_or(1.0));
    }
    for (number, figures) in pool.log_figures() {
        println!("log {number}: {figures:?}");
    }
    drop(volumes);
    pool.logs_ended().await;
}

/// Measures how a volume wears that is as full as the pool allows.
async fn wear(options: Options, percent: u64) {
    let pool = make_pool(&options).await;
    let bytes = (POOL_BYTES * percent / 100) / MIB * MIB;
    let slice = make_volume(&pool, "log", VolumeKind::Log, bytes, options.compression, false).await;
    fill(&slice, bytes, options.compressible).await;
    let what = if options.skewed { What::SkewedWrites } else { What::RandomWrites };
    let load = Load { name: "wear", what, depth: options.depth };
    for _ in 0..options.rounds {
        let before = pool.log_figures()[0].1;
        let time = Duration::from_secs(options.seconds);
        let measured = measure(&slice, &load, bytes, time, options.compressible).await;
        let after = pool.log_figures()[0].1;
        let since = |of: fn(&LogFigures) -> u64| of(&after) - of(&before);
        let by_hosts = since(|log| log.written_by_hosts);
        let a_byte = |bytes: u64| bytes as f64 / by_hosts.max(1) as f64;
        let (moved, map) = (since(|log| log.written_moved), since(|log| log.written_map));
        let written = since(|log| log.written);
        println!(
            "{percent} %: {measured}; amplification {:.2} (moved {:.2}, map {:.2}, heads {:.2}), live {:.1} % of what is lent, lent {:.1} % of the pool",
            a_byte(written),
            a_byte(moved),
            a_byte(map),
            a_byte(written.saturating_sub(by_hosts + moved + map)),
            after.live as f64 * 100.0 / after.lent as f64,
            after.lent as f64 * 100.0 / POOL_BYTES as f64,
        );
    }
    drop(slice);
    pool.logs_ended().await;
}

/// Writes all of a volume once, in order, so that neither layout has to find space later.
async fn fill(slice: &Slice, bytes: u64, compressible: u64) {
    let data = random_data(MIB, compressible);
    for at in (0..bytes).step_by(MIB as usize) {
        slice.write(ByteOffset(at), data.clone(), Durability::Cached).await.unwrap();
    }
    slice.flush().await.unwrap();
}

/// Random bytes. `compressible` percent of each block are the same byte.
fn random_data(len: u64, compressible: u64) -> Chain {
    let mut data = Buf::zeroed(len as usize);
    Rng::new(rt::random()).fill(&mut data);
    let same = (BLOCK * compressible.min(100) / 100) as usize;
    data.chunks_mut(BLOCK as usize).for_each(|block| block[BLOCK as usize - same..].fill(7));
    Chain::from(data)
}

/// The result of a measurement.
struct Measured {
    time: Duration,
    cpu: Duration,
    written: u64,
    /// Of all requests, in nanoseconds, sorted.
    latencies: Vec<u64>,
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.latencies.len() as f64;
        let at = |permille: usize| self.latencies[(self.latencies.len() - 1) * permille / 1000] / 1000;
        write!(
            f,
            "{:>8.0} {:>8.1} {:>8.1} {:>8} {:>8} {:>8} {:>8}",
            count / self.time.as_secs_f64(),
            self.cpu.as_secs_f64() * 1e6 / count,
            self.written as f64 / 1024.0 / count,
            at(500),
            at(990),
            at(999),
            at(1000),
        )
    }
}

async fn measure(slice: &Rc<Slice>, load: &Load, bytes: u64, time: Duration, compressible: u64) -> Measured {
    let latencies: Rc<RefCell<Vec<u64>>> = Rc::default();
    let next = Rc::new(Cell::new(0));
    let (began, cpu, written) = (rt::now(), cpu_time(), written_bytes());
    let end = began + time;
    let what = load.what;
    let one = || {
        let (slice, latencies, next) = (Rc::clone(slice), Rc::clone(&latencies), Rc::clone(&next));
        rt::spawn(async move {
            let mut rng = Rng::new(rt::random());
            let len =
                if matches!(what, What::SequentialWrites | What::SequentialReads) { MIB } else { BLOCK };
            let data = random_data(len, compressible);
            while rt::now() < end {
                let at = match what {
                    What::SequentialWrites | What::SequentialReads => {
                        next.replace((next.get() + MIB) % bytes)
                    }
                    What::SkewedWrites if !rng.one_in(5) => rng.below(bytes / 5 / BLOCK) * BLOCK,
                    _ => rng.below(bytes / BLOCK) * BLOCK,
                };
                let began = rt::now();
                match what {
                    What::RandomReads | What::SequentialReads => {
                        drop(slice.read(ByteOffset(at), ByteLen(len)).await.unwrap());
                    }
                    What::RandomWrites | What::SkewedWrites => {
                        slice.write(ByteOffset(at), data.clone(), Durability::Durable).await.unwrap();
                    }
                    What::SequentialWrites => {
                        slice.write(ByteOffset(at), data.clone(), Durability::Cached).await.unwrap();
                    }
                }
                latencies.borrow_mut().push(rt::now().0 - began.0);
            }
        })
    };
    let tasks: Vec<_> = (0..load.depth).map(|_| one()).collect();
    for task in tasks {
        task.await;
    }
    if what == What::SequentialWrites {
        slice.flush().await.unwrap();
    }
    let (time, cpu, written) = (rt::now() - began, cpu_time() - cpu, written_bytes() - written);
    let mut latencies = latencies.take();
    latencies.sort_unstable();
    Measured { time, cpu, written, latencies }
}

/// The CPU time that the process has taken.
fn cpu_time() -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    // Fields 14 and 15: time in user mode and in the kernel.
    let ticks = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u32>().unwrap());
    TICK * ticks.sum::<u32>()
}

/// Bytes that the process has had written to disks.
fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")).unwrap().parse().unwrap()
}
