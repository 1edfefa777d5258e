//! Sessions that are opened, broken and opened again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Lba, Rng};
use initiator::{Ended, Error, Lun, Session};
use rt::sim::{Fault, NetProfile};

use crate::content::{Stamp, stamped};
use crate::reservations::slow_writes;
use crate::rig::{DISK, Rig, Shape, TARGET, log_in, log_in_again, named};
use crate::seeds::each_seed;
use crate::shadow::Shadow;
use crate::workload::{Worker, read_all, volume_number};

const LUN: u16 = 0;
const ISID: Option<[u8; 6]> = Some([0x80, 1, 2, 3, 4, 5]);

async fn log_in_as_one(portal: std::net::SocketAddr) -> Result<Rc<Session>, Error> {
    let options = initiator::Options { isid: ISID, ..named("one") };
    let session = Session::connect(portal, TARGET, &options).await?;
    session.make_ready(Lun(LUN)).await?;
    Ok(Rc::new(session))
}

#[test]
fn nothing_of_a_session_lands_after_another_has_taken_its_place() {
    each_seed(6, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.world.set_disk_latency(rig.server, DISK, slow_writes());
        rig.client("client").run(|portal| async move {
            let first = log_in_as_one(portal).await.unwrap();
            let writers: Vec<_> = (0..16)
                .map(|writer: u64| {
                    let first = Rc::clone(&first);
                    rt::spawn(async move {
                        let stamp = Stamp { client: 1, sequence: 1 };
                        let data = stamped(volume_number(LUN), writer * 480, 8, stamp);
                        first.write(Lun(LUN), Lba(writer * 60), data, BlockSize::B4096).await
                    })
                })
                .collect();
            rt::sleep(Duration::from_millis(20)).await;
            let second = log_in_as_one(portal).await.unwrap();
            assert!(first.ended().is_some());
            let at_the_login = read_all(&second, Shape::thick()).await;
            rt::sleep(Duration::from_secs(1)).await;
            assert!(at_the_login == read_all(&second, Shape::thick()).await, "a write landed late");
            rt::join_all(writers).await;
        });
        let sessions = rig.control(|control| async move { control.sessions().await }).unwrap();
        assert!(sessions.len() <= 1, "{sessions:?}");
    });
}

#[test]
fn many_simultaneous_logins_of_one_name_leave_one_session() {
    each_seed(10, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        if seed % 2 == 0 {
            // The end of a login takes several round trips: the next one comes in the middle of it.
            rig.world.set_net_profile(NetProfile { window: 60..400, ..NetProfile::default() });
        }
        rig.client("client").run(|portal| async move {
            let logins: Vec<_> = (0..6).map(|_| rt::spawn(log_in_as_one(portal))).collect();
            let began = rt::now();
            let sessions: Vec<_> = rt::join_all(logins).await.into_iter().flatten().collect();
            let took = rt::now().since(began);
            assert!(took < Duration::from_secs(5), "logins took {took:?}");
            rt::sleep(Duration::from_secs(1)).await;
            let alive = sessions.iter().filter(|session| session.ended().is_none()).count();
            assert_eq!(alive, 1, "of {} that were logged in", sessions.len());
        });
        let sessions = rig.control(|control| async move { control.sessions().await }).unwrap();
        assert!(sessions.len() <= 1, "{sessions:?}");
    });
}

#[test]
fn a_connection_that_breaks_in_the_middle_of_writes_harms_nothing_else() {
    each_seed(4, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let shape = Shape::thick();
        let shadow = Rc::new(RefCell::new(Shadow::new(volume_number(LUN))));
        let mut rng = Rng::new(seed);
        let client = rig.client("client");
        let logged_in = Rc::new(Cell::new(0));
        for worker in Worker::share(shape, 4, &shadow, &mut rng) {
            let name = format!("client-{}", worker.blocks.start);
            let logged_in = Rc::clone(&logged_in);
            client.spawn(move |portal| async move {
                let session = log_in(portal, &name, LUN).await;
                logged_in.set(logged_in.get() + 1);
                let broken = worker.work(session, u64::MAX).await;
                // A worker may also be between two commands at this moment.
                let Err(Error::Ended(why) | Error::NotSent(why)) = &broken else { panic!("{broken:?}") };
                assert!(matches!(why, Ended::Broken(_) | Ended::Closed), "{broken:?}");
            });
        }
        assert!(rig.world.run_until(|| logged_in.get() == 4, Duration::from_secs(10)));
        rig.world.run_for(Duration::from_micros(5_000 + rng.below(20_000)));
        assert_eq!(rig.world.break_connections(client.node, rig.server), 4);
        assert!(rig.world.fault_counts().of(Fault::ConnectionBreak) > 0);
        client.run(move |portal| async move {
            let session = log_in_again(portal, "reader", LUN).await;
            let all = read_all(&session, shape).await;
            shadow.borrow().check_alive(0, &all).unwrap();
        });
        // A reset may be late, and so may the last command at the disk.
        rig.world.run_for(Duration::from_secs(2));
        let left = rig.control(|control| async move { control.sessions().await }).unwrap();
        assert!(left.len() <= 1, "those that broke are gone: {left:?}");
    });
}

#[test]
fn a_node_that_restarts_takes_its_clients_back() {
    each_seed(3, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let session = client.run(|portal| log_in(portal, "client", LUN));
        rig.world.kill(rig.server);
        rig.start();
        client.run(move |portal| async move {
            let read = session.read(Lun(LUN), Lba(0), BlockCount(1), BlockSize::B4096).await;
            assert!(matches!(read, Err(Error::NotSent(_))), "{read:?}");
            let again = log_in_again(portal, "client", LUN).await;
            again.read(Lun(LUN), Lba(0), BlockCount(1), BlockSize::B4096).await.unwrap();
        });
    });
}
