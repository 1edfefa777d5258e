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
    /// Display name.
    pub alias: Option<String>,
    /// CHAP name that the target authenticates with to initiators that ask for it; the secret is not shown.
    pub chap_user: Option<String>,
    /// Its LUN maps, by LUN and then by host group.
    pub maps: Vec<TargetMap>,
}

/// A LUN map as its target shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetMap {
    /// LUN.
    pub lun: u16,
    /// Volume name; absent if it is unknown: the volume is not in the cluster's record, and its pool is not
    /// open.
    pub volume: Option<String>,
    /// Volume ID.
    pub volume_id: String,
    /// The host group that has access.
    pub host: String,
}

/// A target to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetCreate {
    /// Its iSCSI name.
    #[schema(example = "iqn.2026-11.io.ursa:db")]
    pub name: String,
    /// Display name, at most 255 bytes of UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub alias: Option<String>,
    /// CHAP credentials of the target, for initiators that ask for them (mutual CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Chap>,
}

/// Changes to a target; absent fields stay the same. Name and LUN maps cannot be changed here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetChange {
    /// Display name, at most 255 bytes of UTF-8; `null`: none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub alias: Option<Option<String>>,
    /// CHAP credentials of the target, for initiators that ask for them (mutual CHAP); `null`: none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Chap>)]
    pub chap: Option<Option<Chap>>,
}

/// A LUN map to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MapCreate {
    /// Volume name or ID.
    pub volume: String,
    /// The host group; absent: `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// LUN; absent: the lowest free one.
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
