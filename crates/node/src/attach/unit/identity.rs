//! The names of a unit, derived from its volume's identity: the same on every node and after every restart.

use proto::scsi::Identity;

use crate::data::VolumeId;

/// The company identifier in NAA and EUI-64 names. It is not registered with the IEEE: the bit for locally
/// administered numbers is set, and the rest are the letters "UR" of the name.
const COMPANY_ID: u32 = 0x02_55_52;

/// NAA 6, IEEE Registered Extended (SPC-4 7.8.6.6.5): 4 bits NAA, 24 bits company, 36 and 64 bits of our own.
///
/// These hold a hundred bits of the volume's random identity.
pub fn naa(volume: VolumeId) -> [u8; 16] {
    let id = u128::from_be_bytes(volume.0) & ((1 << 100) - 1);
    (0x6 << 124 | u128::from(COMPANY_ID) << 100 | id).to_be_bytes()
}

/// All names of a unit.
pub fn identity(volume: VolumeId) -> Identity {
    let mut eui64 = [0; 8];
    eui64[..3].copy_from_slice(&COMPANY_ID.to_be_bytes()[1..]);
    eui64[3..].copy_from_slice(&volume.0[11..]);
    Identity {
        vendor: "URSA".into(),
        product: "VOLUME".into(),
        // Four characters: the version without its dots would be ambiguous, so major and minor only.
        revision: format!("{}.{}", env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR")),
        serial: volume.to_string(),
        naa: naa(volume),
        eui64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_volume() {
        let id = VolumeId([0xf0, 1, 2, 0xf3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(naa(id), [0x60, 0x25, 0x55, 0x23, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(identity(id).eui64, [0x02, 0x55, 0x52, 11, 12, 13, 14, 15]);
        assert_eq!(identity(id).serial, "f00102f30405060708090a0b0c0d0e0f");
    }
}
