//! Two nodes. The second one, as permitted, continues alone when the first is lost; and what happens when the
//! first one is back.

use cluster::memory::Fault;
use node::control::{ControlError, ForkDecision};
use node::copies::{Awaited, Copies, SplitBrainPolicy, StandingEntry};
use node::member::{ForkShown, ForkState};

use rt::sim::DiskLatency;

use super::syncs::sync_of;
use super::*;

/// Longer than the silence after which a node continues alone, and leases.
pub(super) const GOES_ON: Duration = Duration::from_secs(8);

/// The node that decides, and the other one.
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;

pub(super) fn record_node(index: usize) -> cluster::NodeId {
    cluster::NodeId::new(index as u16 + 1).unwrap()
}

impl Cluster {
    /// Two nodes with a volume with which a node may continue alone.
    pub(super) fn of_two(seed: u64) -> Cluster {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.choose(SplitBrainPolicy::Heartbeat).unwrap();
        // The second node has no vote by now, and knows that it may continue alone.
        cluster.world.run_for(Duration::from_secs(5));
        cluster
    }

    /// The two are cut off from each other, both have continued, and both have written some of the same
    /// blocks.
    pub(super) fn both_gone_on(seed: u64) -> Cluster {
        let cluster = Cluster::of_two(seed);
        cluster.put(A, 0..10, 1);
        cluster.cut_nodes();
        cluster.world.run_for(GOES_ON);
        cluster.put(A, 0..5, 100);
        cluster.put(B, 3..8, 200);
        cluster
    }

    fn choose(&self, policy: SplitBrainPolicy) -> Result<node::control::PolicyChange, ControlError> {
        self.control(A, move |control| async move {
            control.set_split_brain_policy("thick", policy, "test").await
        })
    }

    /// Crashes the node that decides: the other one does not reach the record any more.
    pub(super) fn lose_a(&self) {
        self.world.crash(self.servers[A]);
        self.record.begin(record_node(B), Fault::Unreachable);
    }

    pub(super) fn return_a(&self) {
        self.record.end(record_node(B), Fault::Unreachable);
        self.start(A);
    }

    pub(super) fn cut_nodes(&self) {
        self.world.cut(self.servers[A], self.servers[B]);
        self.record.begin(record_node(B), Fault::Unreachable);
    }

    pub(super) fn heal_nodes(&self) {
        self.record.end(record_node(B), Fault::Unreachable);
        self.world.heal_all();
    }

    pub(super) fn fork(&self, index: usize) -> Option<ForkShown> {
        self.control(index, |control| async move {
            let volumes = control.reconciler().unwrap().volumes();
            volumes.into_iter().find(|volume| volume.entry.name == "thick").and_then(|volume| volume.fork)
        })
    }

    pub(super) fn serves(&self, index: usize) -> bool {
        self.control(index, |control| async move {
            let volumes = control.reconciler().unwrap().volumes();
            volumes.iter().any(|volume| volume.entry.name == "thick" && volume.serving)
        })
    }

    pub(super) fn wait_until_split(&self) {
        let split = || self.fork(A).is_some_and(|fork| fork.state == ForkState::Split);
        assert!(self.world.run_until(split, Duration::from_secs(15)), "{:?}", self.fork(A));
        // And what is shown of the paths.
        self.world.run_for(Duration::from_millis(500));
    }

    pub(super) fn resolve(&self, asked: usize, keep: usize) -> Result<(), ControlError> {
        self.control(
            asked,
            move |control| async move { control.resolve_fork("thick", keep as u16 + 1).await },
        )
    }

    /// What such a decision would do.
    pub(super) fn would_resolve(&self, asked: usize, keep: usize) -> Result<ForkDecision, ControlError> {
        self.control(asked, move |control| async move { control.check_fork("thick", keep as u16 + 1).await })
    }

    /// Waits until both copies are in sync and serve, and checks that they are equal.
    pub(super) fn wait_until_one(&self) {
        self.wait_until_in_sync(A, 2);
        self.wait_until_all_serve();
        self.world.run_for(Duration::from_secs(1));
        assert_eq!((self.fork(A), self.fork(B)), (None, None));
        assert_eq!(self.checksum(A), self.checksum(B));
    }

