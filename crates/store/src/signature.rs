//! Detects what a disk that is not part of a pool holds, from signatures, so that a refusal can say it.

use std::fmt;

/// How much of the start of a disk is read: the btrfs superblock is the farthest.
pub(crate) const LOOKED_AT_BYTES: usize = 68 << 10;

/// What a disk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeros, as far as was read.
    Nothing,
    /// A disk of a pool of Ursa.
    Pool,
    /// Something with a known signature.
    Known(&'static str),
    /// Anything else.
    Data,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Content::Nothing => "nothing",
            Content::Pool => "a disk of a pool",
            Content::Known(what) => what,
            Content::Data => "unknown data",
        })
    }
}

/// (offset, signature, meaning), the most specific first: a partitioned disk has an MBR as well.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"XFSB", "an XFS file system"),
    (1080, &[0x53, 0xef], "an ext file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (0, b"LUKS\xba\xbe", "an encrypted (LUKS) volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux RAID"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux RAID"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"QFI\xfb", "a QEMU disk image"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (510, &[0x55, 0xaa], "a partition table or boot sector"),
];

impl Content {
    /// How much of the start of a disk [`Content::detect`] needs.
    pub const LOOKED_AT_BYTES: usize = LOOKED_AT_BYTES;

    /// Detects what a disk holds from its first [`Content::LOOKED_AT_BYTES`] bytes, or fewer if the disk is
    /// shorter.
    pub fn detect(start: &[u8]) -> Content {
        let has = |offset: usize, signature: &[u8]| {
            start.get(offset..).is_some_and(|bytes| bytes.starts_with(signature))
        };
        if has(0, b"URSAPOOL") || has(4096, b"URSAPOOL") {
            return Content::Pool;
        }
        match SIGNATURES.iter().find(|(offset, signature, _)| has(*offset, signature)) {
            Some((_, _, what)) => Content::Known(what),
            None if start.iter().all(|byte| *byte == 0) => Content::Nothing,
            None => Content::Data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Content;

    #[test]
    fn owners_are_recognised() {
        let disk = |offset: usize, bytes: &[u8]| {
            let mut disk = vec![0; super::LOOKED_AT_BYTES];
            disk[offset..offset + bytes.len()].copy_from_slice(bytes);
            Content::detect(&disk)
        };
        assert_eq!(disk(0, b""), Content::Nothing);
        assert_eq!(disk(0, b"XFSB"), Content::Known("an XFS file system"));
        assert_eq!(disk(0x438, b"\x53\xef"), Content::Known("an ext file system"));
        assert_eq!(disk(0x1fe, b"\x55\xaa"), Content::Known("a partition table or boot sector"));
        assert_eq!(disk(4096, b"URSAPOOL"), Content::Pool);
        assert_eq!(disk(7777, b"mail"), Content::Data);
        assert_eq!(Content::detect(b""), Content::Nothing);
    }
}
