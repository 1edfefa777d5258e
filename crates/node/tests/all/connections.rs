//! Sessions of several connections (RFC 7143 4.2.2): they are added, replaced, logged out and broken.

use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Buf, Chain, Lba, Rng};
use initiator::Lun;
use initiator::command::{Command, CopySegment, ExtendedCopy, Identification, TestUnitReady};
use node::Config;
use proto::iscsi::wire::TaskManagementFunction;
use rt::sim::NetProfile;

use crate::content::{Stamp, stamped};
use crate::links::{LOGGED_OUT, Link, Nexus, Over};
use crate::reservations::slow_writes;
use crate::rig::{DISK, Rig, Shape, named};
use crate::seeds::each_seed;
use crate::workload::volume_number;

/// Login status (RFC 7143 11.13.5).
const TOO_MANY_CONNECTIONS: u16 = 0x0206;
const SESSION_DOES_NOT_EXIST: u16 = 0x020a;

const SECTORS_PER_BLOCK: u64 = 8;

const SHAPE: Shape = Shape { mib: 16, ..Shape::thick() };

/// The blocks that are copied.
const SOURCE: u64 = 1024;

fn content(lba: u64, blocks: u64, sequence: u64) -> Chain {
    let sectors = (blocks * SECTORS_PER_BLOCK) as usize;
    stamped(volume_number(0), lba * SECTORS_PER_BLOCK, sectors, Stamp { client: 1, sequence })
}

fn rig(seed: u64) -> Rig {
    let rig = Rig::new(seed, 2);
    rig.add(SHAPE);
    rig.client("writer").run(|portal| async move {
        let link = Nexus::log_in(portal, "writer", 1).await;
        for lba in (SOURCE..SOURCE + 1024).step_by(64) {
            assert_eq!(link.write(lba, content(lba, 64, 1000)).await, Ok(0));
        }
        assert_eq!(link.logout(None).await, Ok(LOGGED_OUT));
    });
    rig
}

/// Number of connections of this session, as administrators see them.
fn addresses(rig: &Rig) -> usize {
    let sessions = rig.control(|control| async move { control.sessions().await }).unwrap();
    sessions.iter().map(|session| session.addresses.len()).sum()
}

#[test]
fn commands_and_data_go_over_three_connections() {
    each_seed(6, |seed| {
        let rig = rig(seed);
        let client = rig.client("client");
        let links = client.run(move |portal| async move {
            let leading = Nexus::log_in(portal, "client", 4).await;
            let second = leading.nexus().join(1).await.unwrap();
            let third = leading.nexus().join(7).await.unwrap();
            let links = [leading, second, third];
            let mut rng = Rng::new(seed);
            let workers: Vec<_> = (0..12)
                .map(|worker: u64| {
                    let (links, mut rng) = (links.clone(), rng.fork());
                    rt::spawn(async move {
                        let part = SHAPE.blocks() / 12;
                        for sequence in 1..20 {
                            // Up to 300 KiB: as immediate data, and in one to five bursts that R2Ts request.
                            let most = if rng.one_in(3) { 75 } else { 3 };
                            let blocks = 1 + rng.below(most);
                            let lba = worker * part + rng.below(part - blocks);
                            let data = content(lba, blocks, sequence);
                            let any = |rng: &mut Rng| rng.below(3) as usize;
                            assert_eq!(links[any(&mut rng)].write(lba, data.clone()).await, Ok(0));
                            assert!(links[any(&mut rng)].read(lba, blocks).await.unwrap() == data.to_vec());
                        }
                    })
                })
                .collect();
            rt::join_all(workers).await;
            links
        });
        assert_eq!(addresses(&rig), 3);
        client.run(|_| async move {
            assert_eq!(links[1].logout(None).await, Ok(LOGGED_OUT));
            rt::join_all(links.iter().map(|link| link.closed())).await;
        });
        rig.world.run_for(Duration::from_secs(1));
        assert_eq!(addresses(&rig), 0);
    });
}