    /// Writes `value` to each of these blocks through a node.
    pub(super) fn put(&self, through: usize, blocks: std::ops::Range<u64>, value: u64) {
        let (client, portal) = (self.client("writer"), self.portal(through));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "writer").await.expect("it serves");
            for lba in blocks {
                write(&session, lba, value).await.unwrap();
            }
        });
    }

    pub(super) fn read_block(&self, through: usize, lba: u64) -> u64 {
        let (client, portal) = (self.client("reader"), self.portal(through));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "reader").await.expect("it serves");
            read(&session, lba).await.unwrap()
        })
    }

    fn hosts(&self, rng: &mut Rng) -> Hosts {
        let seen = || Rc::new(RefCell::new(vec![Vec::new(); HOT as usize]));
        let mut hosts = Hosts { through: [seen(), seen()], time: Rc::default(), machines: Vec::new() };
        for (number, through) in [A, A, B, B].into_iter().enumerate() {
            let name = format!("client-{}", (b'a' + number as u8) as char);
            let (client, portal) = (self.client(&name), self.portal(through));
            let (history, time) = (Rc::clone(&hosts.through[through]), Rc::clone(&hosts.time));
            let rng = rng.fork();
            drop(self.world.spawn_on(client, CoreId(0), move || worker(portal, name, history, time, rng)));
            hosts.machines.push(client);
        }
        hosts
    }

    /// Whether both nodes serve one disk: both have every write that was acknowledged until now.
    fn is_one(&self) -> bool {
        let together = |index| self.serves(index) && self.fork(index).is_none() && self.in_sync(index) == 2;
        [A, B].into_iter().all(together)
    }

    pub(super) fn restart_b(&self, after: Duration) {
        self.world.crash(self.servers[B]);
        self.world.run_for(after);
        self.start(B);
    }
}

/// Hosts of both nodes.
struct Hosts {
    /// What the hosts of each node saw.
    through: [History; 2],
    time: Rc<Cell<u64>>,
    machines: Vec<NodeId>,
}

impl Hosts {
    /// What all saw of one disk.
    fn all(&self) -> Vec<Vec<Op>> {
        let [a, b] = [A, B].map(|index| self.through[index].borrow().clone());
        a.into_iter().zip(b).map(|(a, b)| [a, b].concat()).collect()
    }

    /// What the hosts of node `kept` saw. Writes of the other node's hosts after `until` may or may not be
    /// there.
    fn of(&self, kept: usize, until: u64) -> Vec<Vec<Op>> {
        let mut seen = self.through[kept].borrow().clone();
        for (kept, other) in seen.iter_mut().zip(&*self.through[1 - kept].borrow()) {
            let writes = other.iter().filter(|op| op.kind == Kind::Write).copied();
            kept.extend(writes.map(|op| Op { reply: if op.reply > until { NEVER } else { op.reply }, ..op }));
        }
        seen
    }
}

fn goes_on(seed: u64) {
    let cluster = Cluster::of_two(seed);
    cluster.put(A, 0..20, 1);
    cluster.lose_a();
    cluster.world.run_for(Duration::from_secs(4));
    assert!(!cluster.serves(B), "the silence has not lasted long enough");
    cluster.world.run_for(Duration::from_secs(4));
    assert!(cluster.serves(B));
    assert_eq!(cluster.fork(B).unwrap().state, ForkState::Alone);
    assert_eq!(cluster.read_block(B, 19), 1);
    cluster.put(B, 10..30, 2);
    cluster.return_a();
    cluster.wait_until_one();
    for (lba, value) in [(0, 1), (9, 1), (10, 2), (29, 2), (30, 0)] {
        assert_eq!((cluster.read_block(A, lba), cluster.read_block(B, lba)), (value, value));
    }
    // And once more, from there.
    cluster.lose_a();
    cluster.world.run_for(GOES_ON);
    cluster.put(B, 0..5, 3);
    cluster.return_a();
    cluster.wait_until_one();
    assert_eq!((cluster.read_block(A, 4), cluster.read_block(A, 5)), (3, 1));
}

#[test]
fn the_other_node_continues_and_its_writes_count() {
    each_seed(3, goes_on);
}

