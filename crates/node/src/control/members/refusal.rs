//! Why a member does not let a node join, as it tells that node.

use serde::{Deserialize, Serialize};

use super::super::ControlError;
use super::collision::Collision;
use crate::copies::Refused;

/// Why a member does not let a node join. These are codes with facts; the joining node adds the words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum JoinRefusal {
    #[error("it is stopping: use another node")]
    Stopping,
    #[error("the token was used, has expired, or the node that created it was restarted: create a new one")]
    Token,
    #[error("the two nodes run different versions")]
    Version,
    #[error(
        "the cluster keeps its record in etcd: set `etcd` on the joining node as on the others, restart it, and use the same token"
    )]
    RecordInEtcd,
    #[error(
        "the cluster keeps its record in its nodes: remove `etcd` from the settings of the joining node, restart it, and use the same token"
    )]
    RecordInNodes,
    #[error("these of the joining node collide with the cluster: {}", listed(collisions, *more))]
    Collides { collisions: Vec<Collision>, more: usize },
    #[error("it does not hold the cluster CA key: create the token on the node that created the cluster")]
    NoAuthority,
    #[error("{0}")]
    Failed(Refused),
    #[error("this version does not know the reason: see the log of that node")]
    Unknown,
}

/// How many collisions a refusal names: as many as somebody reads. An answer with all of those that a large
/// node can have would be longer than a link takes.
const SHOWN_MAX: usize = 100;

fn listed(collisions: &[Collision], more: usize) -> String {
    let mut all: Vec<String> = collisions.iter().map(ToString::to_string).collect();
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all.join("; ")
}

impl JoinRefusal {
    pub(super) fn collides(mut collisions: Vec<Collision>) -> JoinRefusal {
        let more = collisions.len().saturating_sub(SHOWN_MAX);
        collisions.truncate(SHOWN_MAX);
        JoinRefusal::Collides { collisions, more }
    }

    /// What another node has sent.
    pub(super) fn read(sent: &[u8]) -> JoinRefusal {
        serde_json::from_slice(sent).unwrap_or(JoinRefusal::Unknown)
    }
}

impl From<ControlError> for JoinRefusal {
    fn from(error: ControlError) -> JoinRefusal {
        match error {
            ControlError::NoAuthority => JoinRefusal::NoAuthority,
            other => JoinRefusal::Failed(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::collision::Counted;
    use super::*;
    use crate::version_1::check_all;

    /// What version 1 sends. Later versions must read it: add refusals, and change none.
    #[test]
    fn refusals_of_version_1_are_read_and_keep_what_they_say() {
        let collisions = json!([
            {"volume": {"name": "db"}}, {"host": {"name": "web"}}, {"target": {"name": "iqn.2026-11.io.ursa:db"}},
            {"lun": {"target": "iqn.2026-11.io.ursa:db", "lun": 3}},
            {"foreign": {"target": "iqn.2026-11.io.ursa:db", "lun": 3}}, {"elsewhere": {"volume": "db", "node": 2}},
            {"port": {"target": "iqn.2026-11.io.ursa:a", "other": "iqn.2026-11.io.ursa:b"}},
            {"chap": {"target": "iqn.2026-11.io.ursa:db", "host": "web"}},
            {"secret": {"target": "iqn.2026-11.io.ursa:db", "host": "web"}}, {"pool": {"name": "default"}},
            {"user": {"name": "alice"}}, {"floating-ip": {"address": "192.0.2.10"}},
            {"witness": {"address": "fd00::10"}}, {"too-many": {"what": "api-tokens", "most": 256}}
        ]);
        check_all::<Collision>(&collisions);
        check_all::<Counted>(&json!(["users", "api-tokens", "floating-ips"]));
        check_all::<JoinRefusal>(&json!([
            "stopping", "token", "version", "record-in-etcd", "record-in-nodes",
            {"collides": {"collisions": collisions, "more": 7}}, "no-authority", {"failed": "record-silent"},
            "unknown"
        ]));
    }

    #[test]
    fn a_refusal_is_read_as_it_was_sent() {
        let collisions =
            vec![Collision::Volume { name: "db".into() }, Collision::Lun { target: "t".into(), lun: 3 }];
        let collides = JoinRefusal::collides(collisions);
        for refusal in [JoinRefusal::Token, JoinRefusal::Failed(Refused::RecordSilent), collides] {
            assert_eq!(JoinRefusal::read(&crate::member::json(&refusal)), refusal);
        }
        assert_eq!(JoinRefusal::read(br#"{"a-later-code":{}}"#), JoinRefusal::Unknown);
        assert_eq!(JoinRefusal::read(b"the token is bad"), JoinRefusal::Unknown);
    }

    #[test]
    fn a_refusal_fits_into_an_answer_however_much_collides() {
        let lun = |lun| Collision::Lun { target: "t".repeat(223), lun };
        let refusal = JoinRefusal::collides((0..10_000).map(lun).collect());
        assert!(crate::member::json(&refusal).len() <= link::ABOUT_MAX);
        let text = refusal.to_string();
        assert!(text.contains("LUN 99 of") && !text.contains("LUN 100 of"), "{text}");
        assert!(text.ends_with("; and 9900 more"), "{text}");
    }
}
