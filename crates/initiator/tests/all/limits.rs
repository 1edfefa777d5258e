//! Targets that do not answer: what the session does about it, and when.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{BlockCount, BlockSize, Buf, Lba};
use initiator::{Ended, Error, Lun, Options, Session, TaskFunction};
use proto::iscsi::target_role::TaskResponse;
use rt::sim::World;

use crate::ram_target::{NAME, RamTarget};
use crate::simulated;

const SECOND: Duration = Duration::from_secs(1);

async fn log_in(portal: SocketAddr) -> Session {
    let session = Session::connect(portal, NAME, &Options::default()).await.unwrap();
    session.make_ready(Lun(0)).await.unwrap();
    session
}

async fn read(session: &Session) -> Result<Buf, Error> {
    session.read(Lun(0), Lba(0), BlockCount(1), BlockSize::B512).await
}

/// A read that is never answered, by a target that answers these functions.
///
/// Returns how the read ends, after how long, why the session has ended, and which functions were requested.
fn unanswered(
    functions: Vec<(TaskFunction, TaskResponse)>,
) -> (Error, Duration, Option<Ended>, Vec<TaskFunction>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let target = RamTarget { silent_after: 1, functions, asked: Arc::clone(&asked), ..RamTarget::default() };
    let (error, took, ended) = simulated(1, target, |portal| async move {
        let session = log_in(portal).await;
        let began = rt::now();
        let error = read(&session).await.unwrap_err();
        (error, rt::now() - began, session.ended())
    });
    (error, took, ended, std::mem::take(&mut asked.lock().unwrap()))
}

#[test]
fn a_command_that_is_not_answered_is_aborted() {
    let functions = vec![(TaskFunction::AbortTask, TaskResponse::Complete)];
    let (error, took, ended, asked) = unanswered(functions);
    assert!(matches!(error, Error::TimedOut), "{error}");
    assert!(took >= 30 * SECOND && took < 32 * SECOND, "{took:?}");
    assert_eq!((ended, asked), (None, vec![TaskFunction::AbortTask]));
}

#[test]
fn commands_that_cannot_be_aborted_are_reset() {
    let reset = (TaskFunction::LogicalUnitReset, TaskResponse::Complete);
    let ladder = vec![TaskFunction::AbortTask, TaskFunction::LogicalUnitReset];
    for refused in [vec![], vec![(TaskFunction::AbortTask, TaskResponse::Rejected)]] {
        let is_silent = refused.is_empty();
        let (error, took, ended, asked) = unanswered([vec![reset], refused].concat());
        assert!(matches!(error, Error::TimedOut), "{error}");
        assert_eq!((ended, &asked), (None, &ladder));
        let expected = if is_silent { 45 * SECOND } else { 30 * SECOND };
        assert!(took >= expected && took < expected + 2 * SECOND, "{took:?}");
    }
}

#[test]
fn a_target_that_does_not_even_reset_is_left() {
    let (error, took, ended, asked) = unanswered(vec![]);
    assert!(matches!(error, Error::Ended(Ended::Unresponsive)), "{error}");
    assert_eq!(ended, Some(Ended::Unresponsive));
    assert_eq!(asked.len(), 2);
    assert!(took >= 75 * SECOND && took < 77 * SECOND, "{took:?}");
}

#[test]
fn an_abandoned_command_is_aborted() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let target = RamTarget { silent_after: 1, asked: Arc::clone(&asked), ..RamTarget::default() };
    simulated(1, target, |portal| async move {
        let session = log_in(portal).await;
        assert!(rt::timeout(SECOND, read(&session)).await.is_err());
        rt::sleep(SECOND).await;
        // Nothing waits for the command any more, so it does not time out either.
        rt::sleep(40 * SECOND).await;
        assert_eq!(session.ended(), None);
    });
    assert_eq!(*asked.lock().unwrap(), [TaskFunction::AbortTask]);
}

#[test]
fn an_abort_ends_when_nothing_more_can_come() {
    let target = RamTarget { silent_after: 1, ..RamTarget::default() };
    simulated(1, target, |portal| async move {
        let session = log_in(portal).await;
        let command = session.start(Lun(0), proto::scsi::Cdb([0; 16]), initiator::Transfer::None);
        rt::sleep(SECOND).await;
        assert!(matches!(command.abort().await, Err(Error::Aborted)));
        // The target's window has room for 64.
        let mut commands: Vec<_> = (0..80)
            .map(|_| session.start(Lun(0), proto::scsi::Cdb([0; 16]), initiator::Transfer::None))
            .collect();
        rt::sleep(SECOND).await;
        let began = rt::now();
        assert!(matches!(commands.pop().unwrap().abort().await, Err(Error::Aborted)));
        assert_eq!(rt::now(), began, "it was never sent");
    });
}

#[test]
fn a_cut_path_is_noticed() {
    for seed in 0..5 {
        let world = World::new(seed);
        let server = world.add_node("target", 1, |_| std::future::pending());
        let address = SocketAddr::new(world.address(server), 3260);
        let _serving = world.spawn_on(server, rt::CoreId(0), move || RamTarget::default().serve(address));
        let client = world.add_node("client", 1, |_| std::future::pending());
        let session =
            world.block_on(client, rt::CoreId(0), move || async move { Rc::new(log_in(address).await) });
        // An idle session stays open.
        world.run_for(300 * SECOND);
        assert_eq!(session.ended(), None);
        world.cut(server, client);
        let watched = Rc::clone(&session);
        let took = world.block_on(client, rt::CoreId(0), move || async move {
            let began = rt::now();
            let error = read(&watched).await.unwrap_err();
            assert!(matches!(error, Error::Ended(Ended::Silent)), "{error}");
            assert!(matches!(read(&watched).await.unwrap_err(), Error::NotSent(Ended::Silent)));
            rt::now() - began
        });
        assert!(took < 8 * SECOND, "{took:?}");
    }
}

#[test]
fn a_target_that_asks_to_be_left_is_obeyed() {
    let target = RamTarget { drain_after: Some(3), silent_after: 3, ..RamTarget::default() };
    simulated(1, target, |portal| async move {
        let session = Rc::new(log_in(portal).await);
        read(&session).await.unwrap();
        let waiting = Rc::clone(&session);
        let began = rt::now();
        // This command is answered together with the logout request; then nothing is under way.
        rt::spawn(async move { read(&waiting).await.unwrap() }).await;
        assert_eq!(session.closed().await, Ended::AskedToLeave);
        assert!(rt::now() - began < SECOND);
        assert!(matches!(read(&session).await.unwrap_err(), Error::NotSent(Ended::AskedToLeave)));
    });
    // With a command that is never answered, the session uses all the time that the target allows, ten
    // seconds.
    let target = RamTarget { drain_after: Some(3), silent_after: 1, ..RamTarget::default() };
    simulated(1, target, |portal| async move {
        let session = Rc::new(log_in(portal).await);
        let began = rt::now();
        let reads = [read(&session), read(&session)];
        for result in rt::join_all(reads).await {
            assert!(matches!(result, Err(Error::Ended(Ended::AskedToLeave))), "{result:?}");
        }
        let took = rt::now() - began;
        assert!(took > 8 * SECOND && took < 10 * SECOND, "{took:?}");
    });
}
