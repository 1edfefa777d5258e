//! The embedded engine on its threads, with files on a real disk.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::embedded::{Embedded, Engine, File, FileError, ForceError, Identity, Saved, Settings};
use cluster::{Error, Event, MemberChange, NodeId, Outcome, Refusal, Revision, Stall, Store, Transaction};
use tempfile::TempDir;

use crate::conformance::{SOON, op_id, suite};

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

/// Nodes that send messages by calling each other.
#[derive(Clone, Default)]
struct Net {
    nodes: Arc<Mutex<BTreeMap<NodeId, Embedded>>>,
    /// The number of the node for which the others are of a later version; 0: of none.
    older: Arc<AtomicU16>,
}

impl Net {
    fn start(&self, path: &Path, number: u16) -> Store {
        let (me, net) = (node(number), self.clone());
        let send = move |to: NodeId, bytes| {
            let is_older = net.older.load(Ordering::Relaxed) == to.get();
            let bytes = if is_older { of_a_later_version(bytes) } else { bytes };
            let nodes = net.nodes.lock().unwrap();
            // A stopped node sends nothing, even if its thread has not noticed yet.
            if nodes.contains_key(&me)
                && let Some(peer) = nodes.get(&to)
            {
                peer.deliver(me, bytes);
            }
        };
        let embedded = Embedded::start(path, Settings::new(number.into()), send).unwrap();
        let store = embedded.store();
        self.nodes.lock().unwrap().insert(me, embedded);
        store
    }

    fn stop(&self, number: u16) {
        let embedded = self.nodes.lock().unwrap().remove(&node(number)).unwrap();
        assert!(embedded.stop(SOON), "it ends");
    }
}

/// The message in a later version: if it has entries, the first is of a kind that this version does not know.
fn of_a_later_version(mut bytes: Vec<u8>) -> Vec<u8> {
    const APPEND: u8 = 3;
    const UNKNOWN: u8 = 77;
    // The head, the numbers, no context, the count of entries, and the first entry's index and term.
    const KIND: usize = 32 + 64 + 64 + 4 + 4 + 16;
    let checksum = bytes.len() - 4;
    if bytes[1] == APPEND && KIND < checksum {
        bytes[KIND] = UNKNOWN;
        let sum = base::crc32c(&bytes[..checksum]);
        bytes[checksum..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

fn path(dir: &TempDir, number: u16) -> PathBuf {
    dir.path().join(format!("record-{number}.db"))
}

/// A cluster of `count` voters, with their stores.
fn cluster(dir: &TempDir, count: u16) -> (Net, Vec<Store>) {
    let net = Net::default();
    drop(File::create(&path(dir, 1), &Saved::founding(5, node(1))).unwrap());
    let first = net.start(&path(dir, 1), 1);
    let mut stores = vec![first.clone()];
    for number in 2..=count {
        let joining = Saved::joining(Identity { cluster: 5, generation: 1, node: node(number) });
        drop(File::create(&path(dir, number), &joining).unwrap());
        stores.push(net.start(&path(dir, number), number));
        first.change_members(MemberChange::Add(node(number)), SOON).wait().unwrap();
        first.change_members(MemberChange::Promote(node(number)), SOON).wait().unwrap();
    }
    (net, stores)
}

fn put(store: &Store, key: &str, value: &str) -> Revision {
    match store.cas(Transaction::new(op_id()).put(key, value), SOON).wait() {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("not committed: {other:?}"),
    }
}

fn get(store: &Store, key: &str) -> Option<String> {
    let entry = store.get(key, SOON).wait().unwrap();
    entry.map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
}

#[test]
fn one_embedded_node_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let (_net, stores) = cluster(&dir, 1);
    suite(&stores[0], &stores[0], "one");
}

#[test]
fn three_embedded_nodes_conform() {
    let dir = tempfile::tempdir().unwrap();
    let (_net, stores) = cluster(&dir, 3);
    suite(&stores[1], &stores[2], "three");
}

#[test]
fn commits_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (net, stores) = cluster(&dir, 1);
    let first = put(&stores[0], "a", "1");
    net.stop(1);
    assert_eq!(stores[0].get("a", SOON).wait(), Err(Error::Stopped));
    let store = net.start(&path(&dir, 1), 1);
    assert_eq!(get(&store, "a").as_deref(), Some("1"));
    assert_eq!(put(&store, "a", "2"), Revision(first.0 + 1));
}

#[test]
fn two_of_three_continue_and_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (net, stores) = cluster(&dir, 3);
    put(&stores[0], "a", "1");
    net.stop(1);
    put(&stores[1], "a", "2");
    assert_eq!(get(&stores[2], "a").as_deref(), Some("2"));
    net.stop(2);
    let began = Instant::now();
    let short = Duration::from_millis(300);
    let stale = stores[2].get("a", short).wait();
    assert!(matches!(stale, Err(Error::NoLeader | Error::NoQuorum)), "{stale:?}");
    let lost = stores[2].cas(Transaction::new(op_id()).put("a", "3"), short).wait();
    assert!(matches!(lost, Err(Error::NoLeader | Error::OutcomeUnknown)), "{lost:?}");
    // A busy machine may take seconds longer than the deadlines.
    assert!(began.elapsed() < SOON, "at their deadlines: {:?}", began.elapsed());
    let without = Instant::now() + SOON;
    while stores[2].status(SOON).wait().unwrap().quorum {
        assert!(Instant::now() < without, "it notices that it is alone");
        std::thread::sleep(Duration::from_millis(20));
    }
    let nobody = stores[2].cas(Transaction::new(op_id()).put("b", "3"), short).wait();
    assert_eq!(nobody, Err(Error::NoLeader), "then a change certainly has no effect");
    let again = net.start(&path(&dir, 1), 1);
    assert!(matches!(get(&again, "a").as_deref(), Some("2" | "3")));
    assert_eq!(get(&again, "b"), None);
}

