//! Bad clients, and what they must not do to good ones.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use e2e::node::DATA_MAX;
use e2e::raw::{Digests, Login, PATIENCE, Raw, cdb16, word};
use e2e::{Export, Server, VolumeSpec, pattern};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const MIB: u64 = 1 << 20;
/// Longest time of a good client's command while bad clients disturb the server, on a slow and busy machine.
const STALL_MAX: Duration = Duration::from_secs(15);

/// A client that writes and reads back without pause while others misbehave.
struct GoodClient {
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Duration>>,
}

impl GoodClient {
    fn start(export: &Export) -> GoodClient {
        let mut raw = Raw::login(export, 0, 0xfeed).expect("a good client may log in");
        raw.wait_until_ready().expect("the unit gets ready");
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counter) = (stop.clone(), rounds.clone());
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let started = Instant::now();
                let rounds = counter.fetch_add(1, Ordering::Relaxed);
                let lba = rounds % 64 * 8;
                let data = pattern::stamped(1, rounds, lba, 4096);
                raw.write(lba, 8, &data, false)?;
                if raw.read(lba, 8, 4096)? != data {
                    return Err(io::Error::other(format!("round {rounds} read other data than it wrote")));
                }
                longest = longest.max(started.elapsed());
                thread::sleep(Duration::from_millis(1));
            }
            Ok(longest)
        });
        GoodClient { rounds, stop, thread }
    }

    #[track_caller]
    fn assert_unharmed(self) {
        let enough = self.rounds.load(Ordering::Relaxed) + 20;
        while self.rounds.load(Ordering::Relaxed) < enough && !self.thread.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        self.stop.store(true, Ordering::Relaxed);
        let longest =
            self.thread.join().expect("it does not panic").unwrap_or_else(|error| panic!("harmed: {error}"));
        assert!(longest < STALL_MAX, "a write and a read took {longest:?}");
    }
}

/// A server with a volume, and the right to load the machine.
///
/// These tests take turns, because they measure stalls.
fn start() -> (MutexGuard<'static, ()>, Server, Export) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut server = Server::start();
    let export = server.create(&VolumeSpec::new("robust", 64 * MIB));
    (turn, server, export)
}

