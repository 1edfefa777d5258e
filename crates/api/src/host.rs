//! Host groups.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::chap::Chap;
use crate::present;

/// A host group: initiators that are treated alike. One belongs to it if its name is listed (or no name is) and its
/// address is listed (or no address is).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Host {
    /// Its name, unique in the node.
    pub name: String,
    /// iSCSI names of initiators.
    pub initiators: Vec<String>,
    /// Where they may come from: addresses and ranges.
    #[schema(example = json!(["10.1.0.0/16"]))]
    pub addresses: Vec<String>,
    /// The CHAP name that they prove themselves with; the secret is not shown.
    pub chap_user: Option<String>,
    /// Whether it is always there and cannot be changed: `any` is everybody, `local` this machine.
    pub built_in: bool,
}

/// A host group to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostCreate {
    /// Its name: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// iSCSI names of initiators; none: any.
    #[serde(default)]
    pub initiators: Vec<String>,
    /// Addresses and ranges such as `10.1.0.0/16`; none: from anywhere.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// What they prove themselves with; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Chap>,
}

/// What a host group shall be from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostChange {
    /// iSCSI names of initiators; none: any.
    #[serde(default)]
    pub initiators: Vec<String>,
    /// Addresses and ranges such as `10.1.0.0/16`; none: from anywhere.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// What they prove themselves with. Absent: as before, since nobody can read it to send it again; `null`: nothing.
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

/// What a machine that uses volumes runs.
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

/// How to set up a machine that uses volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostSetup {
    /// A script with a word on each setting, to be pasted as a whole or in parts. It asks for the CHAP secret if there is one.
    pub text: String,
}