#[test]
fn members_come_and_go_from_any_node() {
    let dir = tempfile::tempdir().unwrap();
    let (net, stores) = cluster(&dir, 3);
    put(&stores[0], "a", "1");
    // Another node removes the leader.
    let leader = stores[2].status(SOON).wait().unwrap().leader.unwrap();
    let leader = u16::try_from(leader).unwrap();
    let other = stores[usize::from(leader % 3)].clone();
    other.change_members(MemberChange::Remove(node(leader)), SOON).wait().unwrap();
    net.stop(leader);
    put(&other, "a", "2");
    let status = other.status(SOON).wait().unwrap();
    assert_eq!((status.voters.len(), status.learners.len()), (2, 0));
    assert!(!status.voters.contains(&leader.into()));
    let again = other.change_members(MemberChange::Add(node(leader)), SOON).wait();
    assert_eq!(again, Err(Error::Membership(Refusal::Gone(node(leader)))));
    let learner = node(9);
    let joining = Saved::joining(Identity { cluster: 5, generation: 1, node: learner });
    drop(File::create(&path(&dir, 9), &joining).unwrap());
    let ninth = net.start(&path(&dir, 9), 9);
    other.change_members(MemberChange::Add(learner), SOON).wait().unwrap();
    assert_eq!(get(&ninth, "a").as_deref(), Some("2"), "a learner reads what is true now");
    put(&ninth, "a", "3");
    assert_eq!(get(&other, "a").as_deref(), Some("3"));
}

#[test]
fn a_survivor_becomes_a_cluster_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (net, stores) = cluster(&dir, 3);
    put(&stores[2], "a", "1");
    assert_eq!(get(&stores[1], "a").as_deref(), Some("1"));
    (1..=3).for_each(|number| net.stop(number));
    assert_eq!(File::force_new_cluster(&path(&dir, 2)).unwrap().generation, 2);
    let survivor = net.start(&path(&dir, 2), 2);
    assert_eq!(get(&survivor, "a").as_deref(), Some("1"));
    put(&survivor, "a", "2");
    // The nodes that were abandoned return. The survivor ignores them, and is not misled by them.
    let others = [net.start(&path(&dir, 1), 1), net.start(&path(&dir, 3), 3)];
    put(&others[0], "a", "forked");
    assert_eq!(get(&survivor, "a").as_deref(), Some("2"));
    let status = survivor.status(SOON).wait().unwrap();
    assert_eq!((status.voters, status.generation), (vec![2], 2));
}

#[test]
fn a_file_is_created_once_and_used_by_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let at = path(&dir, 1);
    let file = File::create(&at, &Saved::founding(5, node(1))).unwrap();
    assert!(matches!(File::create(&at, &Saved::founding(6, node(1))), Err(FileError::Exists(_))));
    assert!(matches!(File::open(&at), Err(FileError::InUse(_))));
    drop(file);
    let (file, saved) = File::open(&at).unwrap();
    assert_eq!(saved, Saved::founding(5, node(1)));
    for secret in [at.clone(), dir.path().join("record-1.db-wal")] {
        let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", secret.display());
    }
    drop(file);
    // The remains of an earlier attempt, cut off by a power failure, do not prevent the creation of the file.
    std::fs::write(dir.path().join("record-2.db.new"), "half").unwrap();
    std::fs::write(dir.path().join("record-2.db.new-wal"), "half").unwrap();
    drop(File::create(&path(&dir, 2), &Saved::founding(6, node(2))).unwrap());
    assert_eq!(File::open(&path(&dir, 2)).unwrap().1, Saved::founding(6, node(2)));
    let joining = Saved::joining(Identity { cluster: 5, generation: 1, node: node(3) });
    drop(File::create(&path(&dir, 3), &joining).unwrap());
    assert!(matches!(File::force_new_cluster(&path(&dir, 3)), Err(ForceError::Unforceable(_))));
    std::fs::write(
        dir.path().join("text"),
        "a file of somebody's with more bytes than SQLite's header has".repeat(9),
    )
    .unwrap();
    assert!(matches!(File::open(&dir.path().join("text")), Err(FileError::Foreign(_))));
    assert!(matches!(File::open(&dir.path().join("missing")), Err(FileError::Sqlite { .. })));
}

