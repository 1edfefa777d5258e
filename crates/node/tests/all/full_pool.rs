//! Log volumes whose pool is full: writes fail at once, or wait for room first, as the volume's policy says.

use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, ByteLen, Chain, Lba, LbaRange};
use initiator::command::ServiceAction::{Preempt, Reserve};
use initiator::command::WriteSame;
use initiator::{Error, Lun, Session, TaskFunction};
use node::control::{ControlError, NewVolume, SpaceChange};
use store::{SpacePolicy, StoreError, VolumeKind, WhenFull};

use crate::commands::{register, reserve};
use crate::rig::{MIB, POOL, Rig, Shape, log_in, map, new_volume};
use crate::seeds::each_seed;

/// The volume whose policy is tested.
const TESTED: Shape = Shape { name: "tested", kind: VolumeKind::Log, mib: 128, ..Shape::thick() };
/// The volume that fills the pool.
const OTHER: Shape = Shape { name: "other", lun: 1, ..TESTED };

/// Blocks of a write, which has a part in each of two slices.
const CHUNK: u64 = 512;

fn rig(seed: u64, space: SpacePolicy) -> Rig {
    let rig = Rig::new(seed, 2);
    rig.add(OTHER);
    rig.control(move |control| async move {
        control.create_volume(NewVolume { space, ..new_volume(POOL, TESTED) }).await.unwrap();
        map(&control, TESTED.name, TESTED.lun).await.unwrap();
    });
    rig
}

fn pauses() -> SpacePolicy {
    SpacePolicy { when_full: WhenFull::Pause, ..SpacePolicy::default() }
}

async fn attended<T>(send: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match send().await {
            Err(error) if error.is_unit_attention() => {}
            done => return done,
        }
    }
}

fn data(chunk: u64) -> Chain {
    Chain::copy_of(&vec![chunk as u8 + 1; (CHUNK * 4096) as usize])
}

async fn write(session: &Session, shape: Shape, chunk: u64) -> Result<(), Error> {
    let at = Lba(chunk * CHUNK);
    attended(async || session.write(Lun(shape.lun), at, data(chunk), BlockSize::B4096).await).await
}

async fn read(session: &Session, shape: Shape, chunk: u64) -> Vec<u8> {
    let (at, count) = (Lba(chunk * CHUNK), BlockCount(CHUNK));
    let read = async || session.read(Lun(shape.lun), at, count, BlockSize::B4096).await;
    attended(read).await.unwrap().to_vec()
}

/// Writes the other volume until the pool is full; returns how much had room.
async fn fill(session: &Session) -> u64 {
    for chunk in 0.. {
        if let Err(error) = write(session, OTHER, chunk).await {
            assert!(error.is_out_of_space(), "{error}");
            return chunk;
        }
    }
    unreachable!("the volume is larger than its pool")
}

async fn unmap(session: &Session, shape: Shape, chunks: u64) {
    let range = LbaRange::new(Lba(0), BlockCount(chunks * CHUNK)).unwrap();
    attended(async || session.unmap(Lun(shape.lun), &[range]).await).await.unwrap();
}

/// Logs in, and fills the pool; returns how much had room.
async fn with_full_pool(portal: std::net::SocketAddr) -> (Rc<Session>, u64) {
    let session = log_in(portal, "client", TESTED.lun).await;
    session.make_ready(Lun(OTHER.lun)).await.unwrap();
    write(&session, TESTED, 0).await.unwrap();
    let filled = fill(&session).await;
    assert!(filled > 4, "{filled} of 2 MiB");
    (session, filled)
}