/// One node at a time is lost, at any moment, and the first one never starts while the second is down: there
/// is no split brain, and hosts see one disk.
fn one_at_a_time(seed: u64) {
    let mut rng = Rng::new(seed);
    let cluster = Cluster::of_two(seed);
    let hosts = cluster.hosts(&mut rng);
    cluster.world.run_for(Duration::from_secs(1));
    for _ in 0..3 {
        cluster.lose_a();
        cluster.world.run_for(Duration::from_millis(rng.below(12_000)));
        if rng.one_in(2) {
            cluster.restart_b(Duration::from_millis(rng.below(3000)));
            cluster.world.run_for(Duration::from_millis(rng.below(10_000)));
        }
        let held = [A, B].into_iter().filter(|_| rng.one_in(3)).collect::<Vec<_>>();
        held.iter().for_each(|index| cluster.record.begin(record_node(*index), Fault::WatchHeld));
        cluster.return_a();
        cluster.world.run_for(Duration::from_millis(rng.below(4000)));
        match rng.below(4) {
            // Back, and lost again in the middle of it.
            0 => {
                cluster.lose_a();
                cluster.world.run_for(Duration::from_millis(rng.below(8000)));
                cluster.return_a();
            }
            1 => cluster.restart_b(Duration::from_millis(rng.below(1500))),
            _ => {}
        }
        held.iter().for_each(|index| cluster.record.end(record_node(*index), Fault::WatchHeld));
        cluster.wait_until_in_sync(A, 2);
        cluster.world.run_for(Duration::from_millis(rng.below(3000)));
    }
    cluster.world.run_for(Duration::from_secs(3));
    cluster.wait_until_in_sync(A, 2);
    assert_eq!((cluster.fork(A), cluster.fork(B)), (None, None), "seed {seed}");
    check_all(seed, &hosts.all());
}

#[test]
fn hosts_see_one_disk_while_one_node_at_a_time_is_lost() {
    each_seed(std::env::var("URSA_SEEDS").map_or(10, |seeds| seeds.parse().unwrap()), one_at_a_time);
}

fn split(seed: u64) {
    for (asked, keep) in [(A, A), (A, B), (B, A), (B, B)] {
        let cluster = Cluster::both_gone_on(seed);
        let before = [A, B].map(|index| cluster.checksum(index));
        cluster.heal_nodes();
        cluster.wait_until_split();
        assert!(cluster.serves(A) && !cluster.serves(B), "who has the record serves");
        cluster.world.run_for(Duration::from_secs(10));
        assert_eq!([A, B].map(|index| cluster.checksum(index)), before, "nothing is merged or discarded");
        let waits_for = sync_of(&cluster, A, 2).unwrap().waits_for.unwrap();
        assert_eq!(waits_for.awaited, Awaited::Decision { volume: "thick".into() });
        if seed % 2 == 1 {
            cluster.restart_b(Duration::from_secs(1));
            cluster.world.crash(cluster.servers[A]);
            cluster.start(A);
            cluster.world.run_for(Duration::from_secs(10));
            assert_eq!([A, B].map(|index| cluster.checksum(index)), before, "after restarts neither");
        }
        assert!(cluster.serves(A) && !cluster.serves(B));
        let told = cluster.would_resolve(asked, keep).unwrap();
        let expected = if keep == A { (vec![2], None) } else { (vec![1], Some(1)) };
        assert_eq!((told.given_up, told.stops), expected);
        assert!(cluster.serves(A) && !cluster.serves(B), "that was only asked");
        assert_eq!([A, B].map(|index| cluster.checksum(index)), before, "that was only asked");
        cluster.resolve(asked, keep).unwrap();
        cluster.wait_until_one();
        let expected = if keep == A { [(0, 100), (4, 100), (5, 1)] } else { [(0, 1), (4, 200), (7, 200)] };
        for (lba, value) in expected {
            assert_eq!((cluster.read_block(A, lba), cluster.read_block(B, lba)), (value, value));
        }
        assert!(matches!(cluster.would_resolve(A, A), Err(ControlError::NoFork(_))));
        assert!(matches!(cluster.resolve(A, A), Err(ControlError::NoFork(_))));
    }
}

#[test]
fn a_cut_with_writes_on_both_sides_is_a_split_and_somebody_decides() {
    each_seed(4, split);
}

