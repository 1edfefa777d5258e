//! Sessions of several connections over TCP. No initiator that we did not write supports them: [`Raw`] does.

use std::thread;

use e2e::raw::{Login, Raw};
use e2e::{Export, Server, VolumeSpec, pattern};

const MIB: u64 = 1 << 20;
const ROUNDS: u64 = 500;

/// A session of up to `connections_max` connections, and its first connection.
fn log_in(export: &Export, connections_max: u32) -> Raw {
    let login = Login { connections_max, ..Login::default() };
    let mut leading = Raw::login_with(export, 0, 0x4000, login).expect("it may log in");
    leading.wait_until_ready().expect("the unit gets ready");
    leading
}

fn start() -> Option<(Server, Export)> {
    let mut server = Server::start();
    let export = server.create(&VolumeSpec::new("several", 64 * MIB));
    if !server.is_ursa() {
        println!("this server does not do sessions of several connections: nothing to test");
        return None;
    }
    Some((server, export))
}

/// Writes and reads back, in a part of its own.
fn work(raw: &mut Raw, part: u32) {
    for round in 0..ROUNDS {
        let lba = u64::from(part) * 1024 + round % 64 * 8;
        let data = pattern::stamped(part, round, lba, 4096);
        raw.write(lba, 8, &data, false).expect("a write");
        assert!(raw.read(lba, 8, 4096).expect("a read") == data, "round {round} of part {part}");
    }
}

#[test]
fn commands_go_over_all_connections_at_once() {
    let Some((server, export)) = start() else { return };
    let mut leading = log_in(&export, 4);
    let mut others: Vec<Raw> =
        [1, 2, 700].map(|cid| leading.join(&export, usize::from(cid) % 2, cid).expect("it may join")).into();
    let refused = leading.join(&export, 0, 3).err().expect("that is one too many");
    assert!(refused.to_string().contains("status 0x0206"), "{refused}");
    thread::scope(|scope| {
        for (part, raw) in others.iter_mut().enumerate() {
            scope.spawn(move || work(raw, part as u32 + 1));
        }
        work(&mut leading, 0);
    });
    // The others read what one connection wrote.
    let last = ROUNDS - 1;
    let lba = 1024 + last % 64 * 8;
    assert!(others[2].read(lba, 8, 4096).expect("a read") == pattern::stamped(1, last, lba, 4096));
    assert_eq!(others[1].logout(None).expect("an answer"), 0);
    for raw in others.iter_mut().chain([&mut leading]) {
        raw.wait_for_close().expect("the session is over");
    }
    drop(server);
}

#[test]
fn connections_leave_and_are_replaced() {
    let Some((server, export)) = start() else { return };
    let mut leading = log_in(&export, 3);
    let mut second = leading.join(&export, 1, 1).expect("it may join");
    let mut third = leading.join(&export, 1, 2).expect("it may join");
    work(&mut second, 1);
    // By a request on the connection itself, and by one on another connection.
    assert_eq!(second.logout(Some(1)).expect("an answer"), 0);
    second.wait_for_close().expect("it is closed");
    assert_eq!(leading.logout(Some(2)).expect("an answer"), 0);
    third.wait_for_close().expect("it is closed");
    assert_eq!(leading.logout(Some(2)).expect("an answer"), 1, "there is no such connection");
    work(&mut leading, 0);
    // Their places and numbers are free.
    let mut second = leading.join(&export, 0, 1).expect("it may join");
    let mut third = leading.join(&export, 0, 2).expect("it may join");
    work(&mut third, 2);
    // A new connection replaces one that still exists, and continues in its place.
    let mut new = leading.join(&export, 1, 1).expect("it may join");
    second.wait_for_close().expect("another has its place");
    work(&mut new, 3);
    work(&mut leading, 0);
    let mut new_leading = leading.join(&export, 1, 0).expect("it may join");
    leading.wait_for_close().expect("another has its place");
    work(&mut new_leading, 4);
    drop(server);
}

/// Error recovery level 0: if a connection is lost, the session is lost (RFC 7143 7.1.4).
#[test]
fn a_connection_that_breaks_takes_the_session_with_it() {
    let Some((server, export)) = start() else { return };
    let mut leading = log_in(&export, 3);
    let second = leading.join(&export, 1, 1).expect("it may join");
    let mut third = leading.join(&export, 1, 2).expect("it may join");
    work(&mut third, 2);
    drop(second);
    leading.wait_for_close().expect("the session is over");
    third.wait_for_close().expect("the session is over");
    let gone = leading.join(&export, 0, 1).err().expect("there is nothing to join");
    assert!(gone.to_string().contains("status 0x020a"), "{gone}");
    let mut again = log_in(&export, 3);
    work(&mut again, 2);
    drop(server);
}
