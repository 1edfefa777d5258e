use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Lba};
use initiator::{Ended, Error, Lun, Options, Session, Timeouts};

use crate::ram_target::{NAME, RamTarget};
use crate::simulated;

#[test]
fn an_unreachable_portal_is_reported() {
    simulated(1, RamTarget::default(), |mut portal| async move {
        portal.set_port(1);
        let error = Session::connect(portal, NAME, &Options::default()).await.err().unwrap();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
    });
}

/// A portal that accepts connections and never answers.
#[test]
fn a_portal_that_says_nothing() {
    simulated(1, RamTarget::default(), |_| async {
        let listener = rt::Listener::bind(([127, 0, 0, 1], 4000).into()).await.unwrap();
        let timeouts = Timeouts { login: Duration::from_secs(3), ..Timeouts::default() };
        let options = Options { timeouts, ..Options::default() };
        let error = Session::connect(listener.local_address(), NAME, &options).await.err().unwrap();
        assert!(matches!(error, Error::NoLogin { .. }), "{error}");
    });
}

#[test]
fn an_abandoned_command_does_no_harm() {
    let target = RamTarget { silent_after: 1, ..RamTarget::default() };
    simulated(1, target, |portal| async move {
        let session = Rc::new(Session::connect(portal, NAME, &Options::default()).await.unwrap());
        session.make_ready(Lun(0)).await.unwrap();
        let read = session.read(Lun(0), Lba(0), BlockCount(1), BlockSize::B512);
        assert!(rt::timeout(Duration::from_secs(1), read).await.is_err());
        session.ping().await.unwrap();
        // A command that waits when the session ends is notified.
        let waiting = Rc::clone(&session);
        let waiter = rt::spawn(async move {
            waiting.read(Lun(0), Lba(0), BlockCount(1), BlockSize::B512).await.err().unwrap()
        });
        rt::sleep(Duration::from_millis(100)).await;
        session.logout().await.unwrap();
        assert!(matches!(waiter.await, Error::Ended(Ended::LoggedOut)));
    });
}

#[test]
fn the_connection_is_cut() {
    use rt::sim::World;
    let world = World::new(3);
    let server = world.add_node("target", 1, |_| std::future::pending());
    let address = std::net::SocketAddr::new(world.address(server), 3260);
    let target = RamTarget { silent_after: 1, ..RamTarget::default() };
    let _serving = world.spawn_on(server, rt::CoreId(0), move || target.serve(address));
    let client = world.add_node("client", 1, |_| std::future::pending());
    let told = world.spawn_on(client, rt::CoreId(0), move || async move {
        let session = Session::connect(address, NAME, &Options::default()).await.unwrap();
        session.make_ready(Lun(0)).await.unwrap();
        let error = session.read(Lun(0), Lba(0), BlockCount(1), BlockSize::B512).await.err().unwrap();
        (error, session.ended(), session.ping().await.is_err())
    });
    world.run_for(Duration::from_secs(1));
    world.kill(server);
    let (error, ended, ping_fails) = world.wait_for(told).unwrap();
    assert!(matches!(error, Error::Ended(Ended::Closed | Ended::Broken(_))), "{error}");
    assert!(ended.is_some() && ping_fails);
}
