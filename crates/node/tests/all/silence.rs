//! A disk that does not answer: callers that wait for it learn of that in time, and others notice nothing.

use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, ByteLen, Lba};
use initiator::{Lun, Session};
use node::control::{
    CHANGE_DEADLINE, Control, ControlError, Doing, EndedJob, EndedWork, JobOutcome, MapSpec, NewVolume,
    NotOpen, TURN_DEADLINE, TargetSpec, WaitsFor, Work,
};
use node::{Config, Handle};
use rt::sim::{DiskLatency, NodeStatus};
use rt::sync::Receiver;

use crate::content::{Stamp, stamped};
use crate::rig::{DISK, MIB, OTHER, POOL, RECORD, Rig, Shape, TARGET, log_in, map, named, new_volume};
use crate::seeds::each_seed;
use crate::workload::volume_number;

/// So long that no caller waits for it.
const HOUR: Duration = Duration::from_secs(3600);

/// Longest time of a change that need not wait.
const MOMENT: Duration = Duration::from_secs(1);

/// The latency of a disk that does not answer: it answers requests after an hour.
pub(crate) fn silence() -> DiskLatency {
    let hour = HOUR..HOUR + Duration::from_nanos(1);
    DiskLatency { read: hour.clone(), write: hour.clone(), flush: hour, ..DiskLatency::default() }
}

/// Two pools with a volume each, at LUN 0 and 1, and a session of them.
fn two_pools(seed: u64) -> (Rig, Rc<Session>) {
    let rig = Rig::new(seed, 2);
    rig.add(Shape::thick());
    rig.add_other_pool();
    let session = rig.client("client").run(|portal| async move {
        let session = log_in(portal, "client", 0).await;
        session.make_ready(Lun(1)).await.unwrap();
        session
    });
    (rig, session)
}

/// Begins a change, and lets it get as far as it can.
fn begin<T: 'static, F: Future<Output = Result<T, ControlError>> + 'static>(
    rig: &Rig,
    change: impl FnOnce(Rc<Control>) -> F + 'static,
) -> Receiver<Result<T, ControlError>> {
    let result = rig.world.spawn_on(rig.server, rt::CoreId(0), || change(Control::current()));
    rig.world.run_for(MOMENT);
    result
}

/// The error with which it ends, and after how long.
fn end<T>(rig: &Rig, result: Receiver<Result<T, ControlError>>) -> (ControlError, Duration) {
    let began = rig.world.now();
    let error = rig.world.wait_for(result).unwrap().err().expect("it cannot end otherwise");
    (error, rig.world.now() - began)
}

/// What an unfinished change waits for.
fn unfinished(error: ControlError) -> WaitsFor {
    match error {
        ControlError::Unfinished(change) => change.waits_for,
        other => panic!("{other}"),
    }
}

/// What the earlier change waits for.
fn busy_for(error: ControlError) -> WaitsFor {
    match error {
        ControlError::Busy { first, .. } => first.waits_for,
        other => panic!("{other}"),
    }
}

/// All kinds of changes that do not concern the first pool.
fn change_other_things(rig: &Rig) {
    let began = rig.world.now();
    rig.control(|control| async move {
        let shape = Shape { name: "third", mib: 4, ..Shape::thick() };
        let to = |target: &str| MapSpec { target: target.into(), host: "any".into(), lun: None };
        let new = NewVolume { map: Some(to("iqn.2026-01.org.ursa:third")), ..new_volume(OTHER, shape) };
        control.create_volume(new).await.unwrap();
        control.grow_volume("third", ByteLen(6 * MIB)).await.unwrap();
        control.rename_volume("third", "renamed").await.unwrap();
        control.map("renamed", to(TARGET)).await.unwrap();
        control.delete_volume("renamed", true).await.unwrap();
        let name = "iqn.2026-01.org.ursa:fourth".to_owned();
        control.create_target(TargetSpec { name: name.clone(), alias: None, chap: None }).await.unwrap();
        control.delete_target(&name, false).await.unwrap();
    });
    let took = rig.world.now() - began;
    assert!(took < MOMENT, "others wait for {took:?}");
}

async fn read_other(session: &Session) {
    // Another LUN may have been added to the target meanwhile.
    session.make_ready(Lun(1)).await.unwrap();
    session.read(Lun(1), Lba(0), BlockCount(1), BlockSize::B4096).await.unwrap();
}

