//! Identities of pools, disks, volumes, hosts and clusters: 16 random bytes, never reused.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// Creates a random identity. Must be called on a core of the runtime.
            pub fn random() -> $name {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&rt::random().to_le_bytes());
                bytes[8..].copy_from_slice(&rt::random().to_le_bytes());
                $name(bytes)
            }

            /// Parses the 32 hexadecimal digits that `Display` prints.
            pub fn parse(text: &str) -> Option<$name> {
                (text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
                    .then(|| u128::from_str_radix(text, 16).ok())
                    .flatten()
                    .map(|number| $name(number.to_be_bytes()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
}

id!(
    /// A pool.
    PoolId
);
id!(
    /// A disk of a pool.
    DiskId
);
id!(
    /// A volume. All its other names (serial number, NAA, EUI-64) are derived from it.
    VolumeId
);
id!(
    /// A server that uses pools.
    HostId
);
id!(
    /// A cluster of servers whose volumes have copies on several of them.
    ClusterId
);

#[cfg(test)]
mod tests {
    use super::VolumeId;

    #[test]
    fn printed_ids_can_be_parsed() {
        let id = VolumeId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0eff");
        assert_eq!(VolumeId::parse(&id.to_string()), Some(id));
        assert_eq!(VolumeId::parse("+0102030405060708090a0b0c0d0eff0"), None);
        assert_eq!(VolumeId::parse("00"), None);
    }
}
