//! Names of volumes, host groups and targets. A value of these types is valid, and cheap to clone.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use proto::iscsi::name::IscsiName;
use serde::{Deserialize, Serialize};

/// Not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum InvalidName {
    #[error(
        "{0:?} is not a valid name: use 1 to 63 letters, digits, '-', '_' and '.', starting with a letter or digit"
    )]
    Object(String),
    #[error(
        "{0:?} is not a valid iSCSI name: use iqn.YYYY-MM.reversed.domain:name, eui. with 16 hexadecimal digits or naa. with 16 or 32, in lower case, at most 223 bytes"
    )]
    Iscsi(String),
}

/// The longest name of a volume, pool or host group: as long as a DNS label.
const OBJECT_NAME_MAX: usize = 63;

fn is_object_name(name: &str) -> bool {
    name.len() <= OBJECT_NAME_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Whether this is a name as in RFC 7143 4.2.7, normalized for comparison.
fn is_iscsi_name(name: &str) -> bool {
    IscsiName::parse(name).is_ok_and(|parsed| parsed.as_str() == name)
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $check:expr, $error:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;
            fn try_from(name: String) -> Result<$type, InvalidName> {
                if $check(&name) { Ok($type(name.into())) } else { Err($error(name)) }
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;
            fn from_str(name: &str) -> Result<$type, InvalidName> {
                name.to_owned().try_into()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.as_str().to_owned()
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    };
}

name!(
    /// The name of a volume.
    VolumeName, is_object_name, InvalidName::Object
);
name!(
    /// The name of a host group.
    HostName, is_object_name, InvalidName::Object
);
name!(
    /// The iSCSI name of a target.
    TargetName, is_iscsi_name, InvalidName::Iscsi
);