#[test]
fn a_session_has_as_many_connections_as_its_first_login_settled() {
    each_seed(8, |seed| {
        let rig = rig(seed);
        // A login takes several round trips.
        rig.world.set_net_profile(NetProfile { window: 60..400, ..NetProfile::default() });
        rig.client("client").run(|portal| async move {
            let leading = Nexus::log_in(portal, "client", 3).await;
            // All at once: a connection counts once its login has ended.
            let joins = (1..6).map(|cid| {
                let nexus = Rc::clone(leading.nexus());
                rt::spawn(async move { nexus.join(cid).await })
            });
            let (joined, refused): (Vec<_>, Vec<_>) =
                rt::join_all(joins.collect::<Vec<_>>()).await.into_iter().partition(Result::is_ok);
            assert_eq!((joined.len(), refused.len()), (2, 3));
            assert!(refused.iter().all(|refused| refused.as_ref().err() == Some(&TOO_MANY_CONNECTIONS)));
            let joined: Vec<_> = joined.into_iter().flatten().collect();
            for (number, link) in joined.iter().enumerate() {
                assert_eq!(link.write(number as u64, content(number as u64, 1, 1)).await, Ok(0));
            }
            // When one is gone, another may join.
            assert_eq!(leading.logout(Some(joined[0].cid())).await, Ok(LOGGED_OUT));
            let another = leading.nexus().join(9).await.unwrap();
            assert_eq!(another.write(9, content(9, 1, 1)).await, Ok(0));
            assert_eq!(leading.nexus().join(10).await.err(), Some(TOO_MANY_CONNECTIONS));
        });
        assert_eq!(addresses(&rig), 3);
    });
}

#[test]
fn no_initiator_joins_another_ones_session() {
    each_seed(1, |seed| {
        rig(seed).client("client").run(|portal| async move {
            let leading = Nexus::log_in(portal, "client", 4).await;
            let other = Nexus::log_in(portal, "other", 4).await;
            assert_eq!(
                leading.nexus().with_number_of(other.nexus()).join(1).await.err(),
                Some(SESSION_DOES_NOT_EXIST)
            );
            assert_eq!(leading.logout(None).await, Ok(LOGGED_OUT));
            assert_eq!(leading.nexus().join(1).await.err(), Some(SESSION_DOES_NOT_EXIST));
            other.make_ready().await;
        });
    });
}

/// Which sessions and initiators a login may act for.
mod standing {
    use initiator::{Chap, Credentials, Options, Session};
    use node::access::{ChapSecret, HostGroup};
    use node::control::MapSpec;

    use super::*;
    use crate::rig::TARGET;

    const OWN: &str = "the secret of own";
    const OTHER: &str = "the secret of other";
    const AUTHENTICATION_FAILURE: u16 = 0x0201;
    const AUTHORIZATION_FAILURE: u16 = 0x0202;

    fn set_group(rig: &Rig, name: &'static str, address: &str, secret: Option<&'static str>, lun: u16) {
        let addresses = vec![address.parse().unwrap()];
        rig.control(move |control| async move {
            let chap = secret.map(|secret| ChapSecret { user: "user".into(), secret: secret.into() });
            let group = HostGroup { name: name.parse().unwrap(), initiators: Vec::new(), addresses, chap };
            let new = control.access().host(name).is_none();
            control.set_host(group, new).await.unwrap();
            if new {
                let spec = MapSpec { target: TARGET.into(), host: name.into(), lun: Some(lun) };
                control.map("ram", spec).await.unwrap();
            }
        });
    }

    fn with_secret(name: &str, secret: &str) -> Options {
        let initiator = Credentials { name: "user".into(), secret: secret.into() };
        let isid = Some([0x80, 1, 2, 3, 4, 5]);
        Options { chap: Some(Chap { initiator, target: None }), isid, ..named(name) }
    }

