//! Host groups.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::chap::Chap;
use crate::present;

/// A host group: initiators that share access rights. An initiator belongs to it if its name is listed (or no
/// name is) and its address is listed (or no address is).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// Name, unique on the node.
    pub name: String,
    /// iSCSI names (IQNs) of initiators.
    pub initiators: Vec<String>,
    /// Addresses and ranges that they connect from.
    #[schema(example = json!(["10.1.0.0/16"]))]
    pub addresses: Vec<String>,
    /// CHAP name that initiators authenticate with; the secret is not shown.
    pub chap_user: Option<String>,
    /// Built in and not changeable: `any` matches every initiator, `local` this machine.
    pub built_in: bool,
}

/// A host group to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostCreate {
    /// Name: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// iSCSI names (IQNs) of initiators; empty: any.
    #[serde(default)]
    pub initiators: Vec<String>,
    /// Addresses and ranges such as `10.1.0.0/16`; empty: any.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// CHAP credentials that initiators must use; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Chap>,
}

/// The new settings of a host group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostChange {
    /// iSCSI names (IQNs) of initiators; empty: any.
    #[serde(default)]
    pub initiators: Vec<String>,
    /// Addresses and ranges such as `10.1.0.0/16`; empty: any.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// CHAP credentials that initiators must use. Absent: unchanged, since the secret cannot be read back;
    /// `null`: none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Chap>)]
    pub chap: Option<Option<Chap>>,
}

#[cfg(test)]
mod tests {
    use super::HostChange;

    #[test]
    fn absent_and_null_are_not_the_same() {
        let change: HostChange = serde_json::from_str("{}").unwrap();
        assert_eq!(change.chap, None);
        assert_eq!(serde_json::to_string(&change).unwrap(), r#"{"initiators":[],"addresses":[]}"#);
        let change: HostChange = serde_json::from_str(r#"{"chap":null}"#).unwrap();
        assert_eq!(change.chap, Some(None));
        assert_eq!(
            serde_json::to_string(&change).unwrap(),
            r#"{"initiators":[],"addresses":[],"chap":null}"#
        );
    }
}

/// Operating system of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostSystem {
    /// Linux with open-iscsi and dm-multipath.
    Linux,
    /// VMware ESXi.
    Esxi,
    /// Windows.
    Windows,
    /// Proxmox VE.
    Proxmox,
}

/// How to set up a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostSetup {
    /// A script with a comment on each setting, to paste in whole or in part. It asks for the CHAP secret if
    /// there is one.
    pub text: String,
}