#[test]
fn a_cut_with_hosts_on_one_side_only_settles_itself() {
    each_seed(5, |seed| {
        let cluster = Cluster::of_two(seed);
        let (client, portal) = (cluster.client("writer-a"), cluster.portal(A));
        let (written, stop) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (told, asked) = (Rc::clone(&written), Rc::clone(&stop));
        drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "writer-a").await.unwrap();
            while !asked.get() {
                let value = told.get() + 1;
                write(&session, value % 100, value).await.unwrap();
                told.set(value);
            }
        }));
        cluster.world.run_for(Duration::from_secs(1));
        cluster.cut_nodes();
        cluster.world.run_for(GOES_ON);
        assert!(cluster.serves(B), "it has gone on, and nobody came");
        cluster.heal_nodes();
        cluster.world.run_for(Duration::from_secs(1));
        stop.set(true);
        cluster.wait_until_one();
        let last = written.get();
        assert_eq!(cluster.read_block(B, last % 100), last);
    });
}

/// The first node starts while it cannot reach the second for a moment.
fn a_start_behind_a_cut(seed: u64) {
    let cluster = Cluster::of_two(seed);
    cluster.lose_a();
    cluster.world.run_for(GOES_ON);
    cluster.put(B, 0..10, 2);
    cluster.world.cut(cluster.servers[A], cluster.servers[B]);
    cluster.start(A);
    cluster.world.run_for(Duration::from_secs(3));
    assert!(!cluster.serves(A));
    cluster.heal_nodes();
    cluster.wait_until_one();
    assert_eq!(cluster.read_block(A, 9), 2);
}

#[test]
fn a_starting_node_waits_until_it_hears_from_the_other() {
    each_seed(3, a_start_behind_a_cut);
}

/// Any fault may happen at any time. Without a split brain, hosts see one disk.
///
/// After a split brain, nothing on either side is lost before the administrator's decision, and nothing of
/// what he keeps afterwards (A14). In any case both copies are equal in the end.
fn anything(seed: u64) -> bool {
    let mut rng = Rng::new(seed);
    let cluster = Cluster::of_two(seed);
    let hosts = cluster.hosts(&mut rng);
    let mut down = [false, false];
    let mut cut = false;
    let mut one_until = 0;
    for _ in 0..8 {
        cluster.world.run_for(Duration::from_millis(rng.below(9000)));
        if down == [false, false] && !cut && cluster.is_one() {
            one_until = hosts.time.get();
        }
        match rng.below(6) {
            kind @ 0..=2 => {
                let index = usize::from(kind == 0);
                down[index] = !down[index];
                match down[index] {
                    true => cluster.world.crash(cluster.servers[index]),
                    false => cluster.start(index),
                }
            }
            3 if cut => {
                cluster.world.heal_all();
                cut = false;
            }
            3 => {
                cluster.world.cut(cluster.servers[A], cluster.servers[B]);
                cut = true;
            }
            4 => cluster.record.begin(record_node(rng.below(2) as usize), Fault::WatchHeld),
            _ => [A, B].iter().for_each(|index| cluster.record.end(record_node(*index), Fault::WatchHeld)),
        }
        if cut || down[A] {
            cluster.record.begin(record_node(B), Fault::Unreachable);
        } else {
            cluster.record.end(record_node(B), Fault::Unreachable);
        }
    }
    [A, B].iter().for_each(|index| cluster.record.end(record_node(*index), Fault::WatchHeld));
    cluster.heal_nodes();
    [A, B].into_iter().filter(|index| down[*index]).for_each(|index| cluster.start(index));
    let split = || cluster.fork(A).is_some_and(|fork| fork.state == ForkState::Split);
    let ended = || split() || cluster.in_sync(A) == 2;
    assert!(cluster.world.run_until(ended, Duration::from_secs(60)), "seed {seed}: {:?}", cluster.fork(B));
    cluster.world.run_for(Duration::from_secs(8));
    if split() {
        // A node with the record serves until then, too; hosts' commands in the nodes end within a moment.
        hosts.machines.iter().for_each(|machine| cluster.world.kill(*machine));
        cluster.world.run_for(Duration::from_secs(3));
        let before = [A, B].map(|index| cluster.checksum(index));
        cluster.world.run_for(Duration::from_secs(10));
        assert_eq!([A, B].map(|index| cluster.checksum(index)), before, "seed {seed}: unasked");
        let keep = rng.below(2) as usize;
        cluster.resolve(rng.below(2) as usize, keep).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        cluster.wait_until_in_sync(A, 2);
        cluster.world.run_for(Duration::from_secs(8));
        assert_eq!((cluster.fork(A), cluster.fork(B)), (None, None), "seed {seed}");
        for index in [A, B] {
            assert_eq!(cluster.checksum(index), before[keep], "seed {seed}: of what was kept");
        }
        let mut kept = hosts.of(keep, one_until);
        for (lba, ops) in kept.iter_mut().enumerate() {
            let call = hosts.time.get() + 1;
            let value = cluster.read_block(A, lba as u64);
            ops.push(Op { kind: Kind::Read, value, call, reply: call + 1 });
        }
        check_each(seed, &kept);
        return true;
    }
    cluster.wait_until_in_sync(A, 2);
    cluster.world.run_for(Duration::from_secs(3));
    check_each(seed, &hosts.all());
    false
}

