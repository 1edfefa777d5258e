//! What a node reports about itself: faults that its control knows, and faults of its HTTP interface.
//!
//! Nodes ask each other over links, which may be up before the HTTP interface is. Until then a node reports
//! only what its control knows.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use ::node::Control;
use ::node::control::{FaultKind, WaitsFor, Work};
use api::Since;
use serde::{Deserialize, Serialize};
use terms::clock::unix_now;

use super::first_seen::FirstSeen;
use crate::history::Forecast;
use crate::http::access::Access;
use crate::http::audit::AuditTrouble;
use crate::http::certificate::CertificateFault;

/// A change that takes longer counts as stuck. Most take less than a second, and callers wait at most 45
/// seconds.
const CHANGE_MAX: Duration = Duration::from_secs(300);

/// A fault of a node, as nodes report it to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OwnFault {
    /// A fault that the node's control knows.
    Node(FaultKind),
    /// The audit log cannot be written.
    AuditUnavailable {
        /// The directory of the log.
        directory: PathBuf,
        error: AuditTrouble,
    },
    /// The API does not answer other machines.
    CertificateUnavailable { error: CertificateFault },
    /// A change does not finish.
    ChangeStuck { work: Work, waits_for: WaitsFor },
    /// A pool will be full within 30 days if it grows as in the last days.
    PoolFullSoon {
        /// The pool's name.
        pool: String,
        forecast: Forecast,
    },
}

/// A fault of a node, with the node that reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct Report {
    pub(super) fault: OwnFault,
    #[serde(default)]
    pub(super) since: Option<Since>,
    /// The node's number and name.
    pub(super) node: u16,
    pub(super) node_name: String,
}

/// The faults of this node.
pub(in crate::http) fn reports(control: &Control, opened: &Opened) -> Vec<Report> {
    let (node, node_name) = control.number_and_name();
    let now = unix_now();
    let report = |(fault, age): (OwnFault, Option<Duration>)| {
        let mut report = Report { fault, since: None, node, node_name: node_name.clone() };
        report.since = match age {
            Some(age) => Some(Since::exactly(now.saturating_sub(age.as_secs()))),
            None => opened.first_seen.of(&report),
        };
        report
    };
    faults(control, opened).into_iter().map(report).collect()
}

/// The faults, and how long each has lasted, if that is known.
fn faults(control: &Control, opened: &Opened) -> Vec<(OwnFault, Option<Duration>)> {
    let mut faults: Vec<_> =
        control.faults().into_iter().map(|fault| (OwnFault::Node(fault.kind), fault.age)).collect();
    if let Some(access) = opened.access() {
        let audit = access.audit.known_error();
        let unwritten = |(directory, error)| (OwnFault::AuditUnavailable { directory, error }, None);
        faults.extend(audit.map(unwritten));
        let certificate = access.no_certificate.clone();
        faults.extend(certificate.map(|error| (OwnFault::CertificateUnavailable { error }, None)));
    }
    // Only the oldest one: others may wait for the same.
    if let Some(change) = control.changes().into_iter().find(|change| change.age > CHANGE_MAX) {
        let stuck = OwnFault::ChangeStuck { work: change.work, waits_for: change.waits_for };
        faults.push((stuck, Some(change.age)));
    }
    let full_soon = |(pool, forecast)| (OwnFault::PoolFullSoon { pool, forecast }, None);
    faults.extend(opened.full_soon().into_iter().map(full_soon));
    faults
}

/// What the HTTP interface knows, as needed for answers over links as well. Without content before the
/// interface opens and after it has closed.
#[derive(Default)]
pub struct Opened {
    access: OnceLock<Weak<Access>>,
    pub(in crate::http) first_seen: FirstSeen,
    /// The pools of this node that will be full soon, with their forecasts, when it last looked.
    full_soon: RwLock<Vec<(String, Forecast)>>,
}

impl Opened {
    /// Makes the interface's knowledge available when it opens. Called once.
    pub fn tell(&self, access: &Arc<Access>) {
        // An error would mean that the interface opens twice, which does not happen.
        let _ = self.access.set(Arc::downgrade(access));
    }

    /// Notes which pools of this node will be full soon, with their forecasts.
    pub(in crate::http) fn note_full_soon(&self, pools: Vec<(String, Forecast)>) {
        *self.full_soon.write().unwrap_or_else(PoisonError::into_inner) = pools;
    }

    /// Called on a core of the node, so it does not wait for the lock, which is taken for writing only for a
    /// moment every few minutes.
    fn full_soon(&self) -> Vec<(String, Forecast)> {
        self.full_soon.try_read().map(|pools| pools.clone()).unwrap_or_default()
    }

    fn access(&self) -> Option<Arc<Access>> {
        self.access.get()?.upgrade()
    }
}
