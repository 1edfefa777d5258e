//! Who asks, and whether that is enough: the gate before every call.
//!
//! A caller proves itself by a token (`Authorization: Bearer`: one of the cluster's, or this machine's
//! credential) or by a session's cookie. A browser sends a cookie by itself, also when a page of another site
//! has it ask; so a change by cookie needs a header that such pages cannot set, beside the cookie's own
//! `SameSite` and what [`super::guard`] refuses. Why it is as it is: `docs/why/access.md`.

mod caller;
mod gate;
mod local;
mod password;
mod role;
mod secret;
mod session;
mod slowdown;
mod strangers;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use self::local::Left as CredentialLeft;
use self::local::Local;
use self::password::Passwords;
pub(super) use self::password::TooMany;
use self::session::Sessions;
use self::slowdown::Slowdown;
pub(super) use self::slowdown::network_of;
use self::strangers::Strangers;
use super::audit::Audit;
use super::refusal::Refusal;
use super::state::State;

pub(super) use self::caller::{
    Caller, kept_role, session_cookie, session_cookie_name, shown_role, token_text,
};
pub(super) use self::gate::{not_written_down, pass};
pub(super) use self::role::{Need, all as needs, need};
pub(super) use self::secret::{Digested, draw, draw_id, draw_number};
pub(super) use self::session::AGE_MAX as SESSION_AGE_MAX;

/// How long the link to make the first user is good; a restart prints another one.
const SET_UP_VALID: Duration = Duration::from_secs(24 * 60 * 60);

/// How the API is opened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Where the node keeps its state.
    pub data_dir: PathBuf,
    /// Programs of this machine may read `/metrics` without a token.
    pub metrics_without_token: bool,
    /// Why other machines are not answered, if they should be.
    pub no_certificate: Option<String>,
}

/// Who may ask, as this node knows it; users and tokens themselves are in the record.
pub struct Access {
    pub(super) audit: Audit,
    /// Why other machines are not answered, if they should be.
    pub(super) no_certificate: Option<String>,
    pub(super) passwords: Passwords,
    local: Local,
    metrics_without_token: bool,
    sessions: Mutex<Sessions>,
    slowdown: Mutex<Slowdown>,
    strangers: Strangers,
    /// What is kept of the set-up link's secret, and when it was drawn; used up with the first user.
    set_up: Mutex<Option<(Digested, Instant)>>,
}

impl Access {
    /// Begins the audit log, and draws this machine's credential.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(opening: &Opening) -> io::Result<Access> {
        Ok(Access {
            audit: Audit::open(&opening.data_dir.join("audit"))?,
            no_certificate: opening.no_certificate.clone(),
            passwords: Passwords::start()?,
            local: Local::draw(),
            metrics_without_token: opening.metrics_without_token,
            sessions: Mutex::default(),
            slowdown: Mutex::default(),
            strangers: Strangers::default(),
            set_up: Mutex::default(),
        })
    }

    /// Whether what is changed can be written down. What failed is tried again, for two seconds at most.
    pub async fn can_write_down(&self) -> bool {
        self.audit.trouble().await.is_none()
    }

    /// Leaves this machine's credential where the command line finds it, for an API at these addresses. It is
    /// taken away when the result is dropped.
    pub fn leave_credential(&self, addresses: &[SocketAddr], certificate: Option<String>) -> CredentialLeft {
        self.local.leave(addresses, certificate)
    }

    /// The secret of the link that makes the first user; the one before is good no more.
    pub fn offer_set_up(&self) -> String {
        let secret = draw();
        *lock(&self.set_up) = Some((Digested::of(&secret), Instant::now()));
        secret
    }

    /// Whether this is the set-up link's secret, and it was not used.
    pub(super) fn is_set_up_secret(&self, secret: &str) -> bool {
        let offered = lock(&self.set_up);
        offered.as_ref().is_some_and(|(kept, drawn)| drawn.elapsed() < SET_UP_VALID && kept.is_of(secret))
    }

    /// The link was used.
    pub(super) fn end_set_up(&self) {
        *lock(&self.set_up) = None;
    }

    /// That the node runs, for whoever asks.
    pub(super) async fn health(&self, state: &State) -> Result<(), Refusal> {
        self.strangers.health(state).await
    }

    /// Whether there was ever a user, for whoever asks; `None`: it is not known yet.
    pub(super) async fn is_set_up(&self, state: &State) -> Result<Option<bool>, Refusal> {
        self.strangers.is_set_up(state).await
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        lock(&self.sessions)
    }

    pub(super) fn slowdown(&self) -> MutexGuard<'_, Slowdown> {
        lock(&self.slowdown)
    }

    #[cfg(test)]
    pub(super) fn local_token(&self) -> String {
        self.local.token().to_owned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in there is whole between two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
