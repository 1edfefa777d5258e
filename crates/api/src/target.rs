//! Targets and their LUN maps.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::chap::Chap;
use crate::present;

/// An iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Target {
    /// Its iSCSI name.
    #[schema(example = "iqn.2026-11.io.ursa:db")]
    pub name: String,
    /// A name for people.
    pub alias: Option<String>,
    /// The CHAP name that it proves itself with to initiators that ask; its secret is not shown.
    pub chap_user: Option<String>,
    /// Its LUNs, by number and then by host group.
    pub maps: Vec<TargetMap>,
}

/// A LUN map as its target shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetMap {
    /// The logical unit number.
    pub lun: u16,
    /// The volume's name; absent while its pool is not open, and where another node has it alone: `GET /v1/volumes` has it then.
    pub volume: Option<String>,
    /// The volume's identity.
    pub volume_id: String,
    /// The host group that sees it.
    pub host: String,
}

/// A target to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetCreate {
    /// Its iSCSI name.
    #[schema(example = "iqn.2026-11.io.ursa:db")]
    pub name: String,
    /// A name for people: at most 255 bytes of UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub alias: Option<String>,
    /// What it proves itself with to initiators that ask (mutual CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Chap>,
}

/// What of a target shall be otherwise: what is absent stays. Its name and its LUN maps are not changed so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetChange {
    /// A name for people, at most 255 bytes of UTF-8; `null`: none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub alias: Option<Option<String>>,
    /// What it proves itself with to initiators that ask (mutual CHAP); `null`: nothing.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Chap>)]
    pub chap: Option<Option<Chap>>,
}

/// A LUN map to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MapCreate {
    /// The volume, by name or identity.
    pub volume: String,
    /// The host group; absent: `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The logical unit number; absent: the lowest that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 255)]
    pub lun: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::TargetChange;

    #[test]
    fn absent_and_null_are_not_the_same() {
        let change: TargetChange = serde_json::from_str("{}").unwrap();
        assert_eq!(change, TargetChange::default());
        assert_eq!(serde_json::to_string(&change).unwrap(), "{}");
        let change: TargetChange = serde_json::from_str(r#"{"alias":null,"chap":null}"#).unwrap();
        assert_eq!(change, TargetChange { alias: Some(None), chap: Some(None) });
        assert_eq!(serde_json::to_string(&change).unwrap(), r#"{"alias":null,"chap":null}"#);
        assert!(serde_json::from_str::<TargetChange>(r#"{"name":"iqn.x:t"}"#).is_err());
    }
}
