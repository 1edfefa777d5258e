//! One connection: moves bytes between a client and what answers it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::answer::{Answer, Truncated};
use crate::export::{Export, Source};
use crate::negotiation::{Negotiated, Negotiation, NegotiationEvent, Security};
use crate::request::{Command, Request, Requests};
use crate::violation::Violation;

/// How long a client may take until it sends requests.
pub const NEGOTIATED_WITHIN: Duration = Duration::from_secs(30);
/// How many requests of a connection are answered at the same time.
pub const ANSWERED_AT_ONCE: usize = 4;
/// How many more requests of a connection are kept. Then it is not read.
pub const QUEUED_REQUESTS_MAX: usize = 64;

/// How many bytes are received at a time.
const RECEIVE_BYTES: usize = 4096;

/// A connection to a client. One thread receives, several send, one at a time.
pub trait Transport: Sync {
    /// Begins TLS on the connection, as its server.
    ///
    /// # Errors
    /// The client does not, or not in time.
    fn start_tls(&mut self, deadline: Instant) -> io::Result<()>;

    /// Waits for bytes; 0: the client has closed the connection.
    ///
    /// # Errors
    /// The connection is lost, or none have come in time.
    fn receive(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize>;

    /// Sends all bytes.
    ///
    /// # Errors
    /// The connection is lost, or the client takes no bytes for too long.
    fn send(&self, bytes: &[u8]) -> io::Result<()>;

    /// Closes the connection, also while other threads wait in it.
    fn close(&self);
}

/// How a connection has ended.
#[derive(Debug)]
pub struct Ended {
    /// The client has used the export, and not only asked what there is.
    pub has_used: bool,
    /// Why it was ended; `None`: the client has left.
    pub problem: Option<Problem>,
}

/// Why the server has ended a connection.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Problem {
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error("TLS has failed")]
    Tls(#[source] io::Error),
    #[error("the connection is lost")]
    Lost(#[source] io::Error),
    #[error("it has not negotiated within {} s", NEGOTIATED_WITHIN.as_secs())]
    Slow,
    #[error(transparent)]
    Truncated(#[from] Truncated),
    #[error("no thread can be started for its requests")]
    Threads(#[source] io::Error),
}

/// Serves one client, until it leaves.
pub fn serve<T: Transport, S: Source>(
    transport: &mut T,
    security: Security,
    export: &Export,
    source: &S,
) -> Ended {
    let deadline = Instant::now() + NEGOTIATED_WITHIN;
    let ended = match negotiate(transport, security, export, deadline) {
        Ok(None) => Ended { has_used: false, problem: None },
        Ok(Some((negotiated, rest))) => {
            let answering = Answering::new(&*transport, source, negotiated, export.size);
            Ended { has_used: true, problem: answering.run(rest).err() }
        }
        Err(problem) => Ended { has_used: false, problem: Some(problem) },
    };
    transport.close();
    ended
}

/// What was negotiated, and the bytes that have come behind that. `None`: the client has left.
fn negotiate<T: Transport>(
    transport: &mut T,
    security: Security,
    export: &Export,
    deadline: Instant,
) -> Result<Option<(Negotiated, Vec<u8>)>, Problem> {
    let mut negotiation = Negotiation::new(export, security);
    let mut buffer = [0; RECEIVE_BYTES];
    loop {
        let event = negotiation.poll_event();
        transport.send(&negotiation.take_output()).map_err(Problem::Lost)?;
        match event {
            Some(NegotiationEvent::StartTls) => {
                transport.start_tls(deadline).map_err(Problem::Tls)?;
                negotiation.tls_has_begun();
            }
            Some(NegotiationEvent::Transmit(negotiated)) => {
                return Ok(Some((negotiated, negotiation.into_rest())));
            }
            Some(NegotiationEvent::Abort) => return Ok(None),
            Some(NegotiationEvent::Violation(violation)) => return Err(violation.into()),
            None => {
                let late = Instant::now() >= deadline;
                let received = match late {
                    true => return Err(Problem::Slow),
                    false => transport.receive(&mut buffer, Some(deadline)),
                };
                match received {
                    Ok(0) => return Ok(None),
                    Ok(len) => negotiation.handle_bytes(&buffer[..len]),
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(Problem::Slow),
                    Err(error) => return Err(Problem::Lost(error)),
                }
            }
        }
    }
}

/// Answers the requests of one client: this thread receives them, others answer them.
struct Answering<'a, T, S> {
    transport: &'a T,
    source: &'a S,
    negotiated: Negotiated,
    size: u64,
    /// Locked by the thread that sends.
    output: Mutex<()>,
    /// Requests that were not begun are not answered any more.
    is_over: AtomicBool,
    /// The problem of a thread that answers.
    problem: Mutex<Option<Problem>>,
}

impl<'a, T: Transport, S: Source> Answering<'a, T, S> {
    fn new(transport: &'a T, source: &'a S, negotiated: Negotiated, size: u64) -> Answering<'a, T, S> {
        Answering {
            transport,
            source,
            negotiated,
            size,
            output: Mutex::new(()),
            is_over: AtomicBool::new(false),
            problem: Mutex::new(None),
        }
    }

    fn run(self, rest: Vec<u8>) -> Result<(), Problem> {
        let (sender, receiver) = mpsc::sync_channel(QUEUED_REQUESTS_MAX);
        let receiver = Mutex::new(receiver);
        let received = thread::scope(|scope| {
            let mut received = Ok(());
            for _ in 0..ANSWERED_AT_ONCE {
                let answers = || self.answer_all(&receiver);
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, answers) {
                    received = Err(Problem::Threads(error));
                    break;
                }
            }
            // When the sender is dropped, the threads answer what it has sent, and end.
            let received = received.and_then(|()| self.receive_all(rest, sender));
            if received.is_err() {
                self.is_over.store(true, Ordering::Relaxed);
                // Nobody reads what a thread may be sending.
                self.transport.close();
            }
            received
        });
        let problem = self.problem.into_inner().unwrap_or_else(PoisonError::into_inner);
        problem.map_or(received, Err)
    }

    /// Receives requests until the client leaves.
    fn receive_all(&self, rest: Vec<u8>, sender: SyncSender<Request>) -> Result<(), Problem> {
        let mut requests = Requests::default();
        requests.handle_bytes(&rest);
        let mut buffer = [0; RECEIVE_BYTES];
        loop {
            while let Some(request) = requests.next()? {
                // Or all that answer have ended.
                if request.command == Command::Disconnect || sender.send(request).is_err() {
                    return Ok(());
                }
            }
            let len = self.transport.receive(&mut buffer, None).map_err(Problem::Lost)?;
            if len == 0 {
                // It does not wait for answers.
                self.is_over.store(true, Ordering::Relaxed);
                return Ok(());
            }
            requests.handle_bytes(&buffer[..len]);
        }
    }

    /// Answers requests until there are no more.
    fn answer_all(&self, receiver: &Mutex<Receiver<Request>>) {
        loop {
            let request = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(request) = request else { return };
            if self.is_over.load(Ordering::Relaxed) {
                continue;
            }
            if let Err(problem) = self.answer(&request) {
                // Once the client has left, errors are expected.
                if !self.is_over.swap(true, Ordering::Relaxed) {
                    *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
                }
                self.transport.close();
            }
        }
    }

    fn answer(&self, request: &Request) -> Result<(), Problem> {
        let Some(mut answer) = Answer::new(request, &self.negotiated, self.size) else { return Ok(()) };
        let lock = || self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let is_divisible = answer.is_divisible();
        let mut locked = None;
        while let Some(part) = answer.next_part(self.source)? {
            let sending = locked.take().unwrap_or_else(lock);
            self.transport.send(&part).map_err(Problem::Lost)?;
            if !is_divisible {
                locked = Some(sending);
            }
        }
        Ok(())
    }
}