    fn told(rig: &Rig, code: &str) -> Vec<&'static str> {
        let taken = rig.control(|control| control.next_events());
        let events = taken.events.into_iter().map(|(_, event)| event);
        events.filter(|event| event.code.as_str() == code).filter_map(|event| event.cause).collect()
    }

    #[test]
    fn a_connection_from_an_address_the_session_may_not_use_cannot_join_it() {
        each_seed(8, |seed| {
            let rig = rig(seed);
            rig.add(Shape { lun: 1, ..Shape::ram() });
            let client = rig.client("client");
            set_group(&rig, "near", &rig.world.address(client.node).to_string(), None, 7);
            let leading = client.run(|portal| async move { Nexus::log_in(portal, "client", 4).await });
            told(&rig, "");
            let tsih = leading.nexus().tsih();
            rig.client("stranger").run(move |portal| async move {
                // The stranger may log in to the target, because the LUN is mapped to "any".
                Nexus::log_in(portal, "stranger", 1).await;
                let stranger = Nexus::new(portal, "client", tsih);
                assert_eq!(stranger.join(1).await.err(), Some(AUTHORIZATION_FAILURE));
                assert_eq!(stranger.join(0).await.err(), Some(AUTHORIZATION_FAILURE));
                let stranger = Nexus::new(portal, "client", 0);
                assert_eq!(stranger.join(0).await.err(), Some(AUTHORIZATION_FAILURE));
                let stranger = Nexus::new(portal, "client", tsih ^ 1);
                assert_eq!(stranger.join(0).await.err(), Some(SESSION_DOES_NOT_EXIST));
            });
            assert_eq!(told(&rig, "join_refused"), ["address", "address", "address", "no_such_session"]);
            client.run(|portal| async move {
                assert!(leading.read(0, 1).await.is_ok(), "the session was not touched");
                assert!(leading.nexus().join(1).await.is_ok());
                Nexus::log_in(portal, "client", 4).await;
                leading.closed().await;
            });
            // A rule that moves the initiator to another group is no reason to refuse its next login.
            set_group(&rig, "near", "192.0.2.1", None, 7);
            client.run(|portal| async move { Nexus::log_in(portal, "client", 4).await });
        });
    }

    #[test]
    fn another_secret_cannot_end_a_session() {
        each_seed(8, |seed| {
            let rig = rig(seed);
            rig.add(Shape { lun: 1, ..Shape::ram() });
            set_group(&rig, "own", "0.0.0.0/0", Some(OWN), 7);
            set_group(&rig, "other", "0.0.0.0/0", Some(OTHER), 8);
            let log_in = |portal, secret| async move {
                Session::connect(portal, TARGET, &with_secret("client", secret)).await
            };
            rig.client("client").run(move |portal| async move {
                let victim = log_in(portal, OWN).await.unwrap();
                victim.make_ready(Lun(7)).await.unwrap();
                assert!(log_in(portal, OTHER).await.is_err());
                victim.make_ready(Lun(7)).await.expect("it was not touched");
                let own = log_in(portal, OWN).await.expect("it may take its own session's place");
                own.make_ready(Lun(7)).await.unwrap();
                assert!(victim.make_ready(Lun(7)).await.is_err(), "its place was taken");
            });
        });
    }

    /// A group that gets a secret while its session is open: the session continues, and a connection that
    /// joins it must prove the secret.
    #[test]
    fn a_secret_set_later_is_required_of_joining_connections() {
        each_seed(1, |seed| {
            let rig = rig(seed);
            rig.add(Shape { lun: 1, ..Shape::ram() });
            let client = rig.client("client");
            set_group(&rig, "own", "0.0.0.0/0", None, 7);
            let leading = client.run(|portal| async move { Nexus::log_in(portal, "client", 4).await });
            set_group(&rig, "own", "0.0.0.0/0", Some(OWN), 7);
            client.run(|_| async move {
                assert!(leading.read(0, 1).await.is_ok());
                assert_eq!(leading.nexus().join(1).await.err(), Some(AUTHENTICATION_FAILURE));
                assert!(leading.read(0, 1).await.is_ok());
            });
        });
    }
}

async fn unit_name(link: &Link) -> [u8; 16] {
    let page = link.send_command(&Identification).await.unwrap().data;
    Identification.answer(Some(Buf::copy_of(&page))).unwrap().unit.naa().unwrap()
}

/// As [`begin_writes_and_copy`], on a slow disk; waits a moment, so that they reach it.
async fn begin_slow_writes(link: &Rc<Link>, sequence: u64) -> Vec<rt::Task<Result<u8, Over>>> {
    let name = unit_name(link).await;
    let all = begin_writes_and_copy(link, name, sequence);
    rt::sleep(Duration::from_millis(20)).await;
    all
}

