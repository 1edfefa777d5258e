//! Requests to etcd: JSON over HTTP, to one member after the other until one answers.

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::{Agent, Timeout};

use super::StartError;
use super::access::{Access, User};
use super::trouble::{EtcdTrouble, MemberTrouble};

/// How long one member may take to answer one request, if there is that much time.
pub(super) const ATTEMPT: Duration = Duration::from_secs(3);
/// The pause between two requests that were not answered.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// How long changes are read from one connection. Then a new one replaces it, so that a dead connection is
/// noticed.
const STREAM: Duration = Duration::from_secs(3);
/// Bytes of an answer: a full record in base64 with its framing.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

pub(super) struct Gateway {
    agent: Agent,
    endpoints: Vec<String>,
    /// The member that is asked next.
    next: AtomicUsize,
    user: Option<User>,
    last_answers: Mutex<LastAnswers>,
}

/// The last answers of etcd.
#[derive(Default)]
struct LastAnswers {
    /// The token of the authenticated user, until etcd forgets it.
    token: Option<String>,
    /// Why the last request was not answered, and by which member.
    trouble: Option<EtcdTrouble>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// No member was reached, so the request had no effect.
    Unreached,
    /// It is unknown whether the request had an effect.
    Unknown,
    /// etcd says that the request had no effect, and why.
    Refused(Refused),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// `NOSPACE`.
    Full,
    /// The lease has expired.
    Lease,
    /// The user is not authenticated, or no longer.
    Token,
    /// The user lacks the permission.
    Denied,
}

impl Failed {
    /// The result of repeated attempts, this one followed by a refusal.
    fn or(self, refused: Refused) -> Failed {
        match self {
            Failed::Unknown => Failed::Unknown,
            _ => Failed::Refused(refused),
        }
    }
}

impl Gateway {
    pub(super) fn new(access: &Access) -> Result<Gateway, StartError> {
        access.check()?;
        let endpoints = access.endpoints.iter().map(|it| it.trim_end_matches('/').to_owned()).collect();
        Ok(Gateway {
            agent: access.agent()?,
            endpoints,
            next: AtomicUsize::new(0),
            user: access.read_user()?,
            last_answers: Mutex::default(),
        })
    }

