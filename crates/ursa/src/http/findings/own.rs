//! What a node reports about itself: what its control finds wrong, and what the HTTP interface does.
//!
//! Nodes ask each other over links, which may be up before the interface is: until then they report what
//! control knows.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ::node::Control;
use ::node::control::FaultKind;
use api::Since;
use serde::{Deserialize, Serialize};

use super::beginnings::Beginnings;
use crate::clock::unix_now;
use crate::http::access::Access;

/// A change that takes longer does not get what it needs: most take less than a second, none is waited for
/// longer than 45.
const CHANGE_MAX: Duration = Duration::from_secs(300);

/// What is wrong with a node, as nodes tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OwnFault {
    /// What its control knows.
    Node(FaultKind),
    /// The audit log cannot be written.
    AuditUnavailable {
        /// Where it is.
        directory: PathBuf,
        /// The error.
        error: String,
    },
    /// The API does not answer other machines.
    CertificateUnavailable {
        /// The error.
        error: String,
    },
    /// A change does not end.
    ChangeStuck {
        /// What it does.
        what: String,
        /// What it waits for.
        waits_for: String,
    },
}

/// A fault of a node, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct Report {
    pub(super) fault: OwnFault,
    #[serde(default)]
    pub(super) since: Option<Since>,
    /// The node's number and name; absent without a cluster.
    #[serde(default)]
    pub(super) node: Option<u16>,
    #[serde(default)]
    pub(super) node_name: Option<String>,
}

/// What is wrong with this node.
pub(in crate::http) fn reports(control: &Control, opened: &Opened) -> Vec<Report> {
    let (node, node_name) = control.number_and_name();
    let now = unix_now();
    let report = |(fault, age): (OwnFault, Option<Duration>)| {
        let mut report = Report { fault, since: None, node, node_name: node_name.clone() };
        report.since = match age {
            Some(age) => Some(Since::exactly(now.saturating_sub(age.as_secs()))),
            None => opened.beginnings.of(&report),
        };
        report
    };
    faults(control, opened).into_iter().map(report).collect()
}

/// What is wrong, and for how long, if that is known.
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
    // The oldest: others may wait for the same.
    if let Some(change) = control.changes().into_iter().find(|change| change.age > CHANGE_MAX) {
        let (what, waits_for) = (change.work.to_string(), change.waits_for.to_string());
        faults.push((OwnFault::ChangeStuck { what, waits_for }, Some(change.age)));
    }
    faults
}

/// What the HTTP interface knows, for nodes that ask over links, too: nothing before it is open, and when it
/// has ended.
#[derive(Default)]
pub struct Opened {
    access: OnceLock<Weak<Access>>,
    pub(in crate::http) beginnings: Beginnings,
}

impl Opened {
    /// The interface is open. Said once.
    pub fn tell(&self, access: &Arc<Access>) {
        // It is not opened twice.
        let _ = self.access.set(Arc::downgrade(access));
    }

    fn access(&self) -> Option<Arc<Access>> {
        self.access.get()?.upgrade()
    }
}