#[test]
fn the_file_holds_what_the_engine_has() {
    let dir = tempfile::tempdir().unwrap();
    let at = path(&dir, 1);
    let saved = Saved::founding(5, node(1));
    let mut file = File::create(&at, &saved).unwrap();
    // Such a short log is shortened many times.
    let mut engine = Engine::new(saved.clone(), Settings { log_entries: 8, ..Settings::new(1) });
    let mut model = saved;
    let later = base::Instant::default() + SOON;
    for number in 0..60_u64 {
        let change = Transaction::new(number.into()).put(&format!("k{}", number % 7), number.to_le_bytes());
        let change = change.delete(&format!("k{}", (number + 3) % 7)).expect("k1", None);
        engine.propose(number, change, later);
        engine.handle_tick(base::Instant::default());
        let mut batches: Vec<_> = Vec::new();
        while let Some(batch) = engine.poll_batch() {
            batches.push(batch.clone());
            engine.handle_persisted();
        }
        for batch in batches {
            file.write(&batch).unwrap();
            model.write(&batch);
        }
        if number % 13 == 0 {
            drop(file);
            let (reopened, saved) = File::open(&at).unwrap();
            assert_eq!(saved, model);
            file = reopened;
        }
    }
    let rest = engine.poll_rest().unwrap();
    file.write(&rest).unwrap();
    drop(file);
    assert_eq!(File::open(&at).unwrap().1, *engine.saved());
    assert!(engine.saved().compacted.index > 30);
}

#[test]
fn decay_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let at = path(&dir, 1);
    let (net, stores) = cluster(&dir, 1);
    let value = "a value that can be found in the file";
    put(&stores[0], "a", value);
    net.stop(1);
    let mut bytes = std::fs::read(&at).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - value.len()).filter(|it| bytes[*it..].starts_with(value.as_bytes())).collect();
    assert!(places.len() >= 2, "in the log and in the record");
    for place in places {
        bytes[place + 3] ^= 1;
        std::fs::write(&at, &bytes).unwrap();
        assert!(matches!(File::open(&at), Err(FileError::Damaged { .. })), "at {place}");
        bytes[place + 3] ^= 1;
    }
    std::fs::write(&at, &bytes).unwrap();
    assert!(File::open(&at).is_ok());
}

/// The path of the file for [`a_child_that_commits`].
const CHILD_FILE: &str = "URSA_TEST_RECORD";

#[test]
fn acknowledged_commits_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let at = path(&dir, 1);
    drop(File::create(&at, &Saved::founding(5, node(1))).unwrap());
    let mut told = 0;
    for round in 1..=4 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "--nocapture", "embedded::a_child_that_commits"]);
        child.env(CHILD_FILE, &at).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let revisions = lines.filter_map(|line| line.strip_prefix("committed ")?.parse::<u64>().ok());
        let last = revisions.take(100 + 37 * round).last().expect("it commits");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(last > told, "it went on where it had been");
        told = last;
        // The state as the disk has it: whatever was committed is applied or in the log.
        let (_, saved) = File::open(&at).unwrap();
        saved.check();
        let mut engine = Engine::new(saved, Settings::new(9));
        while engine.poll_batch().is_some() {
            engine.handle_persisted();
        }
        assert!(engine.record().revision().0 >= told, "{} and {told}", engine.record().revision());
        let value = engine.record().get(&format!("k{}", told % 10)).map(|it| it.value.to_vec());
        assert!(value.is_some_and(|it| u64::from_le_bytes(it.try_into().unwrap()) >= told));
    }
}

#[test]
#[ignore = "a process of its own, which another test starts and kills"]
fn a_child_that_commits() {
    let Some(at) = std::env::var_os(CHILD_FILE) else { return };
    let net = Net::default();
    let store = net.start(Path::new(&at), 1);
    let mut next = store.list("", SOON).wait().unwrap().revision.0 + 1;
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        let change = Transaction::new(op_id()).put(&format!("k{}", next % 10), next.to_le_bytes());
        assert_eq!(store.cas(change, SOON).wait(), Ok(Outcome::Committed(Revision(next))));
        println!("committed {next}");
        next += 1;
    }
}