#[test]
fn whatever_happens_the_volume_is_one_disk_or_reported_as_split() {
    let splits = Cell::new(0);
    let seeds = std::env::var("URSA_SEEDS").map_or(12, |seeds| seeds.parse().unwrap());
    each_seed(seeds, |seed| splits.set(splits.get() + u64::from(anything(seed))));
    println!("{} of {seeds} were split", splits.get());
    assert!(splits.get() > 0, "what is said of splits was never looked at");
}

#[test]
fn a_copy_missing_when_the_other_was_lost_does_not_continue_alone() {
    each_seed(3, |seed| {
        let cluster = Cluster::of_two(seed);
        cluster.put(A, 0..10, 1);
        cluster.lose_a();
        cluster.restart_b(Duration::from_secs(1));
        cluster.world.run_for(Duration::from_secs(20));
        assert!(!cluster.serves(B), "its last life had not gone on alone");
        cluster.return_a();
        cluster.wait_until_one();
    });
}

/// The first node has continued without the second, which does not know of it.
fn left_behind(seed: u64) {
    let cluster = Cluster::of_two(seed);
    cluster.record.begin(record_node(B), Fault::WatchHeld);
    cluster.record.begin(record_node(B), Fault::Unreachable);
    cluster.world.cut(cluster.servers[A], cluster.servers[B]);
    cluster.world.run_for(Duration::from_secs(3));
    cluster.world.heal_all();
    cluster.put(A, 0..10, 1);
    cluster.world.run_for(Duration::from_secs(1));
    cluster.world.crash(cluster.servers[A]);
    cluster.world.run_for(Duration::from_secs(15));
    assert!(!cluster.serves(B) && cluster.fork(B).is_none());
    cluster.record.end(record_node(B), Fault::WatchHeld);
    cluster.return_a();
    cluster.wait_until_one();
    assert_eq!(cluster.read_block(B, 9), 1);
}

#[test]
fn an_outdated_copy_does_not_continue_alone() {
    each_seed(3, left_behind);
}

/// Two nodes with a volume in files, with which B may continue alone. B has hardly any space left.
fn almost_full(seed: u64) -> Cluster {
    let cluster = full_disks::of_nodes(seed, 2, 2);
    cluster.choose(SplitBrainPolicy::Heartbeat).unwrap();
    // The second node has no vote by now, and knows that it may continue alone.
    cluster.world.run_for(Duration::from_secs(5));
    full_disks::fill(&cluster, B, 16 << 10);
    cluster
}

/// Whether a copy on B has found no space.
fn is_short(cluster: &Cluster) -> bool {
    (0..2).any(|core| {
        cluster.world.inspect(cluster.servers[B], CoreId(core), || {
            Copies::current().slices().iter().any(|copy| copy.has_no_room())
        })
    })
}

/// B has no space for what a host writes through A, and asks the record to take its copy out of sync.
fn run_out_of_space(cluster: &Cluster) {
    let (client, portal) = (cluster.client("writer"), cluster.portal(A));
    let writer = move || async move {
        let session = log_in(portal, "writer").await.expect("it serves");
        for number in 1..20 {
            let _ = write(&session, full_disks::place(number), number).await;
        }
    };
    drop(cluster.world.spawn_on(client, CoreId(0), writer));
    assert!(cluster.world.run_until(|| is_short(cluster), Duration::from_secs(5)));
    cluster.world.run_for(Duration::from_millis(100));
}

