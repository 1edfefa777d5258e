//! Many volumes, whose lists are produced in parts.

use base::ByteLen;
use node::control::NewVolume;
use store::VolumeId;

use super::failed_disks::{fail_writes, write_to};
use super::*;

/// More than two parts, the last of which is not full.
const VOLUMES: usize = 20;

const _: () = assert!(
    VOLUMES > 2 * node::yielding::ITEMS_PER_TURN && !VOLUMES.is_multiple_of(node::yielding::ITEMS_PER_TURN)
);

/// More than one turn processes where it only looks at each volume.
const MANY: usize = node::yielding::QUICK_ITEMS_PER_TURN + 6;

fn names(all: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = all.into_iter().collect();
    all.sort();
    all
}

fn numbered(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    names(numbers.into_iter().map(|number| format!("volume-{number:02}")))
}

impl Cluster {
    fn make_many(&self, count: usize) {
        self.control(0, move |control| async move {
            for name in numbered(0..count) {
                let shape = Shape { kind: VolumeKind::Ram, ..Shape::thick() };
                let (copies, size) = (Some(Placement::Count(2)), ByteLen(MIB));
                let new = NewVolume { name, copies, size, ..new_volume(POOL, shape) };
                control.create_volume(new).await.unwrap();
            }
        });
        self.world.run_for(Duration::from_millis(100));
    }

    /// Number of copies in sync, of all volumes together.
    fn all_in_sync(&self, index: usize) -> usize {
        self.control(index, |control| async move {
            let volumes = control.reconciler().unwrap().volumes();
            let copies = volumes.iter().flat_map(|volume| &volume.entry.copies);
            copies.filter(|copy| copy.standing == node::copies::StandingEntry::InSync).count()
        })
    }
}

#[test]
fn all_volumes_are_in_each_list() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.make_many(VOLUMES);
    for index in [0, 1] {
        let lists = cluster.control(index, |control| async move {
            let here = control.volumes().await.into_iter().map(|volume| volume.info.name);
            let reconciler = control.reconciler().unwrap();
            let all = reconciler.volumes_in_parts(|_| true).await.into_iter().map(|volume| volume.entry.name);
            let named = control.volume_names().await.into_values();
            let counted = control.stats().await.unwrap().sum().len();
            (names(here), names(all), names(named), counted)
        });
        let expected = numbered(0..VOLUMES);
        assert_eq!(lists, (expected.clone(), expected.clone(), expected, VOLUMES));
    }
}

#[test]
fn a_volume_is_found_by_its_name_and_by_its_identity() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.make_many(VOLUMES);
    for index in [0, 1] {
        cluster.control(index, |control| async move {
            let reconciler = control.reconciler().unwrap();
            for name in numbered(0..VOLUMES) {
                let found = reconciler.volume_named(&name).unwrap();
                assert_eq!(found.entry.name, name);
                let (id, entry) = reconciler.entry_named(&found.entry.id).unwrap();
                assert_eq!((id.to_string(), entry), (found.entry.id.clone(), found.entry));
            }
            for none in ["volume-99", "volume-0", "", "00000000000000000000000000000000"] {
                assert!(reconciler.volume_named(none).is_none(), "{none}");
            }
        });
    }
}

#[test]
fn volumes_that_stay_are_in_each_list_while_another_is_deleted() {
    each_seed(6, |seed| {
        let cluster = Cluster::new(seed, 2, 1);
        cluster.make_many(VOLUMES);
        let lists = cluster.control(0, |control| async move {
            let reconciler = control.reconciler().unwrap();
            let mut ids: Vec<VolumeId> = control.volume_names().await.into_keys().collect();
            ids.sort_by_key(VolumeId::to_string);
            // A part ends with this volume, and the next one begins after it.
            let id = ids[node::yielding::ITEMS_PER_TURN - 1];
            let gone = reconciler.volume(id).unwrap().entry.name;
            let (deletes, name) = (Rc::clone(&control), gone.clone());
            let deleting = rt::spawn(async move { deletes.delete_volume(&name, true).await.unwrap() });
            let expected = names(numbered(0..VOLUMES).into_iter().filter(|name| *name != gone));
            let mut lists = 0;
            while reconciler.has(id) || control.volume(&gone).is_ok() {
                let all =
                    reconciler.volumes_in_parts(|_| true).await.into_iter().map(|volume| volume.entry.name);
                let here = control.volumes().await.into_iter().map(|volume| volume.info.name);
                for listed in [names(all), names(here)] {
                    let stay: Vec<String> = listed.into_iter().filter(|name| *name != gone).collect();
                    assert_eq!(stay, expected);
                }
                lists += 1;
            }
            deleting.await;
            lists
        });
        assert!(lists > 3, "{lists}");
    });
}

