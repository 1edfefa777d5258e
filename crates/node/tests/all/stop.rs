//! A node that is to stop.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use base::Rng;
use initiator::{Ended, Lun};
use node::{Config, Handle};
use rt::sim::NodeStatus;

use crate::rig::{Rig, Shape, log_in, named};
use crate::seeds::each_seed;
use crate::shadow::Shadow;
use crate::workload::{Worker, read_all, volume_number};

/// Stops the node while clients write, cuts the power when it has ended, and checks that acknowledged writes
/// are not lost.
///
/// The clients log out on request, or never.
fn stop_under_load(seed: u64, log_out: bool) {
    let deadline = Duration::from_secs(2);
    let rig = Rig::with_config(seed, 2, Config { drain_deadline: deadline, ..Config::default() });
    let shape = Shape::thick();
    rig.add(shape);
    let shadow = Rc::new(RefCell::new(Shadow::new(volume_number(shape.lun))));
    let mut clients = Vec::new();
    let logged_in = Rc::new(Cell::new(0));
    for mut worker in Worker::share(shape, 4, &shadow, &mut Rng::new(seed)) {
        let name = format!("client-{}", worker.blocks.start);
        let client = rig.client(&name);
        let logged_in = Rc::clone(&logged_in);
        client.spawn(move |portal| async move {
            let session = log_in(portal, &name, shape.lun).await;
            logged_in.set(logged_in.get() + 1);
            while worker.step(&session).await.is_ok() {
                if log_out && worker.rng.one_in(20) {
                    drop(Rc::into_inner(session).unwrap().logout().await);
                    return;
                }
            }
        });
        clients.push(client);
    }
    assert!(rig.world.run_until(|| logged_in.get() == 4, Duration::from_secs(10)));
    rig.world.run_for(Duration::from_millis(10));
    let handle = Handle::new(rig.world.handle(rig.server));
    let began = rig.world.now();
    rig.world.wait_for(handle.drain());
    let ended = || rig.world.status(rig.server) == NodeStatus::Ended;
    assert!(rig.world.run_until(ended, Duration::from_secs(1)), "the node ends");
    let took = rig.world.now() - began;
    assert!(took < deadline + Duration::from_secs(1), "{took:?}");
    shadow.borrow_mut().stopped();
    rig.power_cycle();
    clients.into_iter().for_each(|client| rig.world.kill(client.node));
    rig.client("reader").run(move |portal| async move {
        let session = log_in(portal, "reader", shape.lun).await;
        let all = read_all(&session, shape).await;
        shadow.borrow_mut().check_after_cut(0, &all).unwrap();
    });
}

#[test]
fn acknowledged_data_is_durable_after_a_stop() {
    each_seed(4, |seed| stop_under_load(seed, true));
}

#[test]
fn sessions_that_do_not_log_out_are_cut_off_and_what_was_answered_is_durable() {
    each_seed(6, |seed| stop_under_load(seed, false));
}

#[test]
fn a_node_does_not_wait_for_clients_that_log_out_when_asked() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let session = client.run(|portal| async move {
            let options = initiator::Options { obedient: true, ..named("client") };
            initiator::Session::connect(portal, crate::rig::TARGET, &options).await.unwrap()
        });
        let began = rig.world.now();
        rig.world.wait_for(Handle::new(rig.world.handle(rig.server)).drain());
        assert!(rig.world.now() - began < Duration::from_millis(100));
        assert_eq!(client.run(move |_| async move { session.closed().await }), Ended::AskedToLeave);
    });
}

#[test]
fn no_login_is_accepted_while_the_node_stops() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let session = client.run(|portal| log_in(portal, "client", 0));
        let handle = Handle::new(rig.world.handle(rig.server));
        let _stopping = client.spawn(move |_| async move { handle.drain().await });
        rig.world.run_for(Duration::from_millis(100));
        client.run(move |portal| async move {
            let refused =
                initiator::Session::connect(portal, crate::rig::TARGET, &crate::rig::named("late")).await;
            assert!(matches!(refused, Err(initiator::Error::Login { .. })), "{:?}", refused.err());
            session.make_ready(Lun(0)).await.expect("who is in has time to finish");
        });
    });
}

/// One setting determines the time that the node tells an initiator, that an administrator's request grants,
/// and that the node's stop grants.
#[test]
fn clients_asked_to_log_out_get_the_configured_time() {
    let deadline = Duration::from_secs(3);
    let rig = Rig::with_config(1, 2, Config { drain_deadline: deadline, ..Config::default() });
    rig.add(Shape::thick());
    let client = rig.client("client");
    let ends = |end: &dyn Fn(u16)| {
        let session = client.run(|portal| log_in(portal, "client", 0));
        let sessions = rig.control(|control| async move { control.sessions().await.unwrap() });
        let began = rig.world.now();
        end(sessions[0].tsih);
        // It stays until it is cut off.
        client.run(move |_| async move { session.closed().await });
        rig.world.now() - began
    };
    let asked = ends(&|tsih| {
        rig.control(move |control| async move { control.end_session(tsih).await.unwrap() });
    });
    let stopped = ends(&|_| {
        let handle = Handle::new(rig.world.handle(rig.server));
        drop(rig.world.spawn_on(client.node, rt::CoreId(0), move || async move { handle.drain().await }));
    });
    for took in [asked, stopped] {
        assert!(took >= deadline && took < deadline + Duration::from_millis(500), "{asked:?} {stopped:?}");
    }
}