#[test]
fn a_volume_with_commands_at_a_silent_disk_is_deleted_when_it_answers_and_holds_up_nobody() {
    each_seed(4, |seed| {
        let (rig, session) = two_pools(seed);
        rig.world.set_disk_latency(rig.server, DISK, silence());
        let client = rig.client("client-2");
        let writing = Rc::clone(&session);
        let _write = client.spawn(move |_| async move {
            let data = stamped(volume_number(0), 0, 8, Stamp { client: 1, sequence: 1 });
            writing.write(Lun(0), Lba(0), data, BlockSize::B4096).await
        });
        rig.world.run_for(MOMENT);

        let deletion = begin(&rig, |control| async move { control.delete_volume("thick", true).await });
        change_other_things(&rig);
        client.run(move |_| async move { read_other(&session).await });
        let changes = rig.control(|control| async move { control.changes() });
        let deletes = |work: &Work| work.to_string() == "deleting volume \"thick\"";
        assert!(changes.iter().any(|change| deletes(&change.work)), "{changes:?}");

        // A second change of the same volume reports what it waits for.
        let growth =
            begin(&rig, |control| async move { control.grow_volume("thick", ByteLen(16 * MIB)).await });
        let (error, took) = end(&rig, growth);
        assert!(took <= TURN_DEADLINE, "{took:?}");
        let said = error.to_string();
        assert!(matches!(error, ControlError::Busy { .. }), "{said}");
        assert_eq!(
            said,
            "growing volume \"thick\" was not started: deleting volume \"thick\" comes first and waits for \
             host commands to return from /dev/disk"
        );

        let (error, took) = end(&rig, deletion);
        assert!(took <= CHANGE_DEADLINE, "{took:?}");
        assert_eq!(unfinished(error), WaitsFor::Commands(vec![DISK.into()]));
        change_other_things(&rig);

        rig.world.set_disk_latency(rig.server, DISK, DiskLatency::default());
        rig.world.run_for(2 * HOUR);
        let (volumes, changes, free) = rig.control(|control| async move {
            let pool = control.pool(POOL).unwrap().state.unwrap();
            (control.volumes().await, control.changes(), pool.usage.total.0 - pool.usage.free.0)
        });
        assert_eq!(volumes.iter().map(|volume| &volume.info.name).collect::<Vec<_>>(), [OTHER]);
        assert!(changes.is_empty(), "{changes:?}");
        assert_eq!(free, 0, "the space is back");
    });
}

/// Found by the simulator: commands, resets and sessions that had ended kept the units of all LUNs that their
/// initiator had seen.
#[test]
fn a_volume_is_deleted_though_commands_of_another_one_do_not_come_back() {
    each_seed(4, |seed| {
        let (rig, session) = two_pools(seed);
        rig.world.set_disk_latency(rig.server, DISK, silence());
        // The initiator aborts the command, resets its unit, and disconnects.
        let client = rig.client("client-2");
        let _write = client.spawn(move |portal| async move {
            drop(session);
            let session = log_in(portal, "client-2", 0).await;
            let data = stamped(volume_number(0), 0, 8, Stamp { client: 1, sequence: 1 });
            session.write(Lun(0), Lba(0), data, BlockSize::B4096).await
        });
        rig.world.run_for(Duration::from_secs(seed * 20));
        let began = rig.world.now();
        rig.control(|control| async move { control.delete_volume(OTHER, true).await }).unwrap();
        let took = rig.world.now() - began;
        assert!(took < MOMENT, "{took:?}");
    });
}

#[test]
fn a_volume_created_on_a_hanging_disk_exists_when_the_disk_responds() {
    each_seed(4, |seed| {
        let (rig, _session) = two_pools(seed);
        rig.world.set_disk_latency(rig.server, DISK, silence());
        let new = || {
            let map = Some(MapSpec { target: TARGET.into(), host: "any".into(), lun: Some(7) });
            NewVolume { map, ..new_volume(POOL, Shape { name: "late", ..Shape::thick() }) }
        };
        let creation = begin(&rig, move |control| async move { control.create_volume(new()).await });
        change_other_things(&rig);
        // The name is taken, for each pool.
        let twin = new_volume(OTHER, Shape { name: "late", ..Shape::thick() });
        let (error, _) = end(&rig, begin(&rig, |control| async move { control.create_volume(twin).await }));
        assert!(matches!(error, ControlError::Busy { .. }), "{error}");
        // The pool cannot be exported meanwhile.
        let (error, _) = end(&rig, begin(&rig, |control| async move { control.export_pool(POOL).await }));
        assert!(matches!(error, ControlError::Busy { .. }), "{error}");
        let (error, _) = end(&rig, creation);
        assert_eq!(unfinished(error), WaitsFor::Disks(vec![DISK.into()]));
        let changes = rig.control(|control| async move { control.changes() });
        let zeroed = changes[0].zeroed.expect("it has begun to zero its space");
        assert_eq!((zeroed.done.0, zeroed.gets_on), (0, false), "the disk says nothing");
        assert!(zeroed.total.0 > 0, "{zeroed:?}");
        rig.world.set_disk_latency(rig.server, DISK, DiskLatency::default());
        rig.world.run_for(2 * HOUR);
        let late = rig.control(|control| async move { control.volume("late") }).unwrap();
        assert_eq!(late.maps, [(TARGET.to_owned(), 7, "any".to_owned())]);
        // A caller whose change was unfinished can learn how it ended.
        let ended = rig.control(|control| async move { control.ended_jobs() });
        let is_done = |job: &EndedJob| {
            let creates =
                matches!(job.work, EndedWork::Change { doing: Doing::MakeVolume, failure: None, .. });
            creates && job.subject == "late" && job.outcome == JobOutcome::Done
        };
        let done: Vec<_> = ended.iter().map(|(_, job)| job).filter(|job| is_done(job)).collect();
        assert_eq!(done.len(), 1, "{ended:?}");
        assert!(done[0].took.is_some_and(|took| took > CHANGE_DEADLINE), "{done:?}");
        assert!(!ended.iter().any(|(_, job)| job.subject.contains("third")), "what is quick is not noted");
    });
}

