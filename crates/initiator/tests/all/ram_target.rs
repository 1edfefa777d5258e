//! A target with one unit in memory, built on the brains of `proto`: just enough to answer an initiator.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{Chain, Instant, SendBatch};
use proto::iscsi::target_role::{
    Authorization, Chap, CloseReason, Command, Event, Login, LoginEvent, LoginOutcome, LoginRequest,
    LoginStatus, Session, SessionConfig, SessionKind, TargetRecord, TaskFunction, TaskResponse,
};
use proto::scsi::{Outcome, Sense, SenseKey, Status};
use rt::{Listener, Stream};

pub(crate) const NAME: &str = "iqn.2026-01.org.ursa:ram";
pub(crate) const BLOCK: usize = 512;

/// What the target serves, and its faults.
#[derive(Clone)]
pub(crate) struct RamTarget {
    pub(crate) bytes: usize,
    pub(crate) chap: Option<Chap>,
    /// From this write on, writes go one block too far: for tests of data checks.
    pub(crate) misplace_write: Option<u64>,
    /// The writes, by number from 1 on, for which there is no space.
    pub(crate) without_space: Range<u64>,
    /// The number of commands that are answered; later ones are not.
    pub(crate) silent_after: u64,
    /// The responses to task management functions; functions that are not listed get none.
    pub(crate) functions: Vec<(TaskFunction, TaskResponse)>,
    /// The functions that were requested.
    pub(crate) asked: Arc<Mutex<Vec<TaskFunction>>>,
    /// The number of the command after which the target requests a logout.
    pub(crate) drain_after: Option<u64>,
}

impl Default for RamTarget {
    fn default() -> RamTarget {
        use TaskFunction::{AbortTask, LogicalUnitReset};
        RamTarget {
            bytes: 8 << 20,
            chap: None,
            misplace_write: None,
            without_space: 0..0,
            silent_after: u64::MAX,
            functions: [AbortTask, LogicalUnitReset]
                .map(|function| (function, TaskResponse::Complete))
                .into(),
            asked: Arc::default(),
            drain_after: None,
        }
    }
}

/// The unit.
struct Unit {
    target: RamTarget,
    memory: RefCell<Vec<u8>>,
    writes: RefCell<u64>,
    commands: RefCell<u64>,
}

impl RamTarget {
    pub(crate) async fn serve(self, address: SocketAddr) {
        self.serve_at(Listener::bind(address).await.unwrap()).await;
    }

    pub(crate) async fn serve_at(self, listener: Listener) {
        let memory = RefCell::new(vec![0; self.bytes]);
        let unit = Rc::new(Unit { target: self, memory, writes: RefCell::new(0), commands: RefCell::new(0) });
        while let Ok((stream, _)) = listener.accept().await {
            rt::spawn(serve_connection(stream.attach(), Rc::clone(&unit))).detach();
        }
    }
}

async fn serve_connection(stream: Stream, unit: Rc<Unit>) {
    let login = log_in(&stream, unit.target.chap.clone(), 1, async |_| ()).await;
    let Some(login) = login else { return };
    let config = SessionConfig {
        tsih: 1,
        commands_max: 64,
        data_bytes_max: 16 << 20,
        nop_interval: Duration::from_secs(60),
        drain_time: Duration::from_secs(10),
    };
    let mut session = Session::new(config, login.request.kind == SessionKind::Discovery);
    let connection = session.expect_connection(login.request.cid).unwrap();
    session.add_connection(connection, login.negotiated, login.stat_sn, login.exp_cmd_sn, rt::now());
    session.handle_bytes(connection, &login.leftover, rt::now());
    let mut batch = SendBatch::new();
    loop {
        while let Some(event) = session.poll_event() {
            match event {
                Event::Command(command) => {
                    if let Some(outcome) = unit.execute(&command) {
                        session.complete(command.id, outcome);
                    }
                    if unit.target.drain_after == Some(*unit.commands.borrow()) {
                        session.end(CloseReason::Drained, rt::now());
                    }
                }
                Event::Task { id, function, .. } => {
                    unit.target.asked.lock().unwrap().push(function);
                    let known = unit.target.functions.iter().find(|(known, _)| *known == function);
                    if let Some((_, response)) = known {
                        session.task_done(id, *response);
                    }
                }
                Event::SendTargets { id, .. } => {
                    let record =
                        TargetRecord { name: NAME.into(), addresses: vec!["10.0.0.1:3260,1".into()] };
                    session.send_targets(id, &[record]);
                }
                Event::Logout { id, .. } => session.logout_done(id, true),
                Event::Close { .. } | Event::End => {}
            }
        }
        session.poll_transmit(connection, &mut batch, 1 << 20);
        if !batch.is_empty() {
            match stream.send(batch).await {
                Ok(empty) => batch = empty,
                Err(_) => return,
            }
            continue;
        }
        if session.connections_open() == 0 {
            return;
        }
        if let Some(in_place) = session.take_in_place(connection) {
            match stream.receive_exact(in_place.buf, in_place.filled).await {
                Ok(buf) => session.handle_in_place(connection, buf, rt::now()),
                Err(_) => return,
            }
            continue;
        }
        match stream.receive().await {
            Ok(received) if !received.is_empty() => session.handle_bytes(connection, &received, rt::now()),
            _ => return,
        }
    }
}

