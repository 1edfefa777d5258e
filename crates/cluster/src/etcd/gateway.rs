//! Questions to etcd: JSON over HTTP, each to one member after the other until one answers.

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::{Agent, Timeout};

use crate::error::Error;

/// How long one member may take to answer one question, if there is that much time.
const ATTEMPT: Duration = Duration::from_secs(3);
/// Between two questions that were not answered.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// How long changes are read from one connection; then another takes its place, so that one that is dead is noticed.
const STREAM: Duration = Duration::from_secs(10);
/// Bytes of an answer: a full record in base64 with its frames.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

pub(super) struct Gateway {
    agent: Agent,
    endpoints: Vec<String>,
    /// Which of them is asked next.
    next: AtomicUsize,
}

/// No answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// No member was reached, so that nothing has happened.
    Unreached,
    /// Nobody knows what has happened.
    Unknown,
    /// etcd says that nothing has happened, and why.
    Refused(Refused),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// `NOSPACE`.
    Full,
    /// It has expired.
    Lease,
}

impl Failed {
    /// What the caller of a read is told.
    pub(super) fn of_read(self) -> Error {
        match self {
            Failed::Unreached => Error::NoLeader,
            Failed::Unknown | Failed::Refused(_) => Error::NoQuorum,
        }
    }
}

impl Gateway {
    pub(super) fn new(endpoints: &[String]) -> Gateway {
        let config = Agent::config_builder().http_status_as_error(false).max_redirects(0);
        let config = config.timeout_connect(Some(ATTEMPT)).build();
        let endpoints = endpoints.iter().map(|it| it.trim_end_matches('/').to_owned()).collect();
        Gateway { agent: Agent::new_with_config(config), endpoints, next: AtomicUsize::new(0) }
    }

    /// The answer to a question that may be asked more than once.
    pub(super) fn ask(&self, path: &str, body: &Value, until: Instant) -> Result<Value, Failed> {
        let mut failed = Failed::Unreached;
        loop {
            match self.ask_once(path, body, until) {
                Err(Failed::Unreached) => {}
                Err(Failed::Unknown) => failed = Failed::Unknown,
                answered => return answered,
            }
            if Instant::now() + PAUSE >= until {
                return Err(failed);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Asks one member; another one next time, if it does not answer.
    fn ask_once(&self, path: &str, body: &Value, until: Instant) -> Result<Value, Failed> {
        let at = self.next.load(Ordering::Relaxed);
        let endpoint = &self.endpoints[at % self.endpoints.len()];
        let left = until.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), ATTEMPT);
        let request = self.agent.post(format!("{endpoint}/v3/{path}"));
        let answer = request.config().timeout_global(Some(left)).build().send_json(body);
        let answer =
            answer.map_err(|error| if never_sent(&error) { Failed::Unreached } else { Failed::Unknown });
        let answer = answer.and_then(|mut answer| {
            let read = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_json::<Value>();
            let read = read.map_err(|_| Failed::Unknown)?;
            if answer.status().is_success() { Ok(read) } else { Err(refusal(&read)) }
        });
        if matches!(answer, Err(Failed::Unreached | Failed::Unknown)) {
            self.next.store(at.wrapping_add(1), Ordering::Relaxed);
        }
        answer
    }

    /// Asks one member for a stream of answers, a line each, and gives each to `take` until that says that it was the last one,
    /// or the connection has served its time or breaks.
    pub(super) fn stream(&self, path: &str, body: &Value, mut take: impl FnMut(&Value) -> bool) {
        let at = self.next.load(Ordering::Relaxed);
        let endpoint = &self.endpoints[at % self.endpoints.len()];
        let request = self.agent.post(format!("{endpoint}/v3/{path}"));
        let request = request.config().timeout_recv_response(Some(ATTEMPT)).timeout_recv_body(Some(STREAM));
        let Ok(answer) = request.build().send_json(body) else {
            self.next.store(at.wrapping_add(1), Ordering::Relaxed);
            return;
        };
        let mut lines = BufReader::new(answer.into_body().into_reader());
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line);
            // What is not a whole line was cut off, and comes again.
            let whole = matches!(read, Ok(read) if read > 0) && line.ends_with(b"\n");
            match serde_json::from_slice(&line) {
                Ok(value) if whole => {
                    if !take(&value) {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}

/// Whether a request certainly did not reach anybody.
fn never_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => true,
        ureq::Error::Timeout(timeout) => matches!(timeout, Timeout::Resolve | Timeout::Connect),
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// What etcd means by an error. Its messages are part of its API (`rpctypes`); gRPC's codes alone do not tell these apart.
fn refusal(answer: &Value) -> Failed {
    match answer["error"].as_str().unwrap_or_default() {
        "etcdserver: mvcc: database space exceeded" => Failed::Refused(Refused::Full),
        "etcdserver: requested lease not found" => Failed::Refused(Refused::Lease),
        _ => Failed::Unknown,
    }
}

/// etcd's 64-bit numbers are strings in JSON, and 0 is left out.
pub(super) fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_etcd_means() {
        let answer = |error| refusal(&json!({ "error": error, "code": 8 }));
        assert_eq!(answer("etcdserver: mvcc: database space exceeded"), Failed::Refused(Refused::Full));
        assert_eq!(answer("etcdserver: requested lease not found"), Failed::Refused(Refused::Lease));
        assert_eq!(answer("etcdserver: request timed out"), Failed::Unknown);
        assert_eq!((number(&json!("18446744073709551615")), number(&json!(null))), (u64::MAX, 0));
    }
}
