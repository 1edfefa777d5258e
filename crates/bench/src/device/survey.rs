//! Checks whether a device holds data that a run would destroy.
//!
//! Partition tables, file systems, volume managers and databases mark both ends of what they own, and a used
//! device has data in most places. So both ends are read completely, and samples in between. If all of these
//! read as zeros, the device counts as empty.

use super::{Device, Failure};

/// How much of both ends is read: the signatures of ZFS, Btrfs, LVM, GPT and MD are all within a mebibyte.
const END_BYTES: u64 = 1 << 20;
/// Samples between the ends.
const SAMPLES: u64 = 256;
const SAMPLE_BYTES: u64 = 4096;
const READ_BYTES: u64 = 256 << 10;

/// The offset of the first nonzero byte that was found; `None` if everything that was read is zero.
pub(crate) async fn first_data(device: &Device) -> Result<Option<u64>, Failure> {
    for (start, end) in places(device.size(), u64::from(device.block())) {
        let mut at = start;
        while at < end {
            let len = READ_BYTES.min(end - at);
            let data = device.read(at, len as u32).await?;
            if let Some(found) = data.iter().position(|byte| *byte != 0) {
                return Ok(Some(at + found as u64));
            }
            at += len;
        }
    }
    Ok(None)
}

/// The ranges to read, in whole blocks.
fn places(size: u64, block: u64) -> Vec<(u64, u64)> {
    let size = size - size % block;
    if size <= 2 * END_BYTES {
        return vec![(0, size)];
    }
    let tail = (size - END_BYTES).next_multiple_of(block);
    let step = (tail - END_BYTES) / (SAMPLES + 1);
    let mut places = vec![(0, END_BYTES), (tail, size)];
    for sample in 1..=SAMPLES {
        let at = END_BYTES + sample * step;
        let at = at - at % block;
        places.push((at, (at + SAMPLE_BYTES.max(block)).min(tail)));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_and_samples_are_checked() {
        let places = places(1 << 30, 4096);
        assert_eq!(places[..2], [(0, 1 << 20), ((1 << 30) - (1 << 20), 1 << 30)]);
        assert_eq!(places.len(), 258);
        assert!(places.iter().all(|(start, end)| start < end && start % 4096 == 0 && end % 4096 == 0));
        let gaps = places[2..].windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert!(gaps.max() < Some(5 << 20));
    }

    #[test]
    fn small_devices_are_checked_entirely() {
        assert_eq!(places(1 << 20, 512), [(0, 1 << 20)]);
        assert_eq!(places(0, 512), [(0, 0)]);
        let tight = places((2 << 20) + 512, 512);
        assert!(tight.iter().all(|(start, end)| start <= end), "{tight:?}");
    }
}
