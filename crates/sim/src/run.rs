//! A run: faults and load, then no faults, and then the final checks.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, Lba, Rng};
use initiator::command::{PersistentReserveOut, ServiceAction};
use initiator::{Lun, Session};
use rt::CoreId;
use rt::sim::{FaultCounts, NetProfile};

use crate::canary::{self, Canary};
use crate::cluster::{Cluster, Volume, log_in, wait};
use crate::harm::Harms;
use crate::history::{History, filled};
use crate::inside::Inside;
use crate::layout;
use crate::load::hot::attended;
use crate::load::{self, Counts, Hurry};
use crate::media::Media;
use crate::onlooker;
use crate::plan::Plan;
use crate::rot;
use crate::snapshots::Snapshots;

/// Longest time until all copies are in sync again after the last fault, under load (A13).
const IN_SYNC_MAX: Duration = Duration::from_secs(90);
/// Longer than the heartbeat timeout after which the others remove a silent node.
const REMOVAL: Duration = Duration::from_secs(1);
/// Longest time from the loss of a host until its last command in a node has written.
const UNDER_WAY_MAX: Duration = Duration::from_secs(2);
/// Number of the world's events after which faults end. A seed with more events costs as much as ten others.
const EVENTS_MAX: u64 = 400_000;
/// How many faults are drawn, at most, until one can be carried out.
const DRAWS_MAX: usize = 4;
/// Longest time until all dirty maps are empty without I/O: bits stay for five seconds.
const CLEAN_MAX: Duration = Duration::from_secs(30);

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A hash of all events: equal for two runs of one seed.
    pub hash: u64,
    /// Number of events.
    pub events: u64,
    /// Duration of the run, in the world's time.
    pub time: Duration,
    /// How often hosts and faults did what.
    pub counts: BTreeMap<&'static str, u64>,
    /// How often the world's faults took effect.
    pub faults: FaultCounts,
}

/// Executes a plan.
///
/// # Panics
/// If a check fails, with what was violated. The world then prints its seed and its last events.
pub fn run(plan: &Plan, canary: Option<Canary>) -> Outcome {
    canary::make(None);
    let cluster = Cluster::new(plan);
    let counts = Counts::default();
    let histories = History::of_volumes(plan.block, cluster.volumes.len());
    let held: Vec<_> = cluster
        .volumes
        .iter()
        .zip(&histories)
        .map(|(volume, history)| mark(&cluster, volume, history))
        .collect();
    let media = Media::find(&cluster, &held);
    canary::make(canary);
    let epochs = onlooker::start(&cluster, &counts);
    cluster.world.set_net_profile(plan.net_profile());
    for (server, drift) in cluster.servers.iter().zip(&plan.drifts) {
        cluster.world.set_clock_drift(server.machine, *drift);
    }
    let hurry = Hurry::default();
    let hosts = load::start(&cluster, plan, &histories, &counts, &hurry);
    let inside = Inside::new(&cluster, &media, epochs.iter().map(Rc::clone).collect(), plan, &counts);
    let mut harms = Harms::new(&cluster, &histories, &inside, plan, &hosts, &counts, &hurry);
    harms.make(canary);
    harms.snapshots = plan.snapshots.then(|| Snapshots::new(&cluster, plan, &histories, &counts));
    disturb(plan, &mut harms);
    harms.end();
    cluster.world.set_net_profile(NetProfile::default());
    come_in_sync(plan, &mut harms);
    if plan.converts {
        harms.see_conversions_end();
        come_in_sync(plan, &mut harms);
    }
    if let Some(at) = harms.see_snapshot_taken() {
        harms.see_restored(at);
    }
    // Hosts are killed, not stopped: some of them wait for half a minute because a lost command may still
    // take effect.
    hosts.iter().for_each(|host| cluster.world.kill(*host));
    // Their commands that are still in the nodes begin, or end, a moment later.
    cluster.world.run_for(UNDER_WAY_MAX);
    come_to_rest(plan, &cluster);
    if let Some(snapshots) = &harms.snapshots {
        snapshots.settle(plan, &cluster);
    }
    for (volume, history) in cluster.volumes.iter().zip(&histories) {
        read_everywhere(plan, &cluster, volume, history);
    }
    if let Some(snapshots) = &harms.snapshots {
        snapshots.check(plan);
    }
    for (volume, history) in cluster.volumes.iter().zip(&histories) {
        if let Err((sector, violation)) = history.check() {
            let around = history.around(sector, &violation.values());
            panic!("sector {sector} of {}: {violation:?}\n{around}", volume.name);
        }
    }
    rot::check(plan, &cluster, &media, &counts);
    for (volume, epochs) in cluster.volumes.iter().zip(&epochs) {
        let last = epochs.borrow().keys().next_back().copied();
        assert_eq!(last, Some(cluster.entry_of(volume).epoch), "each epoch was seen");
    }
    Outcome {
        hash: cluster.world.log_hash(),
        events: cluster.world.event_count(),
        time: cluster.world.now(),
        counts: counts.all(),
        faults: cluster.world.fault_counts(),
    }
}

