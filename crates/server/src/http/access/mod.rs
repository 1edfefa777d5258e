//! Access control: who the caller is, and whether its role is sufficient.
//!
//! A caller proves its identity with a token (`Authorization: Bearer`: one of the cluster's, or this
//! machine's local token) or with a session cookie. A browser sends cookies automatically, even when a page
//! of another site causes the request. So a change with a cookie needs a header that such pages cannot set,
//! in addition to the cookie's `SameSite` and the checks of [`super::guard`]. The reasons:
//! `docs/why/access.md`.

mod caller;
mod gate;
mod local;
mod password;
mod role;
mod secret;
mod session;
mod slowdown;
mod unauthenticated;

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
use self::unauthenticated::Unauthenticated;
use super::audit::Audit;
use super::certificate::CertificateFault;
use super::refusal::Refusal;
use super::state::State;

pub(super) use self::caller::{
    Caller, kept_role, session_cookie, session_cookie_name, shown_role, token_text,
};
pub(super) use self::gate::{not_written_down, pass};
pub(super) use self::role::{Need, all as needs, need};
pub(super) use self::secret::{Digested, draw, draw_id, draw_number};
pub(super) use self::session::AGE_MAX as SESSION_AGE_MAX;

/// How long the link that creates the first user is valid. A restart prints a new one.
const SET_UP_VALID: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings with which the API opens.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The directory in which the node keeps its state.
    pub data_dir: PathBuf,
    /// Whether programs of this machine may read `/metrics` without a token.
    pub metrics_without_token: bool,
    /// Why the API does not answer other machines although it should.
    pub no_certificate: Option<CertificateFault>,
}

/// Who may use the API. Users and tokens themselves are in the record.
pub struct Access {
    pub(super) audit: Audit,
    /// Why the API does not answer other machines although it should.
    pub(super) no_certificate: Option<CertificateFault>,
    pub(super) passwords: Passwords,
    local: Local,
    metrics_without_token: bool,
    sessions: Mutex<Sessions>,
    slowdown: Mutex<Slowdown>,
    unauthenticated: Unauthenticated,
    /// The digest of the setup link's secret, and when it was drawn. `None` once the first user exists.
    set_up: Mutex<Option<(Digested, Instant)>>,
}

impl Access {
    /// Opens the audit log, and draws the local token.
    pub fn start(opening: &Opening) -> io::Result<Access> {
        Ok(Access {
            audit: Audit::open(&opening.data_dir.join("audit"))?,
            no_certificate: opening.no_certificate.clone(),
            passwords: Passwords::start()?,
            local: Local::draw(),
            metrics_without_token: opening.metrics_without_token,
            sessions: Mutex::default(),
            slowdown: Mutex::default(),
            unauthenticated: Unauthenticated::default(),
            set_up: Mutex::default(),
        })
    }

    /// Whether the audit log can be written. After a failure this tries again, for two seconds at most.
    pub async fn can_write_down(&self) -> bool {
        self.audit.trouble().await.is_none()
    }

    /// Leaves the local token where the command line finds it, for an API at these addresses. Dropping the
    /// result removes it.
    pub fn leave_credential(&self, addresses: &[SocketAddr], certificate: Option<String>) -> CredentialLeft {
        self.local.leave(addresses, certificate)
    }

    /// Draws the secret of the setup link, which creates the first user. An earlier secret becomes invalid.
    pub fn offer_set_up(&self) -> String {
        let secret = draw();
        *lock(&self.set_up) = Some((Digested::of(&secret), Instant::now()));
        secret
    }

    /// Whether this is the valid secret of the setup link.
    pub(super) fn is_set_up_secret(&self, secret: &str) -> bool {
        let offered = lock(&self.set_up);
        offered.as_ref().is_some_and(|(kept, drawn)| drawn.elapsed() < SET_UP_VALID && kept.is_of(secret))
    }

    pub(super) fn end_set_up(&self) {
        *lock(&self.set_up) = None;
    }

    /// Checks that the node runs, for unauthenticated callers.
    pub(super) async fn health(&self, state: &State) -> Result<(), Refusal> {
        self.unauthenticated.health(state).await
    }

    /// Whether there was ever a user, for unauthenticated callers; `None`: it is not known yet.
    pub(super) async fn is_set_up(&self, state: &State) -> Result<Option<bool>, Refusal> {
        self.unauthenticated.is_set_up(state).await
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
    // Each statement leaves the contents consistent, even if its thread panics later.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