/// The proposing node looks at some volumes in each turn, and over several turns at all of them.
#[test]
fn the_loss_of_a_node_and_its_return_show_in_every_volume() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.make_many(MANY);
    assert_eq!(cluster.all_in_sync(0), 2 * MANY);
    cluster.world.crash(cluster.servers[1]);
    let gone = || cluster.all_in_sync(0) == MANY;
    assert!(cluster.world.run_until(gone, Duration::from_secs(3)), "{}", cluster.all_in_sync(0));
    cluster.start(1);
    let back = || cluster.all_in_sync(0) == 2 * MANY;
    assert!(cluster.world.run_until(back, Duration::from_secs(120)), "{}", cluster.all_in_sync(0));
}

impl Cluster {
    /// The number of slices that need ticks, on all nodes.
    fn awake(&self) -> usize {
        let cores = (0..self.cores).map(|core| CoreId(core as u16));
        let all = self.servers.iter().flat_map(|server| cores.clone().map(move |core| (*server, core)));
        let awake = |(server, core)| {
            self.world.block_on(server, core, || async { node::copies::Copies::current().awake() })
        };
        all.map(awake).sum()
    }

    /// Waits until no slice needs ticks any more.
    fn wait_for_rest(&self) {
        for _ in 0..200 {
            self.world.run_for(Duration::from_millis(100));
            if self.awake() == 0 {
                return;
            }
        }
        panic!("{} slices still need ticks", self.awake());
    }
}

#[test]
fn volumes_that_nobody_uses_come_to_rest_until_a_host_writes() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.make_many(VOLUMES);
    cluster.add_volume(VolumeKind::Thick, 2);
    assert!(cluster.awake() > 0);
    cluster.wait_for_rest();
    let (client, portal) = (cluster.client("client"), cluster.portal(0));
    cluster.world.block_on(client, CoreId(0), move || async move {
        let session = log_in(portal, "client").await.unwrap();
        write(&session, 3, 7).await.unwrap();
    });
    let awake = cluster.awake();
    assert!((2..=4).contains(&awake), "the slices of one volume on each node: {awake}");
    cluster.wait_for_rest();
}

#[test]
fn volumes_at_rest_are_looked_at_only_when_something_has_changed() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.make_many(VOLUMES);
    cluster.add_volume(VolumeKind::Thick, 2);
    let looks = || cluster.control(0, |control| async move { control.reconciler().unwrap().looks() });
    let looks_in = |time: Duration| {
        let before = looks();
        cluster.world.run_for(time);
        looks() - before
    };
    let ten_seconds = Duration::from_secs(10);
    cluster.world.run_for(ten_seconds);
    let resting = looks_in(ten_seconds);
    assert!(resting <= 3, "one every ten seconds, in case something was missed: {resting}");

    let (client, portal) = (cluster.client("client"), cluster.portal(0));
    cluster.world.block_on(client, CoreId(0), move || async move {
        let session = log_in(portal, "client").await.unwrap();
        for lba in 0..100 {
            write(&session, lba, 7).await.unwrap();
        }
    });
    let written = looks_in(ten_seconds);
    assert!(written <= 6, "what hosts write is no news: {written}");

    cluster.world.crash(cluster.servers[1]);
    let gone = || cluster.all_in_sync(0) == VOLUMES + 1;
    let soon = Duration::from_secs(1);
    assert!(
        cluster.world.run_until(gone, soon),
        "it is missed when it is silent: {}",
        cluster.all_in_sync(0)
    );
    let alone = looks_in(ten_seconds);
    assert!(alone >= 150, "copies are out of sync: {alone}");
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    let back = || cluster.all_in_sync(0) == 2 * (VOLUMES + 1);
    assert!(cluster.world.run_until(back, Duration::from_secs(120)), "{}", cluster.all_in_sync(0));
    cluster.world.run_for(ten_seconds);
    let resting = looks_in(ten_seconds);
    assert!(resting <= 3, "they rest again: {resting}");
}

/// As long as no slice needs ticks, the reconciler asks none for news.
#[test]
fn a_disk_that_fails_after_all_volumes_came_to_rest_is_noticed_as_early_as_before() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_for_rest();
        // By then both reconcilers rely on it.
        cluster.world.run_for(Duration::from_secs(1));
        fail_writes(&cluster, 1);
        let began = cluster.world.now();
        write_to(&cluster, 0, 3, 2).unwrap();
        let stall = cluster.world.now() - began;
        assert!(stall < Duration::from_millis(1500), "{stall:?}");
        assert_eq!(cluster.in_sync(0), 1);
    });
}