/// A small file system in memory. It exists until this is dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    const BYTES: usize = 64 << 20;

    /// `None`: this user may not mount.
    fn mount() -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={}", SmallDisk::BYTES);
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then(|| SmallDisk(dir))
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    fn fill(&self) {
        let full = std::fs::write(self.filler(), vec![0; SmallDisk::BYTES]);
        assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    }

    fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn stalled(store: &Store) -> Option<Stall> {
    store.status(SOON).wait().unwrap().stalled
}

/// Waits until the condition holds, as long as a person would.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_voter_that_cannot_read_what_later_versions_write_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (net, stores) = cluster(&dir, 3);
    put(&stores[0], "a", "1");
    let leader = stores[0].status(SOON).wait().unwrap().leader;
    let older = if leader == Some(3) { 2 } else { 3 };
    let others = [0, 4 - usize::from(older)];
    let store = &stores[usize::from(older) - 1];
    net.older.store(older, Ordering::Relaxed);
    put(&stores[0], "a", "2");
    until("it says so", || stalled(store) == Some(Stall::Unreadable));
    until("also to those who ask its thread nothing", || {
        net.nodes.lock().unwrap()[&node(older)].stalled() == Some(Stall::Unreadable)
    });
    assert_eq!(others.map(|index| stalled(&stores[index])), [None, None]);
    net.older.store(0, Ordering::Relaxed);
    until("it follows again", || stalled(store).is_none());
    assert_eq!(get(store, "a").as_deref(), Some("2"));
}

#[test]
fn a_full_disk_suspends_a_voter_only_until_there_is_space() {
    let Some(small) = SmallDisk::mount() else {
        eprintln!("passed over: this user may not mount a file system");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (net, mut stores) = cluster(&dir, 3);
    // Node 1, the leader.
    net.stop(1);
    let full = small.0.path().join("record.db");
    std::fs::copy(path(&dir, 1), &full).unwrap();
    stores[0] = net.start(&full, 1);
    until("it leads again or follows", || stores[0].status(SOON).wait().unwrap().quorum);
    let mut watch = stores[0].watch(Revision(0), SOON).wait().unwrap();

    small.fill();
    let value = "v".repeat(64 << 10);
    let mut last = Revision(0);
    for number in 0..40 {
        // During an election a change may get no answer in time.
        until("the others go on", || {
            match stores[1].cas(Transaction::new(op_id()).put(&format!("key/{number}"), &*value), SOON).wait()
            {
                Ok(Outcome::Committed(revision)) => {
                    last = revision;
                    true
                }
                other => {
                    assert!(matches!(other, Err(Error::OutcomeUnknown | Error::NoLeader)), "{other:?}");
                    false
                }
            }
        });
    }
    until("the full one says so", || stalled(&stores[0]) == Some(Stall::NoSpace));
    assert_eq!((stalled(&stores[1]), stalled(&stores[2])), (None, None));
    assert_eq!(stores[0].get("key/0", SOON).wait().err(), Some(Error::Stalled(Stall::NoSpace)));
    let refused = stores[0].cas(Transaction::new(op_id()).put("a", "b"), SOON).wait();
    assert_eq!(refused.err(), Some(Error::Stalled(Stall::NoSpace)), "nothing was changed");
    let status = stores[0].status(SOON).wait().unwrap();
    assert_eq!((status.leader, status.quorum), (None, false));

    small.make_room();
    until("it takes part again", || stalled(&stores[0]).is_none());
    assert_eq!(get(&stores[0], "key/39"), Some(value.clone()));
    // Its vote counts again: together with one of the others.
    net.stop(3);
    let mut more = Revision(0);
    until("its vote counts", || {
        let outcome = stores[0].cas(Transaction::new(op_id()).put("key/40", &*value), SOON).wait();
        if let Ok(Outcome::Committed(revision)) = outcome {
            more = revision;
        }
        more > last
    });
    // A watch that followed all the time has seen every change once, in order.
    let mut seen = Revision(0);
    while seen < more {
        let event = watch.wait(SOON).unwrap().expect("it is told of all");
        assert!(event.revision() > seen, "{:?} after {seen:?}", event.revision());
        if let Event::Change(change) = &event {
            assert_eq!(change.revision.0, seen.0 + 1);
        }
        seen = event.revision();
    }
    // The content of the file is consistent.
    net.stop(1);
    let (_, saved) = File::open(&full).unwrap();
    assert_eq!(saved.record.revision(), more);
}