#[test]
fn garbage_is_answered_or_cut_off() {
    let (_turn, server, export) = start();
    let good = GoodClient::start(&export);
    let before = server.resident_bytes();
    for seed in 0..200_u64 {
        let mut raw = Raw::connect(export.portals[0], 1).expect("a connection is accepted");
        // In turn: any bytes; a login request with any flags and keys; any opcode with the longest data
        // segment.
        let len = (seed as usize * 97) % 6000;
        let mut bytes = pattern::noise(seed, 48 + len);
        match seed % 4 {
            0 => {}
            1 => {
                bytes[0] = 0x43;
                bytes[4] = 0;
                bytes[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
            }
            2 => {
                bytes[..48].copy_from_slice(&raw.login_header());
                bytes[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
            }
            _ => bytes[4..8].fill(0xff),
        }
        // The server may close the connection before it has received everything.
        let _ = raw.send_bytes(&bytes);
        let _ = raw.half_close();
        raw.wait_for_close()
            .unwrap_or_else(|error| panic!("garbage {seed} is neither answered nor cut off: {error}"));
    }
    assert_memory_bounded(&server, before, 32 * MIB);
    good.assert_unharmed();
}

#[test]
fn garbage_in_a_session_ends_only_that_session() {
    let (_turn, server, export) = start();
    let good = GoodClient::start(&export);
    let before = server.resident_bytes();
    for seed in 0..200_u64 {
        let mut raw = Raw::login(&export, 1, 2).expect("it may log in");
        let mut bytes = pattern::noise(seed, 48 + 512);
        // A known opcode and otherwise random bytes, every other time with a short data segment.
        let opcodes = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x10];
        bytes[0] = opcodes[seed as usize % opcodes.len()] | (bytes[0] & 0x40);
        if seed % 2 == 0 {
            bytes[4..8].copy_from_slice(&[0, 0, 2, 0]);
        }
        // Random bytes could be a valid WRITE to the good client's blocks.
        if bytes[0] & 0x3f == 1 {
            bytes[32] = 0xee;
        }
        let _ = raw.send_bytes(&bytes);
        let _ = raw.half_close();
        raw.wait_for_close().unwrap_or_else(|error| panic!("garbage {seed}: {error}"));
    }
    assert_memory_bounded(&server, before, 32 * MIB);
    good.assert_unharmed();
}

#[test]
fn half_open_connections_keep_nobody_out() {
    let (_turn, server, export) = start();
    let good = GoodClient::start(&export);
    let before = server.resident_bytes();
    let mut waiting = Vec::new();
    for index in 0..300_u64 {
        let mut raw = Raw::connect(export.portals[0], 3).expect("a connection is accepted");
        // Nothing at all, half a header, or a header whose data never comes.
        let mut header = raw.login_header();
        header[7] = 200;
        raw.send_bytes(&header[..[0, 20, 48][index as usize % 3]]).expect("it is taken");
        waiting.push(raw);
    }
    let mut late = Raw::login(&export, 0, 4).expect("it may log in");
    late.wait_until_ready().expect("the unit gets ready");
    assert_memory_bounded(&server, before, 64 * MIB);
    good.assert_unharmed();
    if server.is_ursa() {
        // A login has a deadline; then the connection is closed.
        for raw in &mut waiting {
            raw.set_patience(Duration::from_secs(60));
            raw.wait_for_close().expect("a login that gets nowhere is cut off");
        }
    }
}

#[test]
fn two_thousand_logins_at_once() {
    const THREADS: u32 = 8;
    const LOGINS: u32 = 2_000;
    allow_open_files(u64::from(LOGINS) + 500);
    let (_turn, server, export) = start();
    let good = GoodClient::start(&export);
    let before = server.resident_bytes();
    for _ in 0..2 {
        let threads: Vec<JoinHandle<Vec<Raw>>> = (0..THREADS)
            .map(|thread| {
                let export = export.clone();
                thread::spawn(move || {
                    let ports = (0..LOGINS / THREADS).map(|index| 0x1000 + thread * LOGINS + index);
                    ports.map(|port| Raw::login(&export, 0, port).expect("it may log in")).collect()
                })
            })
            .collect();
        let mut sessions: Vec<Raw> =
            threads.into_iter().flat_map(|thread| thread.join().expect("all logged in")).collect();
        assert_eq!(sessions.len(), LOGINS as usize);
        for session in sessions.iter_mut().step_by(100) {
            session.wait_until_ready().expect("a session works");
            session.read(0, 8, 4096).expect("a session works");
        }
        // 64 KiB per session is far above what an idle one needs.
        assert_memory_bounded(&server, before, 64 * MIB + u64::from(LOGINS) * 64 * 1024);
    }
    good.assert_unharmed();
}

#[test]
fn a_client_that_never_reads_holds_bounded_memory() {
    let (_turn, server, export) = start();
    let good = GoodClient::start(&export);
    let before = server.resident_bytes();
    let mut lazy: Vec<Raw> = Vec::new();
    for port in 0..8 {
        let mut raw = Raw::login(&export, 1, 0x2000 + port).expect("it may log in");
        raw.wait_until_ready().expect("the unit gets ready");
        raw.set_patience(Duration::from_millis(500));
        // One MiB per command: each client requests 1 GiB, unless the server stops reading before.
        for _ in 0..1024 {
            let header = raw.command_header(0x40, MIB as u32, cdb16(0x88, 0, 0, 2048));
            if raw.send(&header, &[]).is_err() {
                break;
            }
        }
        lazy.push(raw);
    }
    thread::sleep(Duration::from_secs(2));
    if server.is_ursa() {
        // tgt does neither.
        assert_memory_bounded(&server, before, memory_bound(lazy.len() as u64, 1));
        good.assert_unharmed();
    }
}

/// Writes whose data never comes completely: as many as the window allows, and immediate ones, which it does
/// not limit.
#[test]
fn a_client_that_stalls_in_its_writes_holds_bounded_memory() {
    const WRITE: u32 = 65536; // FirstBurstLength
    const COMES: usize = 57344;
    const WINDOW: u64 = 128;
    const REJECT: u8 = 0x3f;
    let (_turn, server, export) = start();
    if !server.is_ursa() {
        return; // tgt takes smaller PDUs
    }
    let good = GoodClient::start(&export);
    let before = server.resident_bytes();
    let login = Login { initial_r2t: false, ..Login::default() };
    let data = pattern::noise(7, COMES);
    let mut stalled: Vec<Raw> = Vec::new();
    let mut rejected = 0;
    for port in 0..8 {
        let mut raw = Raw::login_with(&export, 1, 0x4000 + port, login).expect("it may log in");
        raw.wait_until_ready().expect("the unit gets ready");
        raw.set_patience(Duration::from_millis(500));
        for number in 0..2 * WINDOW {
            let lba = 0x1_0000 + number % WINDOW * 128;
            let mut header = raw.command_header(0x20, WRITE, cdb16(0x8a, 0, lba, 128));
            header[1] &= 0x7f; // not F: unsolicited Data-Out is to follow
            if number >= WINDOW {
                header[0] |= 0x40;
            }
            raw.send(&header, &data).expect("it is taken");
        }
        while let Ok(pdu) = raw.receive() {
            rejected += usize::from(pdu.opcode() == REJECT);
        }
        stalled.push(raw);
    }
    assert!(rejected > 0, "there is room for some immediate commands only");
    assert_memory_bounded(&server, before, memory_bound(0, stalled.len() as u64 + 1));
    good.assert_unharmed();
}

#[test]
fn a_slow_reader_gets_all_of_it_and_slows_nobody() {
    let (_turn, _server, export) = start();
    let data = pattern::stamped(9, 1, 1024, 8192);
    let mut slow = Raw::login(&export, 1, 5).expect("it may log in");
    slow.wait_until_ready().expect("the unit gets ready");
    for part in 0..128 {
        slow.write(1024 + part * 16, 16, &data, false).expect("a write");
    }
    let good = GoodClient::start(&export);
    let mut tags = Vec::new();
    for _ in 0..16 {
        let header = slow.command_header(0x40, MIB as u32, cdb16(0x88, 0, 1024, 2048));
        tags.push(word(&header, 16));
        slow.send(&header, &[]).expect("the window has room for sixteen");
    }
    let mut got = vec![Vec::new(); tags.len()];
    while got.iter().any(|bytes: &Vec<u8>| bytes.len() < MIB as usize) {
        thread::sleep(Duration::from_millis(2));
        let pdu = slow.receive().expect("a slow reader is no dead one");
        if pdu.opcode() == 0x25 {
            let index = tags.iter().position(|&tag| tag == pdu.tag()).expect("one of ours");
            got[index].extend(pdu.data);
        }
    }
    for bytes in got {
        assert!(bytes.chunks(8192).all(|chunk| chunk == data), "wrong data");
    }
    good.assert_unharmed();
}

/// RFC 7143 4.2.3.3: a function on many tasks is answered after the data that R2Ts have requested.
///
/// Some initiators do not send that data.
#[test]
fn an_abort_waits_for_requested_data_but_not_forever() {
    const ABORT_TASK_SET: u8 = 2;
    const LBA: u64 = 8192;
    let (_turn, server, export) = start();
    if !server.is_ursa() {
        return; // tgt does not wait
    }
    let good = GoodClient::start(&export);
    let mut raw = Raw::login(&export, 0, 7).expect("it may log in");
    raw.wait_until_ready().expect("the unit gets ready");
    for sends_data in [true, false] {
        let write = raw.command_header(0x20, 8192, cdb16(0x8a, 0, LBA, 16));
        raw.send(&write, &[]).expect("it is taken");
        let r2t = raw.receive().expect("it is asked for the data");
        assert_eq!(r2t.opcode(), 0x31);
        let asked = Instant::now();
        raw.send(&raw.task_header(ABORT_TASK_SET), &[]).expect("it is taken");
        if sends_data {
            raw.set_patience(Duration::from_millis(500));
            let early = raw.receive();
            assert!(early.is_err(), "the data has not come: {early:?}");
            raw.set_patience(PATIENCE);
            raw.send(&raw.data_out_header(&r2t), &[7; 8192]).expect("it is taken");
        }
        let answer = raw.receive().expect("an answer");
        assert_eq!((answer.opcode(), answer.header[2]), (0x22, 0));
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
        if !sends_data {
            // Too late, and without effect.
            raw.send(&raw.data_out_header(&r2t), &[7; 8192]).expect("it is taken");
        }
        assert!(raw.read(LBA, 16, 8192).expect("a read").iter().all(|byte| *byte == 0), "it was written");
    }
    good.assert_unharmed();
}

/// A session with digests; `None` if the server is not ours and does not support them.
fn login_with_digests(server: &Server, export: &Export, digests: Digests) -> Option<Raw> {
    let login = Login { initiator: "iqn.2026-11.e2e:digest", digests, ..Login::default() };
    let mut raw = Raw::login_with(export, 1, 6, login).expect("it may log in");
    if raw.digests() != digests {
        assert!(!server.is_ursa(), "asked for {digests:?}, got {:?}", raw.digests());
        println!("this server does not do {digests:?}: nothing to test");
        return None;
    }
    raw.wait_until_ready().expect("right digests are taken");
    Some(raw)
}

#[test]
fn a_wrong_header_digest_ends_the_connection() {
    let (_turn, server, export) = start();
    let good = GoodClient::start(&export);
    for round in 0..20 {
        let digests = Digests { header: true, data: round % 2 == 0 };
        let Some(mut raw) = login_with_digests(&server, &export, digests) else { return };
        let header = raw.command_header(0x40, 4096, cdb16(0x88, 0, 0, 8));
        let mut bytes = raw.encode(&header, &[]);
        bytes[48] ^= 0x10;
        raw.send_bytes(&bytes).expect("it is taken");
        // RFC 7143 7.8: at error recovery level 0 a header digest error ends the session.
        raw.wait_for_close().expect("it is cut off");
    }
    good.assert_unharmed();
}

#[test]
fn data_with_a_wrong_digest_is_not_written() {
    let (_turn, server, export) = start();
    let good = GoodClient::start(&export);
    let digests = Digests { header: true, data: true };
    let lba = 4096;
    let before = pattern::stamped(6, 0, lba, 4096);
    let Some(mut raw) = login_with_digests(&server, &export, digests) else { return };
    raw.write(lba, 8, &before, false).expect("right digests are taken");
    let header = raw.command_header(0x20, 4096, cdb16(0x8a, 0, lba, 8));
    let mut bytes = raw.encode(&header, &pattern::stamped(6, 1, lba, 4096));
    bytes[100] ^= 0x01;
    raw.send_bytes(&bytes).expect("it is taken");
    // RFC 7143 7.8: a reject or an error status, or the end of the session; but no success, and no data
    // written.
    raw.set_patience(Duration::from_secs(10));
    if let Ok(pdu) = raw.receive() {
        assert!(pdu.opcode() != 0x21 || pdu.status() != 0, "it was answered GOOD: {pdu:?}");
    }
    let mut raw = login_with_digests(&server, &export, digests).expect("as before");
    assert!(raw.read(lba, 8, 4096).expect("a read") == before, "the wrong data was written");
    good.assert_unharmed();
}

/// Bound of a node's memory by ARCHITECTURE.md, *Memory*, for sessions of one connection.
///
/// `writers` of them send unsolicited data.
fn memory_bound(readers: u64, writers: u64) -> u64 {
    const OF_A_CORE: u64 = 48 * MIB;
    const OF_A_CONNECTION: u64 = 8 * MIB;
    /// A window of 128 times FirstBurstLength.
    const UNSOLICITED: u64 = 16 * MIB;
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let shares = (2 * DATA_MAX).max((readers + writers) * 16 * MIB);
    shares + cores * OF_A_CORE + (readers + writers) * OF_A_CONNECTION + writers * UNSOLICITED
}

#[track_caller]
fn assert_memory_bounded(server: &Server, before: u64, growth_max: u64) {
    let now = server.resident_bytes();
    println!("resident: {} MiB before, {} MiB now", before / MIB, now / MIB);
    assert!(
        now < before + growth_max,
        "memory went from {before} to {now} bytes, {growth_max} more are allowed"
    );
}

fn allow_open_files(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    assert!(limit.maximum.is_none_or(|maximum| maximum >= count), "ulimit -Hn must be {count} at least");
    let current = limit.current.map(|current| current.max(count));
    setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum }).expect("below the hard limit");
}
