//! How much of the node's memory a session's commands take, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockSize, Buf, Chain, Lba};
use initiator::{Lun, Session, Transfer};
use node::Config;
use proto::scsi::Cdb;
use rt::sim::DiskLatency;

use crate::commands::{self, extended_copy, naa};
use crate::rig::{DISK, MIB, Rig, Shape, log_in};
use crate::seeds::each_seed;

/// Counts what each thread has allocated: a simulated world runs on one thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends has no counters any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: the system allocator does the work; the counters are cells without a destructor, which allocate
// nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How much the thread's memory exceeded its present amount at most while `work` ran.
fn growth(work: impl FnOnce()) -> u64 {
    let before = NOW.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before) as u64
}

/// A session's share for reads, the buffers that a thread keeps, and the simulated disk and network with the
/// clients' own data.
const GROWTH_MAX: u64 = (8 + 32 + 16) * MIB;

/// The whole window.
const AT_ONCE: u64 = 128;

fn cdb16(bytes: [u8; 2], blocks: u32) -> Cdb {
    let mut cdb = [0; 16];
    cdb[..2].copy_from_slice(&bytes);
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    Cdb(cdb)
}

/// Sends this many commands at once to a slow disk.
fn at_once<F: Future<Output = ()> + 'static>(
    name: &str,
    command: impl Fn(Rc<Session>, Transfer) -> F + Copy + 'static,
    bytes_out: usize,
) {
    each_seed(1, |seed| {
        // One session of one core: its share is the smallest possible.
        let config = Config { data_bytes_max: 16 << 20, ..Config::default() };
        let rig = Rig::with_config(seed, 2, config);
        rig.add(Shape { mib: 16, ..Shape::thick() });
        rig.add(Shape { lun: 1, mib: 16, ..Shape::ram() });
        let client = rig.client("client");
        let session = client.run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            session.make_ready(Lun(1)).await.unwrap();
            session
        });
        let ms = Duration::from_millis;
        let slow = DiskLatency {
            read: ms(20)..ms(30),
            write: ms(20)..ms(30),
            spike_one_in: 0,
            ..DiskLatency::default()
        };
        rig.world.set_disk_latency(rig.server, DISK, slow);
        let grown = growth(|| {
            client.run(move |_| async move {
                // The clients share one copy of the data.
                let data = Chain::from(Buf::zeroed(bytes_out));
                let out = || match bytes_out {
                    0 => Transfer::None,
                    _ => Transfer::Out(data.clone()),
                };
                rt::join_all((0..AT_ONCE).map(|_| command(Rc::clone(&session), out()))).await;
            });
        });
        println!("{name}: {} MiB", grown / MIB);
        assert!(grown < GROWTH_MAX, "{AT_ONCE} times {name} take {} MiB", grown / MIB);
    });
}

#[test]
fn many_verifies_stay_within_their_sessions_memory() {
    let verify = |session: Rc<Session>, out: Transfer| async move {
        session.command(Lun(0), cdb16([0x8f, 0], 2048), out).await.unwrap();
    };
    at_once("VERIFY", verify, 0);
    // BYTCHK 11b: one block, with which all are compared.
    let compare = |session: Rc<Session>, out: Transfer| async move {
        session.command(Lun(0), cdb16([0x8f, 0x06], 2048), out).await.unwrap();
    };
    at_once("VERIFY with BYTCHK", compare, 4096);
}

#[test]
fn many_repeated_writes_stay_within_their_sessions_memory() {
    let write_same = |session: Rc<Session>, out: Transfer| async move {
        session.command(Lun(0), cdb16([0x93, 0], 2048), out).await.unwrap();
    };
    at_once("WRITE SAME", write_same, 4096);
}

#[test]
fn many_read_modify_writes_stay_within_their_sessions_memory() {
    let or_write = |session: Rc<Session>, out: Transfer| async move {
        session.command(Lun(0), cdb16([0x8b, 0], 64), out).await.unwrap();
    };
    at_once("ORWRITE", or_write, 64 * 4096);
    let compare_and_write = |session: Rc<Session>, out: Transfer| async move {
        let mut cdb = cdb16([0x89, 0], 0);
        cdb.0[13] = 1;
        session.command(Lun(0), cdb, out).await.unwrap();
    };
    at_once("COMPARE AND WRITE", compare_and_write, 2 * 4096);
}

#[test]
fn many_copies_stay_within_their_sessions_memory() {
    let copy = |session: Rc<Session>, _: Transfer| async move {
        let (source, target) = (naa(&session, 0).await, naa(&session, 1).await);
        let copy = commands::Copy { source, source_lba: 0, target, target_lba: 0, blocks: 512 };
        extended_copy(&session, 0, copy).await.unwrap();
    };
    at_once("EXTENDED COPY", copy, 0);
}

/// One ORWRITE of the largest size takes no more memory than one write of that size.
#[test]
fn a_large_or_is_done_in_steps() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape { mib: 16, ..Shape::thick() });
        let client = rig.client("client");
        let session = client.run(|portal| log_in(portal, "client", 0));
        client.run(move |_| async move {
            let data = |byte: u8| {
                let mut data = Buf::zeroed(8 << 20);
                data.fill(byte);
                Transfer::Out(Chain::from(data))
            };
            session.command(Lun(0), cdb16([0x8b, 0], 2048), data(0x81)).await.unwrap();
            session.command(Lun(0), cdb16([0x8b, 0], 2048), data(0x18)).await.unwrap();
            let found = session.read(Lun(0), Lba(0), base::BlockCount(2048), BlockSize::B4096).await.unwrap();
            assert!(found.iter().all(|byte| *byte == 0x99));
        });
    });
}