/// Starts writes and a copy on one connection. The copy is the hardest case: it writes again and again.
fn begin_writes_and_copy(link: &Rc<Link>, name: [u8; 16], sequence: u64) -> Vec<rt::Task<Result<u8, Over>>> {
    let segment = CopySegment { source: Lba(SOURCE), destination: Lba(2560), count: BlockCount(1024) };
    let copier = Rc::clone(link);
    let mut all = vec![rt::spawn(async move {
        let size = BlockSize::B4096;
        let copy = ExtendedCopy { source: name, destination: name, size, segments: &[segment] };
        copier.send_command(&copy).await.map(|answer| answer.status)
    })];
    all.extend((0..12).map(|writer: u64| {
        let link = Rc::clone(link);
        // Some are large, so that some of their data has not arrived yet.
        let blocks = if writer.is_multiple_of(3) { 40 } else { 1 };
        rt::spawn(async move { link.write(writer * 80, content(writer * 80, blocks, sequence)).await })
    }));
    all
}

/// Checks that no command that was started changes data from now on.
async fn nothing_lands(link: &Link) {
    let blocks = SHAPE.blocks();
    let now = link.read_all(blocks).await;
    rt::sleep(Duration::from_secs(1)).await;
    assert!(now == link.read_all(blocks).await, "a write landed late");
}

/// Number of commands without a response.
async fn unanswered(writers: Vec<rt::Task<Result<u8, Over>>>) -> usize {
    rt::join_all(writers).await.into_iter().filter(Result::is_err).count()
}

/// `asks_itself`: the connection logs itself out; otherwise another one does.
fn log_out_under_load(seed: u64, asks_itself: bool) {
    let rig = rig(seed);
    rig.world.set_disk_latency(rig.server, DISK, slow_writes());
    let links = rig.client("client").run(move |portal| async move {
        let leading = Nexus::log_in(portal, "client", 4).await;
        let second = leading.nexus().join(1).await.unwrap();
        let going = begin_slow_writes(&second, 1).await;
        let staying = rt::spawn({
            let leading = Rc::clone(&leading);
            async move { leading.write(3700, content(3700, 40, 1)).await }
        });
        let asker = if asks_itself { &second } else { &leading };
        assert_eq!(asker.logout(Some(1)).await, Ok(LOGGED_OUT));
        leading.fill_gaps_of(&second);
        // An initiator that has this response may write at once.
        assert_eq!(leading.write(0, content(0, 1, 2)).await, Ok(0));
        nothing_lands(&leading).await;
        assert!(leading.read(0, 1).await.unwrap() == content(0, 1, 2).to_vec());
        assert_eq!(staying.await, Ok(0), "the others are not touched");
        second.closed().await;
        assert!(unanswered(going).await > 0, "the disk is not slow enough for this test");
        // The number is free.
        let third = leading.nexus().join(1).await.unwrap();
        assert_eq!(third.write(1, content(1, 1, 3)).await, Ok(0));
        [leading, third]
    });
    assert_eq!(addresses(&rig), 2);
    drop(links);
}

#[test]
fn nothing_of_a_connection_lands_after_it_has_logged_out() {
    each_seed(4, |seed| log_out_under_load(seed, true));
}

#[test]
fn nothing_of_a_connection_lands_after_another_has_logged_it_out() {
    each_seed(4, |seed| log_out_under_load(seed, false));
}

#[test]
fn nothing_of_a_connection_lands_after_another_has_taken_its_place() {
    each_seed(6, |seed| {
        let rig = rig(seed);
        rig.world.set_disk_latency(rig.server, DISK, slow_writes());
        let links = rig.client("client").run(move |portal| async move {
            let leading = Nexus::log_in(portal, "client", 2).await;
            let former = leading.nexus().join(1).await.unwrap();
            let writers = begin_slow_writes(&former, 1).await;
            let new = leading.nexus().join(1).await.unwrap();
            new.fill_gaps_of(&former);
            assert_eq!(new.write(0, content(0, 1, 2)).await, Ok(0));
            nothing_lands(&new).await;
            assert!(leading.read(0, 1).await.unwrap() == content(0, 1, 2).to_vec());
            former.closed().await;
            assert!(unanswered(writers).await > 0, "the disk is not slow enough for this test");
            [leading, new]
        });
        assert_eq!(addresses(&rig), 2);
        drop(links);
    });
}