/// Writes all watched sectors of a volume, so that they can be found on the disks. Returns the value of each
/// sector.
fn mark(cluster: &Cluster, volume: &Volume, history: &History) -> BTreeMap<u64, u64> {
    let (machine, portal) = (cluster.add_host("marker"), cluster.servers[0].portal);
    let (written, lun, layout) = (history.clone(), volume.lun, volume.layout);
    let exchanged = volume.exchanged();
    let held = cluster.world.block_on(machine, CoreId(0), move || async move {
        let session = log_in(portal, lun, "marker").await.expect("nothing has failed yet");
        let size = written.block_size();
        let mut held = BTreeMap::new();
        for block in layout.hot(size).into_iter().flatten().chain([layout.quiet(size)]) {
            // Each sector gets its own value, so that it differs from the block's other sectors.
            let values: Vec<(u64, u64)> =
                written.sectors_of(block).map(|sector| (sector, written.value())).collect();
            let data: Vec<u8> =
                values.iter().flat_map(|(_, value)| value.to_le_bytes().repeat(layout::SECTOR / 8)).collect();
            let begun = written.begin_marks(&values);
            let sent = session.write(lun, Lba(block), base::Chain::copy_of(&data), size).await;
            sent.expect("nothing has failed yet");
            written.end_write(&begun);
            held.extend(values.into_iter().filter(|(sector, _)| written.is_watched(*sector)));
        }
        for block in exchanged {
            let begun = written.begin_write(block..block + 1, u64::from(u32::MAX) + block);
            let data = filled(u64::from(u32::MAX) + block, 1, size);
            session.write(lun, Lba(block), data, size).await.expect("nothing has failed yet");
            written.end_write(&begun);
        }
        held
    });
    cluster.world.kill(machine);
    held
}

fn disturb(plan: &Plan, harms: &mut Harms<'_>) {
    let mut rng = Rng::new(plan.seed ^ 0x4a53);
    let mut fills = plan.fills.then(|| Rng::new(plan.seed ^ 0xf111));
    let mut converts = plan.converts.then(|| Rng::new(plan.seed ^ 0xc0f7));
    let mut rots = plan.rots.then(|| Rng::new(plan.seed ^ 0x4075));
    let mut snapshots = plan.snapshots.then(|| Rng::new(plan.seed ^ 0x54a9));
    let mut restores = plan.restores.then(|| Rng::new(plan.seed ^ 0x4e57));
    let total: u64 = plan.harms.iter().map(|(_, weight)| weight).sum();
    for _ in 0..plan.times {
        if harms.cluster.world.event_count() > EVENTS_MAX {
            break;
        }
        let gap = Duration::from_micros(rng.below(plan.gap.as_micros() as u64));
        harms.inside.run_for(gap);
        harms.tick();
        if let Some(rng) = &mut fills {
            harms.fill_pools(rng);
        }
        if let Some(rng) = &mut converts {
            harms.convert_volumes(rng);
        }
        if let Some(rng) = &mut rots {
            harms.rot_logs(rng);
        }
        if let Some(rng) = &mut snapshots {
            harms.manage_snapshots(rng);
        }
        if let Some(rng) = &mut restores {
            harms.restore_volumes(rng);
        }
        // A fault that is impossible at the moment leaves its turn to another one.
        for _ in 0..DRAWS_MAX {
            let mut at = rng.below(total);
            let drawn = plan.harms.iter().find_map(|(harm, weight)| {
                let hit = at < *weight;
                at = at.saturating_sub(*weight);
                hit.then_some(*harm)
            });
            if harms.happen(drawn.expect("it is below the sum"), &mut rng) {
                break;
            }
        }
        check_no_full_sync(plan, harms.cluster);
    }
}

/// After a power loss, a resync copies only what was written lately, never everything, and needs no
/// administrator (A5, C5). A copy that was not in sync when its volume was restored misses everything.
fn check_no_full_sync(plan: &Plan, cluster: &Cluster) {
    if plan.costs_full_copies() || plan.restores {
        return;
    }
    for index in (0..cluster.servers.len()).filter(|index| cluster.is_started(*index)).collect::<Vec<_>>() {
        let dirty = cluster.dirty_regions(index);
        let most: usize = cluster.volumes.iter().map(|volume| volume.layout.regions_max).sum();
        assert!(
            dirty <= most,
            "node {} would have {dirty} regions copied, and only {most} were ever written to",
            index + 1
        );
    }
}