/// Serves a connection's login; `finish` runs before the last response.
pub(crate) async fn log_in(
    stream: &Stream,
    chap: Option<Chap>,
    portal_group: u16,
    finish: impl AsyncFnOnce(&LoginRequest),
) -> Option<LoginOutcome> {
    let mut login = Login::new(Instant(u64::MAX));
    let mut batch = SendBatch::new();
    let mut outcome = None;
    let mut failed = false;
    let mut finish = Some(finish);
    let mut asked = None;
    loop {
        while let Some(event) = login.poll_event() {
            match event {
                LoginEvent::Authorize(request)
                    if request.target.as_deref().is_some_and(|name| name != NAME) =>
                {
                    login.authorize(Authorization::Deny(LoginStatus::NotFound));
                }
                LoginEvent::Authorize(request) => {
                    login.authorize(Authorization::Allow { chap: chap.clone(), portal_group, alias: None });
                    asked = Some(request);
                }
                LoginEvent::Finish => {
                    if let (Some(finish), Some(request)) = (finish.take(), &asked) {
                        finish(request).await;
                    }
                    outcome = Some(login.accept(1));
                }
                LoginEvent::Failed(..) => failed = true,
            }
        }
        login.poll_transmit(&mut batch);
        if !batch.is_empty() {
            batch = stream.send(batch).await.ok()?;
        }
        if failed || outcome.is_some() {
            return outcome;
        }
        let received = stream.receive().await.ok()?;
        if received.is_empty() {
            return None;
        }
        login.handle_bytes(&received);
    }
}

impl Unit {
    /// The answer; `None` once the target is silent.
    fn execute(&self, command: &Command) -> Option<Outcome> {
        *self.commands.borrow_mut() += 1;
        if *self.commands.borrow() > self.target.silent_after {
            return None;
        }
        let cdb = &command.cdb.0;
        let lba = u64::from_be_bytes(*cdb[2..].first_chunk().unwrap()) as usize;
        let count = u32::from_be_bytes(*cdb[10..].first_chunk().unwrap()) as usize;
        let range = lba.saturating_mul(BLOCK)..lba.saturating_add(count).saturating_mul(BLOCK);
        let outcome = match cdb[0] {
            0x00 | 0x91 => Outcome::good(),
            // The device identification page, with an NAA name.
            0x12 if cdb[2] == 0x83 => {
                let mut page = vec![0, 0x83, 0, 20, 0x01, 0x03, 0, 16];
                page.extend([0x60; 16]);
                data_in(Chain::copy_of(&page))
            }
            0x12 => data_in(Chain::copy_of(b"inquiry data")),
            0x9e => {
                let mut data = [0; 32];
                data[..8].copy_from_slice(&(self.target.bytes as u64 / BLOCK as u64 - 1).to_be_bytes());
                data[8..12].copy_from_slice(&(BLOCK as u32).to_be_bytes());
                data_in(Chain::copy_of(&data))
            }
            0x88 => match self.memory.borrow().get(range) {
                Some(data) => data_in(Chain::copy_of(data)),
                None => Outcome::status(Status::Busy),
            },
            0x8a => {
                *self.writes.borrow_mut() += 1;
                if self.target.without_space.contains(&*self.writes.borrow()) {
                    return Some(Outcome::check(Sense::new(SenseKey::DataProtect, 0x2707)));
                }
                let wrong = self.target.misplace_write.is_some_and(|from| *self.writes.borrow() >= from);
                let range = if wrong { range.start + BLOCK..range.end + BLOCK } else { range };
                match self.memory.borrow_mut().get_mut(range) {
                    Some(place) => command.data_out.copy_to(place),
                    None => return Some(Outcome::status(Status::Busy)),
                }
                Outcome::good_out(command.data_out.len() as u64)
            }
            // ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE
            _ => Outcome::check(Sense::illegal(0x2000)),
        };
        Some(outcome)
    }
}

fn data_in(data: Chain) -> Outcome {
    Outcome { transfer: data.len() as u64, data_in: data, ..Outcome::good() }
}