    fn last_answers(&self) -> MutexGuard<'_, LastAnswers> {
        self.last_answers.lock().expect("no code panics while it holds what was said")
    }

    /// Why the last request was not answered.
    pub(super) fn trouble(&self) -> EtcdTrouble {
        self.last_answers().trouble.clone().unwrap_or(EtcdTrouble::Silent)
    }

    /// The answer to a request that may be sent more than once.
    pub(super) fn ask(&self, path: &str, body: &Value, until: Instant) -> Result<Value, Failed> {
        let mut failed = Failed::Unreached;
        loop {
            match self.ask_once(path, body, until) {
                Err(Failed::Unreached) => {}
                Err(Failed::Unknown) => failed = Failed::Unknown,
                Err(Failed::Refused(Refused::Token)) if self.user.is_some() => {
                    if let Err(Failed::Refused(refused)) = self.prove(until) {
                        return Err(failed.or(refused));
                    }
                }
                Err(Failed::Refused(refused)) => return Err(failed.or(refused)),
                Ok(answer) => return Ok(answer),
            }
            if Instant::now() + PAUSE >= until {
                return Err(failed);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Authenticates the user.
    fn prove(&self, until: Instant) -> Result<(), Failed> {
        let Some(User { name, password }) = &self.user else { return Ok(()) };
        self.last_answers().token = None;
        let proof =
            self.ask_once("auth/authenticate", &json!({ "name": name, "password": password }), until)?;
        self.last_answers().token = proof["token"].as_str().map(str::to_owned);
        Ok(())
    }

    /// Asks one member. If it does not answer, the next request goes to another one.
    fn ask_once(&self, path: &str, body: &Value, until: Instant) -> Result<Value, Failed> {
        let at = self.next.load(Ordering::Relaxed);
        let endpoint = &self.endpoints[at % self.endpoints.len()];
        let left = until.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), ATTEMPT);
        let request = self.request(endpoint, path).config().timeout_global(Some(left)).build();
        let answer = request.send_json(body).map_err(|error| {
            let failed = if never_sent(&error) { Failed::Unreached } else { Failed::Unknown };
            (failed, unanswered(endpoint, &error))
        });
        let answer = answer.and_then(|mut answer| {
            let read = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_json::<Value>();
            let read = read.map_err(|error| (Failed::Unknown, unanswered(endpoint, &error)))?;
            if answer.status().is_success() { Ok(read) } else { Err(refusal(&read)) }
        });
        let answer = answer.map_err(|(failed, reason)| {
            self.last_answers().trouble = Some(EtcdTrouble::Member { endpoint: endpoint.clone(), reason });
            failed
        });
        match answer {
            Ok(_) => self.last_answers().trouble = None,
            Err(Failed::Unreached | Failed::Unknown) => {
                self.next.store(at.wrapping_add(1), Ordering::Relaxed)
            }
            Err(Failed::Refused(_)) => {}
        }
        answer
    }

    fn request(&self, endpoint: &str, path: &str) -> ureq::RequestBuilder<ureq::typestate::WithBody> {
        let request = self.agent.post(format!("{endpoint}/v3/{path}"));
        match &self.last_answers().token {
            Some(token) => request.header("Authorization", token),
            None => request,
        }
    }

    /// Asks one member for a stream of answers, one per line, and passes each to `take`, until `take` returns
    /// false, the connection's time is over, or it breaks.
    pub(super) fn stream(&self, path: &str, body: &Value, mut take: impl FnMut(&Value) -> bool) {
        let at = self.next.load(Ordering::Relaxed);
        let endpoint = &self.endpoints[at % self.endpoints.len()];
        let request = self.request(endpoint, path);
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
            // An incomplete line was cut off, and will come again.
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

/// Why a member did not answer. What the HTTP library says is logged.
fn unanswered(endpoint: &str, error: &ureq::Error) -> MemberTrouble {
    tracing::debug!(endpoint, %error, "etcd did not answer");
    error.into()
}

/// Whether a request certainly did not reach any member.
fn never_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => true,
        ureq::Error::Timeout(timeout) => matches!(timeout, Timeout::Resolve | Timeout::Connect),
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// The meaning and the message of an error of etcd. The messages are part of its API (`rpctypes`); gRPC's
/// codes alone do not distinguish these.
fn refusal(answer: &Value) -> (Failed, MemberTrouble) {
    // Later versions only have `message`.
    let Some(message) = answer["error"].as_str().or(answer["message"].as_str()) else {
        return (Failed::Unknown, MemberTrouble::Foreign);
    };
    let failed = match message {
        "etcdserver: mvcc: database space exceeded" => Failed::Refused(Refused::Full),
        "etcdserver: requested lease not found" => Failed::Refused(Refused::Lease),
        "etcdserver: user name is empty"
        | "etcdserver: invalid auth token"
        | "etcdserver: revision of auth store is old" => Failed::Refused(Refused::Token),
        "etcdserver: permission denied"
        | "etcdserver: authentication failed, invalid user ID or password"
        | "etcdserver: authentication is not enabled" => Failed::Refused(Refused::Denied),
        _ => Failed::Unknown,
    };
    (failed, MemberTrouble::Refused { message: message.to_owned() })
}

/// etcd's 64-bit numbers are strings in JSON, and it leaves out 0.
pub(super) fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_etcd_are_classified() {
        let answer = |error| refusal(&json!({ "error": error, "code": 8 })).0;
        assert_eq!(answer("etcdserver: mvcc: database space exceeded"), Failed::Refused(Refused::Full));
        assert_eq!(answer("etcdserver: requested lease not found"), Failed::Refused(Refused::Lease));
        assert_eq!(answer("etcdserver: request timed out"), Failed::Unknown);
        let later = refusal(&json!({ "message": "etcdserver: permission denied", "code": 7 }));
        let message = "etcdserver: permission denied".to_owned();
        assert_eq!(later, (Failed::Refused(Refused::Denied), MemberTrouble::Refused { message }));
        assert_eq!(refusal(&json!({ "detail": "no etcd" })), (Failed::Unknown, MemberTrouble::Foreign));
        assert_eq!((number(&json!("18446744073709551615")), number(&json!(null))), (u64::MAX, 0));
    }
}