/// Whether the record takes B's copy out of sync, is not known before A is back.
#[test]
fn a_copy_that_may_have_taken_itself_out_does_not_continue_alone() {
    each_seed(4, |seed| {
        let cluster = almost_full(seed);
        cluster.record.begin(record_node(B), Fault::Unreachable);
        run_out_of_space(&cluster);
        cluster.world.crash(cluster.servers[A]);
        full_disks::make_room(&cluster, B);
        cluster.world.run_for(GOES_ON);
        assert!(!cluster.serves(B) && cluster.fork(B).is_none());
        cluster.return_a();
        cluster.wait_until_one();
    });
}

/// The record has refused for certain to take B's copy out of sync.
#[test]
fn a_copy_that_could_not_take_itself_out_continues_alone() {
    each_seed(4, |seed| {
        let cluster = almost_full(seed);
        cluster.record.begin(record_node(B), Fault::Unreachable);
        // It takes no more requests of this node.
        let store = cluster.record.store(record_node(B));
        for _ in 0..cluster::limits::CALLS_MAX {
            drop(store.get("nothing", Duration::from_secs(1)));
        }
        run_out_of_space(&cluster);
        cluster.world.crash(cluster.servers[A]);
        full_disks::make_room(&cluster, B);
        cluster.world.run_for(GOES_ON);
        assert!(cluster.serves(B) && cluster.fork(B).is_some());
        cluster.return_a();
        cluster.wait_until_one();
    });
}

/// The request to take B's copy out of sync was lost, and there is space again: once B knows that its copy is
/// in sync still, it may continue alone.
#[test]
fn a_copy_that_has_stayed_in_sync_after_all_continues_alone() {
    each_seed(4, |seed| {
        let cluster = almost_full(seed);
        cluster.record.begin(record_node(B), Fault::RequestsLost);
        run_out_of_space(&cluster);
        full_disks::make_room(&cluster, B);
        assert!(cluster.world.run_until(|| !is_short(&cluster), Duration::from_secs(15)));
        assert_eq!(cluster.in_sync(A), 2);
        cluster.record.end(record_node(B), Fault::RequestsLost);
        // The node gives up the request, and asks again in another way.
        cluster.world.run_for(Duration::from_secs(5));
        cluster.lose_a();
        cluster.world.run_for(GOES_ON);
        assert!(cluster.serves(B) && cluster.fork(B).is_some());
        cluster.return_a();
        cluster.wait_until_one();
    });
}

fn unasked(seed: u64) {
    let cluster = Cluster::of_two(seed);
    cluster.control(A, |control| async move {
        let other = Shape { name: "plain", ..Shape::thick() };
        let copies = Some(Placement::Count(2));
        let new = node::control::NewVolume { copies, ..new_volume(POOL, other) };
        control.create_volume(new).await.unwrap();
    });
    cluster.world.run_for(Duration::from_secs(1));
    cluster.lose_a();
    cluster.world.run_for(GOES_ON);
    let serving = cluster.control(B, |control| async move {
        let volumes = control.reconciler().unwrap().volumes();
        volumes.into_iter().map(|volume| (volume.entry.name, volume.serving)).collect::<BTreeMap<_, _>>()
    });
    assert_eq!(serving, BTreeMap::from([("plain".into(), false), ("thick".into(), true)]));
    cluster.return_a();
    cluster.world.run_for(Duration::from_secs(15));
    cluster.wait_until_one();
    cluster.choose(SplitBrainPolicy::Prefer).unwrap();
    cluster.world.run_for(Duration::from_secs(1));
    cluster.lose_a();
    cluster.world.run_for(GOES_ON * 2);
    assert!(!cluster.serves(B) && cluster.fork(B).is_none(), "that was taken back");
}

#[test]
fn no_node_continues_alone_unasked() {
    each_seed(2, unasked);
}

#[test]
fn a_fork_that_cannot_be_recorded_does_not_begin() {
    each_seed(2, |seed| {
        let cluster = Cluster::of_two(seed);
        cluster.put(A, 0..10, 1);
        cluster.world.set_disk_dead(cluster.servers[B], "/ursa/record", true);
        cluster.lose_a();
        cluster.world.run_for(GOES_ON * 2);
        assert!(!cluster.serves(B));
        cluster.world.set_disk_dead(cluster.servers[B], "/ursa/record", false);
        cluster.return_a();
        cluster.wait_until_in_sync(A, 2);
        // And a start is like any other.
        cluster.restart_b(Duration::from_secs(1));
        cluster.wait_until_one();
    });
}