#[test]
fn a_silent_disk_under_the_record_holds_up_what_needs_the_record() {
    each_seed(2, |seed| {
        let (rig, session) = two_pools(seed);
        rig.world.set_disk_latency(rig.server, RECORD, silence());
        // The cluster's record is elsewhere. The node then keeps the rules in its own, for a start without
        // it.
        rig.control(|control| async move { map(&control, OTHER, 9).await }).unwrap();
        rig.world.run_for(MOMENT);
        let target = || TargetSpec { name: "iqn.2026-01.org.ursa:x".into(), alias: None, chap: None };
        let (error, _) =
            end(&rig, begin(&rig, move |control| async move { control.create_target(target()).await }));
        assert_eq!(busy_for(error), WaitsFor::Record(RECORD.into()));
        // Pools describe themselves.
        rig.control(|control| async move {
            control.create_volume(new_volume(POOL, Shape { name: "more", ..Shape::thick() })).await.unwrap();
            control.delete_volume("more", false).await.unwrap();
        });
        rig.client("client-2").run(move |_| async move { read_other(&session).await });
        rig.world.set_disk_latency(rig.server, RECORD, DiskLatency::default());
        rig.world.run_for(2 * HOUR);
        let volume = rig.control(|control| async move { control.volume(OTHER) }).unwrap();
        assert_eq!(volume.maps.len(), 2, "{:?}", volume.maps);
    });
}

#[test]
fn a_node_starts_without_a_pool_that_does_not_answer_and_takes_it_in_when_it_does() {
    each_seed(4, |seed| {
        let (rig, session) = two_pools(seed);
        drop(session);
        rig.world.crash(rig.server);
        rig.world.set_disk_latency(rig.server, DISK, silence());
        let began = rig.world.now();
        rig.start();
        let took = rig.world.now() - began;
        assert!(took < Duration::from_secs(40), "{took:?}");
        let client = rig.client("early");
        let session = client.run(|portal| async move {
            let session = Session::connect(portal, TARGET, &named("early")).await.unwrap();
            session.make_ready(Lun(1)).await.unwrap();
            read_other(&session).await;
            assert!(session.make_ready(Lun(0)).await.is_err(), "there is no LUN 0 yet");
            Rc::new(session)
        });
        let pool = rig.control(|control| async move { control.pool(POOL) }).unwrap();
        assert!(pool.state.unwrap_err().to_string().contains("have not responded"));
        let shape = Shape { name: "new", ..Shape::thick() };
        let error =
            rig.control(move |control| async move { control.create_volume(new_volume(POOL, shape)).await });
        assert!(matches!(
            error,
            Err(ControlError::Busy { .. } | ControlError::PoolClosed(_, NotOpen::Silent(_)))
        ));
        change_other_things(&rig);

        rig.world.set_disk_latency(rig.server, DISK, DiskLatency::default());
        rig.world.run_for(2 * HOUR);
        let pool = rig.control(|control| async move { control.pool(POOL) }).unwrap();
        assert_eq!(pool.state.unwrap().volumes, 1);
        client.run(move |_| async move {
            session.make_ready(Lun(0)).await.expect("the session finds it");
            session.read(Lun(0), Lba(0), BlockCount(1), BlockSize::B4096).await.unwrap();
        });
    });
}

#[test]
fn a_node_stops_although_a_disk_does_not_answer() {
    each_seed(2, |seed| {
        let rig =
            Rig::with_config(seed, 2, Config { drain_deadline: Duration::from_secs(2), ..Config::default() });
        rig.add(Shape::thick());
        let session = rig.client("client").run(|portal| log_in(portal, "client", 0));
        rig.client("client-2").run(move |_| async move {
            let data = stamped(volume_number(0), 0, 8, Stamp { client: 1, sequence: 1 });
            session.write(Lun(0), Lba(0), data, BlockSize::B4096).await.unwrap();
        });
        rig.world.set_disk_latency(rig.server, DISK, silence());
        let handle = Handle::new(rig.world.handle(rig.server));
        let began = rig.world.now();
        rig.world.wait_for(handle.drain());
        assert!(rig.world.run_until(|| rig.world.status(rig.server) == NodeStatus::Ended, MOMENT));
        let took = rig.world.now() - began;
        assert!(took < Duration::from_secs(35), "{took:?}");
    });
}
