//! The best that a number of disks can do behind a storage system that keeps copies: the published formulas.
//!
//! With R reads and W writes per second from one disk, N disks and C copies: reads R·N, because every copy
//! can be read; writes W·N / C, because each write is executed C times; and for a mix with shares r and w of
//! both, R·N·r + W·N·w / C.

use serde::{Deserialize, Serialize};

/// The rates of one disk, measured or known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RawDisk {
    /// Reads per second; `None` if not measured.
    pub reads: Option<f64>,
    /// Writes per second; `None` if not measured.
    pub writes: Option<f64>,
}

/// The disks of a storage system.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disks {
    /// The rates of one disk.
    pub raw: RawDisk,
    /// Number of disks.
    pub disks: u32,
    /// Number of copies of all data.
    pub copies: u32,
}

impl Disks {
    /// The highest rate for a mix with this percentage of writes, in requests per second; `None` if a figure
    /// is missing.
    pub fn ceiling(&self, write_percent: u8) -> Option<f64> {
        let (disks, copies) = (f64::from(self.disks), f64::from(self.copies.max(1)));
        let share = f64::from(write_percent) / 100.0;
        let part = |raw: Option<f64>, share: f64| {
            if share > 0.0 { raw.map(|raw| raw * disks * share) } else { Some(0.0) }
        };
        Some(part(self.raw.reads, 1.0 - share)? + part(self.raw.writes, share)? / copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published test of a cluster of 12 servers with two disks each, which their maker rates at 550,000
    /// reads per second: "6.7 million, 51 % of theoretical 13.2 million"; with twice as many disks, "26.8
    /// million".
    #[test]
    fn reads_of_a_published_cluster() {
        let disks = Disks { raw: RawDisk { reads: Some(550e3), writes: None }, disks: 24, copies: 2 };
        assert_eq!(disks.ceiling(0), Some(13.2e6));
        assert!((6.7e6 / disks.ceiling(0).unwrap() - 0.51).abs() < 0.005);
        assert!((Disks { disks: 48, ..disks }.ceiling(0).unwrap() / 26.8e6 - 1.0).abs() < 0.02);
        assert_eq!(disks.ceiling(30), None, "writes were not measured");
    }

    #[test]
    fn each_write_counts_once_per_copy() {
        let disks = Disks { raw: RawDisk { reads: Some(100.0), writes: Some(60.0) }, disks: 4, copies: 2 };
        assert_eq!(disks.ceiling(100), Some(120.0));
        assert_eq!(disks.ceiling(30), Some(100.0 * 4.0 * 0.7 + 60.0 * 4.0 * 0.3 / 2.0));
        assert_eq!(Disks { copies: 1, ..disks }.ceiling(100), Some(240.0));
    }
}