/// The disk fails while the fork is being stored: it is unknown whether it was. Then there are no faults for
/// long, and later the node is lost like any other.
fn half_written(seed: u64) {
    for part in 0..24 {
        let cluster = Cluster::of_two(seed);
        cluster.put(A, 0..10, 1);
        cluster.lose_a();
        assert!(cluster.world.run_until(|| cluster.fork(B).is_some(), GOES_ON), "it begins");
        cluster.world.run_for(Duration::from_micros(500 * part));
        cluster.world.set_disk_dead(cluster.servers[B], "/ursa/record", true);
        cluster.world.run_for(GOES_ON);
        cluster.world.set_disk_dead(cluster.servers[B], "/ursa/record", false);
        if cluster.serves(B) {
            assert!(part > 0, "it is written down at once");
            return;
        }
        cluster.return_a();
        cluster.wait_until_one();
        cluster.world.crash(cluster.servers[B]);
        cluster.world.run_for(Duration::from_secs(3));
        cluster.put(A, 5..15, 2);
        cluster.start(B);
        cluster.wait_until_one();
        assert_eq!((cluster.read_block(B, 4), cluster.read_block(B, 14)), (1, 2));
    }
    panic!("it is never written down");
}

#[test]
fn a_recorded_fork_that_did_not_begin_is_void() {
    each_seed(3, half_written);
}

/// The nodes reach each other again while the fork is being stored, and the second one does not reach the
/// record yet.
fn heard_while_it_is_written(seed: u64) {
    let cluster = Cluster::of_two(seed);
    cluster.put(A, 0..10, 1);
    let (record, second) = ("/ursa/record", cluster.servers[B]);
    let slow = Duration::from_millis(500)..Duration::from_millis(600);
    cluster.world.set_disk_latency(second, record, DiskLatency { flush: slow, ..DiskLatency::default() });
    cluster.cut_nodes();
    assert!(cluster.world.run_until(|| cluster.fork(B).is_some(), GOES_ON), "it begins");
    cluster.world.heal_all();
    cluster.put(A, 0..5, 100);
    for _ in 0..100 {
        cluster.world.run_for(Duration::from_millis(100));
        assert!(!cluster.serves(B), "it goes on alone, and the other node is there and serves");
    }
    cluster.world.set_disk_latency(second, record, DiskLatency::default());
    cluster.heal_nodes();
    cluster.wait_until_one();
    assert_eq!((cluster.read_block(B, 4), cluster.read_block(B, 9)), (100, 1));
}

#[test]
fn a_fork_does_not_begin_when_the_other_node_was_heard_again() {
    each_seed(3, heard_while_it_is_written);
}

/// An administrator decides while the node that is to discard its data still serves, and continues to serve.
fn word_before_the_end(seed: u64) {
    let cluster = Cluster::both_gone_on(seed);
    // The nodes reach each other, and the second one does not reach the record.
    cluster.world.heal_all();
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(cluster.fork(A).unwrap().state, ForkState::Alone);
    cluster.resolve(A, A).unwrap();
    cluster.cut_nodes();
    cluster.world.run_for(Duration::from_secs(1));
    cluster.put(B, 20..25, 300);
    cluster.heal_nodes();
    cluster.wait_until_split();
    cluster.resolve(A, B).unwrap();
    cluster.wait_until_one();
    assert_eq!([4, 7, 24].map(|lba| cluster.read_block(A, lba)), [200, 200, 300]);
}

#[test]
fn a_decision_covers_only_what_existed_when_it_was_made() {
    each_seed(3, word_before_the_end);
}

fn stopped_while_alone(seed: u64) {
    let cluster = Cluster::of_two(seed);
    cluster.lose_a();
    cluster.world.run_for(GOES_ON);
    cluster.put(B, 0..10, 7);
    cluster.stop(&[B]);
    cluster.start(B);
    cluster.world.run_for(Duration::from_secs(3));
    assert!(!cluster.serves(B), "the other one may be back");
    cluster.world.run_for(GOES_ON);
    assert_eq!(cluster.read_block(B, 9), 7);
    cluster.put(B, 10..20, 8);
    cluster.return_a();
    cluster.wait_until_one();
    assert_eq!((cluster.read_block(A, 9), cluster.read_block(A, 19)), (7, 8));
}

#[test]
fn a_node_that_continues_alone_is_restarted() {
    each_seed(2, stopped_while_alone);
}

