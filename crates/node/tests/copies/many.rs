//! Many volumes, of which lists are made in parts.

use base::ByteLen;
use node::control::NewVolume;
use store::VolumeId;

use super::*;

/// More than two parts, and the last one is not whole.
const VOLUMES: usize = 20;

const _: () = assert!(VOLUMES > 2 * node::parts::A_TURN && !VOLUMES.is_multiple_of(node::parts::A_TURN));

fn names(all: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = all.into_iter().collect();
    all.sort();
    all
}

fn numbered(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    names(numbers.into_iter().map(|number| format!("volume-{number:02}")))
}

impl Cluster {
    fn make_many(&self) {
        self.control(0, |control| async move {
            for name in numbered(0..VOLUMES) {
                let shape = Shape { kind: VolumeKind::Ram, ..Shape::thick() };
                let (copies, size) = (Some(Placement::Count(2)), ByteLen(MIB));
                let new = NewVolume { name, copies, size, ..new_volume(POOL, shape) };
                control.create_volume(new).await.unwrap();
            }
        });
        self.world.run_for(Duration::from_millis(100));
    }
}

#[test]
fn all_volumes_are_in_each_list() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.make_many();
    for index in [0, 1] {
        let lists = cluster.control(index, |control| async move {
            let here = control.volumes().await.into_iter().map(|volume| volume.info.name);
            let keeper = control.keeper().unwrap();
            let all = keeper.volumes_in_parts(|_| true).await.into_iter().map(|volume| volume.entry.name);
            let named = control.volume_names().await.into_values();
            let counted = control.stats().await.unwrap().sum().len();
            (names(here), names(all), names(named), counted)
        });
        let expected = numbered(0..VOLUMES);
        assert_eq!(lists, (expected.clone(), expected.clone(), expected, VOLUMES));
    }
}

#[test]
fn what_stays_is_in_each_list_that_is_made_while_a_volume_goes() {
    each_seed(6, |seed| {
        let cluster = Cluster::new(seed, 2, 1);
        cluster.make_many();
        let lists = cluster.control(0, |control| async move {
            let keeper = control.keeper().unwrap();
            let mut ids: Vec<VolumeId> = control.volume_names().await.into_keys().collect();
            ids.sort_by_key(VolumeId::to_string);
            // With it a part ends, and the next one begins after it.
            let id = ids[node::parts::A_TURN - 1];
            let gone = keeper.volume(id).unwrap().entry.name;
            let (deletes, name) = (Rc::clone(&control), gone.clone());
            let deleting = rt::spawn(async move { deletes.delete_volume(&name, true, None).await.unwrap() });
            let expected = names(numbered(0..VOLUMES).into_iter().filter(|name| *name != gone));
            let mut lists = 0;
            while keeper.has(id) || control.volume(&gone).is_ok() {
                let all = keeper.volumes_in_parts(|_| true).await.into_iter().map(|volume| volume.entry.name);
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