/// The session has no other connection meanwhile, and may have none.
#[test]
fn the_only_connection_of_a_session_is_replaced() {
    each_seed(4, |seed| {
        let rig = rig(seed);
        rig.world.set_disk_latency(rig.server, DISK, slow_writes());
        let link = rig.client("client").run(move |portal| async move {
            let former = Nexus::log_in(portal, "client", 1).await;
            let writers = begin_slow_writes(&former, 1).await;
            let new = former.nexus().join(0).await.unwrap();
            new.fill_gaps_of(&former);
            nothing_lands(&new).await;
            assert!(unanswered(writers).await > 0, "the disk is not slow enough for this test");
            assert_eq!(former.nexus().join(1).await.err(), Some(TOO_MANY_CONNECTIONS));
            new
        });
        assert_eq!(addresses(&rig), 1);
        drop(link);
    });
}

/// Many connections compete for one place: the last one gets it, and the others learn that.
#[test]
fn one_of_many_connection_replacements_remains() {
    each_seed(8, |seed| {
        let rig = rig(seed);
        // A login takes several round trips.
        rig.world.set_net_profile(NetProfile { window: 60..400, ..NetProfile::default() });
        let link = rig.client("client").run(move |portal| async move {
            let leading = Nexus::log_in(portal, "client", 2).await;
            let joins = (0..6).map(|_| {
                let nexus = Rc::clone(leading.nexus());
                rt::spawn(async move { nexus.join(1).await })
            });
            let joined: Vec<_> =
                rt::join_all(joins.collect::<Vec<_>>()).await.into_iter().flatten().collect();
            rt::sleep(Duration::from_secs(1)).await;
            let alive = joined.iter().filter(|link| !link.is_over()).count();
            assert_eq!(alive, 1, "of {}", joined.len());
            leading.make_ready().await;
            leading
        });
        assert_eq!(addresses(&rig), 2);
        drop(link);
    });
}

/// Error recovery level 0: if a connection is lost, the session is lost (RFC 7143 7.1.4).
#[test]
fn a_connection_that_breaks_takes_the_session_with_it() {
    each_seed(6, |seed| end_under_load(seed, true));
}

#[test]
fn a_session_takes_the_place_of_its_former_self_with_all_its_connections() {
    each_seed(6, |seed| end_under_load(seed, false));
}

/// `breaks`: one of the connections breaks; otherwise the initiator just logs in again.
fn end_under_load(seed: u64, breaks: bool) {
    let rig = rig(seed);
    rig.world.set_disk_latency(rig.server, DISK, slow_writes());
    let link = rig.client("client").run(move |portal| async move {
        let leading = Nexus::log_in(portal, "client", 4).await;
        let second = leading.nexus().join(1).await.unwrap();
        let third = leading.nexus().join(2).await.unwrap();
        let writers = begin_slow_writes(&third, 1).await;
        if breaks {
            second.cut();
            leading.closed().await;
            third.closed().await;
        }
        let again = Nexus::log_in(portal, "client", 4).await;
        rt::join_all([leading, second, third].iter().map(|link| link.closed())).await;
        assert!(unanswered(writers).await > 0, "the disk is not slow enough for this test");
        assert_eq!(again.write(0, content(0, 1, 2)).await, Ok(0));
        nothing_lands(&again).await;
        let second = again.nexus().join(1).await.unwrap();
        assert!(second.read(0, 1).await.unwrap() == content(0, 1, 2).to_vec());
        again
    });
    rig.world.run_for(Duration::from_secs(1));
    let sessions = rig.control(|control| async move { control.sessions().await }).unwrap();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    drop(link);
}

/// The writes are on their way on one connection when the reset is sent on another.
#[test]
fn nothing_lands_after_a_reset_requested_by_another_connection() {
    each_seed(10, |seed| {
        let rig = rig(seed);
        rig.world.set_disk_latency(rig.server, DISK, slow_writes());
        rig.client("client").run(move |portal| async move {
            let leading = Nexus::log_in(portal, "client", 4).await;
            let second = leading.nexus().join(1).await.unwrap();
            let name = unit_name(&second).await;
            // If the reset were executed first, this command would take the unit attention, and the copy
            // would continue.
            let asker = Rc::clone(&second);
            let asked = rt::spawn(async move { asker.send_command(&TestUnitReady).await });
            let writers = begin_writes_and_copy(&second, name, 1);
            rt::yield_now().await;
            assert_eq!(leading.manage(TaskManagementFunction::LogicalUnitReset).await, Ok(0));
            leading.make_ready().await;
            assert_eq!(leading.write(0, content(0, 1, 2)).await, Ok(0));
            nothing_lands(&leading).await;
            drop((asked, writers));
        });
    });
}

