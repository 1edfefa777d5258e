//! What a session does on its own, each in a task: receive, send, watch the clock, abort overdue commands,
//! log out when the target requests it.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use base::SendBatch;
use proto::iscsi::initiator::Connection;
use rt::Task;

use super::escalation;
use super::keep_alive::TICK;
use super::shared::Shared;
use crate::Ended;

/// Starts the tasks of a session; they end when they are dropped.
pub(super) fn start(shared: &Rc<Shared>) -> [Task<()>; 5] {
    [
        rt::spawn(receive(Rc::clone(shared))),
        rt::spawn(send(Rc::clone(shared))),
        rt::spawn(watch(Rc::clone(shared))),
        rt::spawn(escalation::run(Rc::clone(shared))),
        rt::spawn(leave(Rc::clone(shared))),
    ]
}

async fn receive(shared: Rc<Shared>) {
    while shared.ended.get().is_none() {
        if let Err(ended) = receive_once(&shared).await {
            return shared.end(ended);
        }
    }
}

async fn receive_once(shared: &Shared) -> Result<(), Ended> {
    let broken = |error: io::Error| Ended::Broken(error.kind());
    let place = shared.connection.borrow_mut().take_in_place();
    match place {
        Some(place) => {
            let buf = shared.stream.receive_exact(place.buf, place.filled).await.map_err(broken)?;
            shared.connection.borrow_mut().handle_in_place(buf);
            shared.handle_events();
        }
        None => {
            let received = shared.stream.receive().await.map_err(broken)?;
            if received.is_empty() {
                return Err(Ended::Closed);
            }
            shared.handle_bytes(&received);
        }
    }
    Ok(())
}

/// Sends everything at once: what all tasks that ran since the last send have added.
async fn send(shared: Rc<Shared>) {
    let mut batch = SendBatch::new();
    while shared.ended.get().is_none() {
        shared.connection.borrow_mut().poll_transmit(&mut batch);
        if batch.is_empty() {
            shared.output.notified().await;
            continue;
        }
        match shared.stream.send(batch).await {
            Ok(empty) => batch = empty,
            Err(error) => return shared.end(Ended::Broken(error.kind())),
        }
    }
}

async fn watch(shared: Rc<Shared>) {
    while shared.ended.get().is_none() {
        rt::sleep(TICK).await;
        shared.handle_tick();
    }
}

/// We log out this long before the target's time limit, whatever is still under way.
const LEAVE_MARGIN: Duration = Duration::from_secs(1);

/// When the target requests a logout: waits for the commands under way, then logs out.
async fn leave(shared: Rc<Shared>) {
    let within = loop {
        match shared.leaving.get() {
            Some(within) => break within,
            None => shared.leave.notified().await,
        }
    };
    let answered = async {
        while shared.waiters.borrow().commands() > 0 {
            shared.leave.notified().await;
        }
    };
    // We log out in either case.
    let _ = rt::timeout(within.saturating_sub(LEAVE_MARGIN), answered).await;
    Connection::logout(&mut shared.connection.borrow_mut());
    shared.output.notify();
    rt::sleep(LEAVE_MARGIN).await;
    shared.end(Ended::Silent);
}
