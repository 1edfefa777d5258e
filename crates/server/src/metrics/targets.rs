//! Sessions, and refused logins.

use std::collections::BTreeMap;

use super::snapshot::Snapshot;
use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, snapshot: &Snapshot) {
    // A target without a session has the value 0, so that an alert can see that its hosts are gone.
    let mut by_target: BTreeMap<&str, usize> =
        snapshot.targets.iter().map(|name| (name.as_str(), 0)).collect();
    let mut discovery = 0;
    for session in &snapshot.sessions {
        match &session.target {
            Some(target) => *by_target.entry(target).or_default() += 1,
            None => discovery += 1,
        }
    }
    let mut family = text.family("ursa_sessions", Kind::Gauge, "Initiators' sessions, by target.");
    by_target.iter().for_each(|(target, count)| family.sample(&[("target", target)], count));
    text.family("ursa_discovery_sessions", Kind::Gauge, "Discovery sessions.").sample(&[], discovery);

    let help = "Refused logins, by status class and detail (RFC 7143 11.13.5) in hexadecimal.";
    let mut family = text.family("ursa_logins_refused_total", Kind::Counter, help);
    for (status, count) in &snapshot.refused_logins {
        family.sample(&[("status", &format!("{status:04x}"))], count);
    }
}