/// Connections are added, removed and replaced at random while all of them write and read; acknowledged
/// writes are not lost.
#[test]
fn connections_come_and_go_under_load() {
    each_seed(6, |seed| {
        let rig = rig(seed);
        let link = rig.client("client").run(move |portal| async move {
            let leading = Nexus::log_in(portal, "client", 4).await;
            let mut rng = Rng::new(seed);
            let workers: Vec<_> = (1..4)
                .map(|cid: u16| {
                    let (nexus, mut rng) = (Rc::clone(leading.nexus()), rng.fork());
                    rt::spawn(async move { come_and_go(nexus, cid, &mut rng).await })
                })
                .collect();
            let first = SHAPE.blocks() / 4 * 3;
            for sequence in 1..100 {
                let lba = first + rng.below(400);
                let data = content(lba, 8, sequence);
                assert_eq!(leading.write(lba, data.clone()).await, Ok(0));
                assert!(leading.read(lba, 8).await.unwrap() == data.to_vec());
            }
            rt::join_all(workers).await;
            leading
        });
        assert_eq!(addresses(&rig), 1);
        drop(link);
    });
}

async fn come_and_go(nexus: Rc<Nexus>, cid: u16, rng: &mut Rng) {
    let first = u64::from(cid - 1) * (SHAPE.blocks() / 4);
    let mut link = nexus.join(cid).await.unwrap();
    for sequence in 1..20 {
        let abandoned = begin_writes(&link, first, sequence, rng);
        rt::sleep(Duration::from_micros(rng.below(3000))).await;
        // Otherwise without a logout, while the former connection still exists.
        if rng.one_in(2) {
            assert_eq!(link.logout(Some(cid)).await, Ok(LOGGED_OUT));
        }
        let former = std::mem::replace(&mut link, nexus.join(cid).await.unwrap());
        link.fill_gaps_of(&former);
        let data = content(first, 64, 1000 + sequence);
        assert_eq!(link.write(first, data.clone()).await, Ok(0));
        rt::sleep(Duration::from_millis(rng.below(4))).await;
        assert!(link.read(first, 64).await.unwrap() == data.to_vec(), "a write landed late");
        drop(abandoned);
    }
    assert_eq!(link.logout(Some(cid)).await, Ok(LOGGED_OUT));
}

fn begin_writes(
    link: &Rc<Link>,
    first: u64,
    sequence: u64,
    rng: &mut Rng,
) -> Vec<rt::Task<Result<u8, Over>>> {
    (0..8)
        .map(|_| {
            let (link, lba, blocks) = (Rc::clone(link), first + rng.below(32), 1 + rng.below(32));
            rt::spawn(async move { link.write(lba, content(lba, blocks, sequence)).await })
        })
        .collect()
}

/// The initiator is alive, but does not read: the node does not keep its responses forever.
#[test]
fn a_client_that_reads_no_responses_is_disconnected() {
    each_seed(2, |seed| {
        let config = Config { nop_interval: Duration::from_secs(2), ..Config::default() };
        let rig = Rig::with_config(seed, 2, config);
        rig.add(SHAPE);
        let client = rig.client("client");
        let link = client.run(|portal| Nexus::log_in(portal, "client", 1));
        let reads: Vec<_> = (0..8)
            .map(|part: u64| {
                let link = Rc::clone(&link);
                client.spawn(move |_| async move { link.read(part * 256, 256).await })
            })
            .collect();
        rig.world.run_for(Duration::from_micros(200));
        rig.world.pause(client.node);
        // A ping, the end of the session, and the time to take what is left.
        rig.world.run_for(Duration::from_secs(2 + 2 + 10 + 2));
        rig.world.resume(client.node);
        let answers = reads.into_iter().map(|read| rig.world.wait_for(read).unwrap());
        let lost = answers.filter(Result::is_err).count();
        assert!(lost > 0, "all was kept for it");
        assert_eq!(addresses(&rig), 0);
    });
}