/// Neither reaches the record for a while: the first one still believes that the second is with it.
fn left_without_lease(seed: u64) {
    let cluster = Cluster::of_two(seed);
    cluster.put(A, 0..10, 1);
    cluster.record.begin(record_node(A), Fault::Unreachable);
    cluster.cut_nodes();
    cluster.world.run_for(GOES_ON);
    cluster.put(B, 0..10, 2);
    cluster.world.heal_all();
    cluster.world.run_for(Duration::from_secs(5));
    assert!(!cluster.serves(A), "what it has is old");
    assert!(cluster.serves(B));
    // When the record answers, one of them is faster: the first one removes the second, or the second one
    // records that it has continued.
    cluster.record.end(record_node(A), Fault::Unreachable);
    cluster.record.end(record_node(B), Fault::Unreachable);
    cluster.world.run_for(Duration::from_secs(5));
    if cluster.fork(A).is_some() {
        assert!(!cluster.serves(B));
        cluster.resolve(A, B).unwrap();
    }
    cluster.wait_until_one();
    assert_eq!(cluster.read_block(A, 9), 2);
}

#[test]
fn no_lease_is_granted_to_the_node_left_behind() {
    each_seed(3, left_without_lease);
}

/// The policy allowed a fork while both nodes were there, and was changed while the second continued alone.
#[test]
fn writes_made_alone_are_settled_though_the_agreement_was_revoked() {
    each_seed(2, |seed| {
        let cluster = Cluster::of_two(seed);
        cluster.cut_nodes();
        cluster.world.run_for(GOES_ON);
        cluster.put(B, 0..10, 2);
        cluster.put(A, 0..10, 1);
        cluster.choose(SplitBrainPolicy::Prefer).unwrap();
        cluster.heal_nodes();
        cluster.wait_until_split();
        assert!(matches!(
            cluster.control(A, |control| async move { control.remove_copy("thick", 2).await }),
            Err(ControlError::Forked(_))
        ));
        cluster.resolve(A, B).unwrap();
        cluster.wait_until_one();
        assert_eq!(cluster.read_block(A, 9), 2);
    });
}

#[test]
fn only_volumes_of_two_nodes_can_be_agreed_to() {
    each_seed(1, |seed| {
        let cluster = Cluster::new(seed, 3, 1);
        cluster.add_volume(VolumeKind::Thick, 2);
        let refused = cluster.choose(SplitBrainPolicy::Heartbeat);
        assert!(matches!(refused, Err(ControlError::NotOfTwo { nodes: 3, copies: 2, .. })), "{refused:?}");
        let copies = cluster.control(A, |control| async move { control.reconciler().unwrap().volumes() });
        assert!(copies[0].entry.copies.iter().all(|copy| copy.standing == StandingEntry::InSync));
        let cluster = Cluster::new(seed, 2, 1);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.world.crash(cluster.servers[B]);
        cluster.world.run_for(Duration::from_secs(1));
        assert!(cluster.choose(SplitBrainPolicy::Heartbeat).is_err(), "it must know what it is to do");
    });
}

/// For each rule, one of the scenarios above detects its absence.
#[cfg(debug_assertions)]
#[test]
fn a_rule_that_is_left_out_is_noticed() {
    use node::canary::{Canary, make};
    let cases: [(Canary, fn(u64)); 11] = [
        (Canary::ForkUnasked, unasked),
        (Canary::ForkUnled, left_behind),
        (Canary::ForkThoughHeard, heard_while_it_is_written),
        (Canary::ForkUnwritten, stopped_while_alone),
        (Canary::ForkFollowsRecord, split),
        (Canary::ForkLends, left_without_lease),
        (Canary::GoOnUnheard, a_start_behind_a_cut),
        (Canary::ForkUnused, split),
        (Canary::ForkWordEarly, word_before_the_end),
        (Canary::ForkHalfWritten, half_written),
        (Canary::ForkForgotten, super::fork_ends::set_back),
    ];
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let unnoticed: Vec<Canary> = cases
        .into_iter()
        .filter(|(canary, scenario)| {
            make(Some(*canary));
            let noticed = (1..=3).any(|seed| std::panic::catch_unwind(|| scenario(seed)).is_err());
            make(None);
            !noticed
        })
        .map(|(canary, _)| canary)
        .collect();
    std::panic::set_hook(quiet);
    assert_eq!(unnoticed, []);
}