#[test]
fn a_write_waits_for_room_while_reads_and_unmap_continue() {
    each_seed(3, |seed| {
        rig(seed, pauses()).client("client").run(|portal| async move {
            let (session, filled) = with_full_pool(portal).await;
            let (writer, began) = (Rc::clone(&session), rt::now());
            let waiting = rt::spawn(async move { (write(&writer, TESTED, 1).await, rt::now()) });
            rt::sleep(Duration::from_secs(4)).await;
            let asked = rt::now();
            assert_eq!(read(&session, TESTED, 0).await, data(0).to_vec());
            // The same blocks.
            let _ = read(&session, TESTED, 1).await;
            assert_eq!(read(&session, OTHER, filled - 1).await, data(filled - 1).to_vec());
            // The other volume's writes do not wait.
            assert!(write(&session, OTHER, filled).await.unwrap_err().is_out_of_space());
            unmap(&session, OTHER, filled).await;
            let made_room = rt::now();
            assert!(made_room.since(asked) < Duration::from_secs(3), "nothing waited");
            let (written, ended) = waiting.await;
            written.unwrap();
            assert!(ended.since(began) > Duration::from_secs(4), "it waited");
            assert!(ended.since(made_room) < Duration::from_secs(5), "it went on by itself");
            assert_eq!(read(&session, TESTED, 1).await, data(1).to_vec());
        });
    });
}

/// An initiator that waits for longer aborts the command, and perhaps gives up the path.
#[test]
fn a_write_waits_for_less_than_an_initiator_does() {
    let rig = rig(1, pauses());
    rig.client("client").run(|portal| async move {
        let (session, _) = with_full_pool(portal).await;
        let began = rt::now();
        let error = write(&session, TESTED, 1).await.unwrap_err();
        let took = rt::now().since(began);
        assert!(error.is_out_of_space(), "{error}");
        assert!((15..20).contains(&took.as_secs()), "{took:?}");
    });
}

/// Each of its steps may find the pool full.
#[test]
fn a_write_of_many_steps_waits_no_longer_than_others() {
    let rig = rig(1, pauses());
    rig.client("client").run(|portal| async move {
        let (session, _) = with_full_pool(portal).await;
        let (writer, began) = (Rc::clone(&session), rt::now());
        let waiting = rt::spawn(async move {
            let block = Chain::copy_of(&[7; 4096]);
            let same = WriteSame { lba: Lba(8 * CHUNK), count: BlockCount(8 * CHUNK), block, unmap: false };
            (attended(async || writer.write_same(Lun(TESTED.lun), same.clone()).await).await, rt::now())
        });
        rt::sleep(Duration::from_secs(10)).await;
        // Room for some of its steps.
        unmap(&session, OTHER, 4).await;
        let (written, ended) = waiting.await;
        let error = written.unwrap_err();
        assert!(error.is_out_of_space(), "{error}");
        let took = ended.since(began);
        assert!((14..20).contains(&took.as_secs()), "{took:?}");
    });
}

#[test]
fn a_reset_ends_a_write_that_waits_for_room() {
    let rig = rig(1, pauses());
    rig.client("client").run(|portal| async move {
        let (session, _) = with_full_pool(portal).await;
        let writer = Rc::clone(&session);
        let waiting = rt::spawn(async move { write(&writer, TESTED, 1).await });
        rt::sleep(Duration::from_secs(1)).await;
        let began = rt::now();
        assert_eq!(session.manage(TaskFunction::LogicalUnitReset, Lun(TESTED.lun)).await.unwrap(), 0);
        let took = rt::now().since(began);
        assert!(took < Duration::from_secs(2), "{took:?}");
        drop(waiting);
    });
}

/// PREEMPT does not abort the writes of the host that it fences off. By the time there is room, the other
/// host may have written there.
#[test]
fn a_write_that_waits_for_room_is_not_made_once_its_host_is_fenced_off() {
    each_seed(3, |seed| {
        rig(seed, pauses()).client("client").run(|portal| async move {
            let (victim, filled) = with_full_pool(portal).await;
            let other = log_in(portal, "other", TESTED.lun).await;
            other.make_ready(Lun(OTHER.lun)).await.unwrap();
            attended(async || register(&victim, TESTED.lun, 1, false).await).await.unwrap();
            attended(async || reserve(&victim, TESTED.lun, Reserve, 1, 0).await).await.unwrap();
            attended(async || register(&other, TESTED.lun, 2, false).await).await.unwrap();
            let writer = Rc::clone(&victim);
            let waiting = rt::spawn(async move { write(&writer, TESTED, 1).await });
            rt::sleep(Duration::from_secs(1)).await;
            attended(async || reserve(&other, TESTED.lun, Preempt, 2, 1).await).await.unwrap();
            // One of its two parts may have had room at once.
            let before = read(&other, TESTED, 1).await;
            assert_ne!(before, data(1).to_vec(), "it waits");
            unmap(&other, OTHER, filled).await;
            let error = waiting.await.unwrap_err();
            assert!(error.is_out_of_space(), "{error}");
            rt::sleep(Duration::from_secs(2)).await;
            assert!(read(&other, TESTED, 1).await == before, "a write landed late");
        });
    });
}