fn come_in_sync(plan: &Plan, harms: &mut Harms<'_>) {
    let cluster = harms.cluster;
    // Until now a node may have been silent: the nodes that have not heard from it again yet remove it.
    harms.inside.run_for(REMOVAL);
    let nodes = 0..cluster.servers.len();
    let all_serve = || {
        harms.inside.look();
        harms.look_after();
        check_no_full_sync(plan, cluster);
        !harms.is_stopping()
            && !harms.has_hung()
            && nodes.clone().all(|index| cluster.has_all(index))
            && nodes.clone().all(|index| cluster.is_started(index) && cluster.serves(index))
            // A lost block becomes readable again when its disk works again, or when a host writes it.
            && !nodes.clone().any(|index| cluster.has_lost(index))
            && nodes.clone().all(|index| cluster.has_fork(index) == Some(false))
    };
    if !wait(&cluster.world, IN_SYNC_MAX, all_serve) {
        let started = nodes.filter(|index| cluster.is_started(*index));
        let unrest: Vec<String> =
            started.map(|index| format!("node {}: {}", index + 1, cluster.unrest(index))).collect();
        for index in 0..cluster.servers.len() {
            let (serves, all) = (cluster.serves(index), cluster.has_all(index));
            let (lost, fork) = (cluster.has_lost(index), cluster.has_fork(index));
            eprintln!(
                "node {}: serves {serves}, all in sync {all}, lost blocks {lost}, fork {fork:?}",
                index + 1
            );
        }
        panic!(
            "not all are in sync though nothing fails any more: {:?}\n{}",
            cluster.entry(),
            unrest.join("\n")
        );
    }
}

/// Waits until all copies are in sync and served, and all dirty maps are empty.
///
/// # Panics
/// If that takes too long.
pub(crate) fn wait_until_clean(cluster: &Cluster) {
    let nodes = 0..cluster.servers.len();
    let whole = |index| cluster.dirty_regions(index) == 0 && cluster.has_all(index) && cluster.serves(index);
    let clean = || nodes.clone().all(whole);
    if !wait(&cluster.world, CLEAN_MAX, clean) {
        let unrest: Vec<String> = nodes
            .map(|index| {
                format!("node {}: {} {}", index + 1, cluster.dirty_regions(index), cluster.unrest(index))
            })
            .collect();
        panic!("it never came to rest: {:?}\n{}", cluster.entry(), unrest.join("\n"));
    }
}

fn come_to_rest(plan: &Plan, cluster: &Cluster) {
    wait_until_clean(cluster);
    for volume in &cluster.volumes {
        let first = cluster.checksum(volume, 0);
        assert!(first.is_some(), "the first node has a copy");
        for index in 0..cluster.servers.len() {
            let found = cluster.checksum(volume, index);
            assert_eq!(found, first, "copies 1 and {} of {} differ: {}", index + 1, volume.name, plan.seed);
        }
    }
}

/// Clears the reservations that hosts have left.
pub(crate) async fn clear_reservations(session: &Session, lun: Lun) {
    const KEY: u64 = 0x707;
    let register = PersistentReserveOut::register(KEY);
    let clear = PersistentReserveOut { action: ServiceAction::Clear, key: KEY, ..register };
    for command in [register, clear] {
        attended(async || session.reserve(lun, command).await).await.expect("nothing fails any more");
    }
}

/// Reads all blocks through each node at the end, and adds what the node returned to the history.
fn read_everywhere(plan: &Plan, cluster: &Cluster, volume: &Volume, history: &History) {
    let machine = cluster.add_host("reader");
    for server in &cluster.servers {
        let (portal, history, size) = (server.portal, history.clone(), plan.block);
        let (lun, layout) = (volume.lun, volume.layout);
        let exchanged = volume.exchanged();
        let grown = layout.grown(size, cluster.entry_of(volume).size / u64::from(size.bytes()));
        cluster.world.block_on(machine, CoreId(0), move || async move {
            let session = log_in(portal, lun, "reader").await.expect("all nodes serve");
            clear_reservations(&session, lun).await;
            let quiet = layout.quiet(size);
            let areas = layout.hot(size).into_iter().chain([exchanged, quiet..quiet + 1, grown]);
            for blocks in areas.filter(|blocks| !blocks.is_empty()) {
                let call = history.tick();
                let count = BlockCount(blocks.end - blocks.start);
                // Nodes learn of the end of a resync a moment later, and so do hosts of the states of paths.
                let read = async || session.read(lun, Lba(blocks.start), count, size).await;
                let data = attended(read).await.expect("all nodes serve");
                history.read(blocks.start, &data, call);
            }
        });
    }
}