/// The policy can be changed while writes wait, and lasts.
#[test]
fn the_policy_can_be_changed_at_any_time() {
    let rig = rig(1, pauses());
    let client = rig.client("client");
    let (session, _) = client.run(with_full_pool);
    let writer = Rc::clone(&session);
    let waiting = client.spawn(|_| async move {
        let began = rt::now();
        (write(&writer, TESTED, 1).await, rt::now().since(began))
    });
    rig.world.run_for(Duration::from_secs(2));
    let set = |space: SpaceChange| {
        rig.control(move |control| async move {
            let volume = control.set_space(TESTED.name, space).await?;
            Ok::<_, ControlError>(volume.info.space)
        })
    };
    let fails = SpaceChange { when_full: Some(WhenFull::Fail), ..SpaceChange::default() };
    assert_eq!(set(fails).unwrap(), SpacePolicy::default());
    let (refused, took) = rig.world.wait_for(waiting).unwrap();
    assert!(refused.unwrap_err().is_out_of_space());
    assert!(took < Duration::from_secs(4), "{took:?}");
    // There is no room for a reserve either.
    let reserves = |mib: u64| SpaceChange { reserve: Some(ByteLen(mib * MIB)), ..SpaceChange::default() };
    let refused = set(reserves(32)).unwrap_err();
    assert!(matches!(refused, ControlError::Store(StoreError::NoSpace { .. })), "{refused}");
    let refused = set(reserves(TESTED.mib + 1)).unwrap_err();
    assert!(matches!(refused, ControlError::Invalid { field: "reserve", .. }), "{refused}");
    let pauses_again = SpaceChange { when_full: Some(WhenFull::Pause), ..SpaceChange::default() };
    assert_eq!(set(pauses_again).unwrap(), pauses());
    rig.power_cycle();
    let found = rig.control(|control| async move { control.volume(TESTED.name).unwrap().info.space });
    assert_eq!(found, pauses());
}

#[test]
fn a_reserve_can_be_written_in_a_full_pool() {
    let rig = rig(1, SpacePolicy { reserve: ByteLen(8 * MIB), ..SpacePolicy::default() });
    rig.client("client").run(|portal| async move {
        let (session, filled) = with_full_pool(portal).await;
        for round in 0..3 {
            for chunk in 0..4 {
                write(&session, TESTED, chunk)
                    .await
                    .unwrap_or_else(|error| panic!("{round} {chunk}: {error}"));
            }
        }
        assert!(write(&session, OTHER, filled).await.unwrap_err().is_out_of_space());
        for chunk in 0..4 {
            assert_eq!(read(&session, TESTED, chunk).await, data(chunk).to_vec());
        }
    });
}

#[test]
fn only_log_volumes_have_such_a_policy() {
    let rig = Rig::new(1, 1);
    for kind in [VolumeKind::Thick, VolumeKind::Ram] {
        let reserves = SpacePolicy { reserve: ByteLen(MIB), ..SpacePolicy::default() };
        for (field, space) in [("when_full", pauses()), ("reserve", reserves)] {
            let new = NewVolume { space, ..new_volume(POOL, Shape { kind, ..Shape::thick() }) };
            let refused = rig.control(|control| async move { control.create_volume(new).await });
            let refused = refused.unwrap_err();
            assert!(matches!(&refused, ControlError::Invalid { field: of, .. } if *of == field), "{refused}");
        }
    }
}
