//! A row: what is kept of one stretch of time, its bytes (`docs/formats/history.md`), and the mean of
//! several.

use std::collections::BTreeMap;

use base::crc32c;

/// Bytes of a row: two sectors, so that a torn write damages one row and no other.
pub const ROW_BYTES: usize = 1024;
/// The number of pools of a node that have history: the first ones by name.
pub const POOLS_MAX: usize = 16;
/// The number of values that fit in a row.
const VALUES_MAX: usize = (POOLS_AT - VALUES_AT) / 8;

const MAGIC: &[u8; 8] = b"URSAHIST";
const CRC_AT: usize = 24;
const VALUES_AT: usize = 32;
const POOLS_AT: usize = 512;
const POOL_BYTES: usize = 32;

const _: () = assert!(POOLS_AT + POOLS_MAX * POOL_BYTES == ROW_BYTES, "pools end with the row");
const _: () = assert!(Value::ALL.len() <= VALUES_MAX, "values end where pools begin");

base::listed! {
    /// A value that is kept of a node. The order is that of the bytes: new ones are appended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Value {
        /// Reads per second.
        ReadOperations,
        /// Writes per second.
        WriteOperations,
        /// Bytes read per second.
        ReadBytes,
        /// Bytes written per second.
        WriteBytes,
        /// The mean latency of reads, in microseconds.
        ReadMean,
        /// The mean latency of writes, in microseconds.
        WriteMean,
        /// The 99th percentile of read latency in the worst ten seconds, in microseconds.
        ReadP99,
        /// The same of writes.
        WriteP99,
        /// The mean CPU use of a core, as a part of one processor.
        Cpu,
        /// The part of [`Value::Cpu`] that was spent polling for work.
        CpuPolling,
        /// The number of bytes that copies out of sync miss.
        OutOfSync,
    }
}

impl Value {
    /// How several values of this kind are combined.
    fn together(self) -> Together {
        match self {
            Value::ReadMean => Together::ByWeight(Value::ReadOperations),
            Value::WriteMean => Together::ByWeight(Value::WriteOperations),
            Value::ReadP99 | Value::WriteP99 => Together::Greatest,
            _ => Together::Mean,
        }
    }
}

/// How several values become one.
enum Together {
    Mean,
    /// The mean over all operations: each value is weighted with the number of operations.
    ByWeight(Value),
    Greatest,
}

/// How full a pool was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// The identity of the pool.
    pub id: u128,
    /// Bytes that volumes take.
    pub used: u64,
    /// Bytes that volumes can take.
    pub size: u64,
}

/// What is kept of one stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The end of the time, in seconds since 1970: a multiple of `step`.
    pub at: u64,
    /// The length of the time in seconds.
    pub step: u32,
    /// By [`Value`]; `None`: the value was unknown, or there was nothing to measure.
    pub values: [Option<f64>; Value::ALL.len()],
    /// At most [`POOLS_MAX`].
    pub pools: Vec<PoolUse>,
}

impl Row {
    pub fn value(&self, value: Value) -> Option<f64> {
        self.values[value as usize]
    }

    /// The row as it is in the file.
    pub fn encode(&self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let pools = &self.pools[..self.pools.len().min(POOLS_MAX)];
        put(0, MAGIC);
        put(8, &self.at.to_le_bytes());
        put(16, &self.step.to_le_bytes());
        put(20, &(self.values.len() as u16).to_le_bytes());
        put(22, &(pools.len() as u16).to_le_bytes());
        for (index, value) in self.values.iter().enumerate() {
            put(VALUES_AT + 8 * index, &value.unwrap_or(f64::NAN).to_le_bytes());
        }
        for (index, pool) in pools.iter().enumerate() {
            let at = POOLS_AT + POOL_BYTES * index;
            put(at, &pool.id.to_le_bytes());
            put(at + 16, &pool.used.to_le_bytes());
            put(at + 24, &pool.size.to_le_bytes());
        }
        let crc = checksum(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The row in these bytes; `None`: nothing was written there, or it is damaged.
    pub fn parse(bytes: &[u8; ROW_BYTES]) -> Option<Row> {
        if &bytes[..8] != MAGIC || u32_at(bytes, CRC_AT) != checksum(bytes) {
            return None;
        }
        let count = |at: usize| usize::from(bytes[at]) | usize::from(bytes[at + 1]) << 8;
        // Another version may have more values, or fewer.
        let (values_count, pools_count) = (count(20).min(VALUES_MAX), count(22).min(POOLS_MAX));
        let mut values = [None; Value::ALL.len()];
        for (index, value) in values.iter_mut().enumerate().take(values_count) {
            *value = Some(f64::from_bits(u64_at(bytes, VALUES_AT + 8 * index))).filter(|it| it.is_finite());
        }
        let pool = |index: usize| {
            let at = POOLS_AT + POOL_BYTES * index;
            let id = u128::from(u64_at(bytes, at)) | u128::from(u64_at(bytes, at + 8)) << 64;
            PoolUse { id, used: u64_at(bytes, at + 16), size: u64_at(bytes, at + 24) }
        };
        let pools = (0..pools_count).map(pool).collect();
        Some(Row { at: u64_at(bytes, 8), step: u32_at(bytes, 16), values, pools })
    }
}

fn checksum(bytes: &[u8; ROW_BYTES]) -> u32 {
    let mut rest = *bytes;
    rest[CRC_AT..CRC_AT + 4].fill(0);
    crc32c(&rest)
}

fn u32_at(bytes: &[u8; ROW_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn u64_at(bytes: &[u8; ROW_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

/// Several rows that are being combined into one.
#[derive(Clone, Debug, Default)]
pub struct Mean {
    /// By [`Value`]: the sum, and the weight. Of those of which the greatest counts: the greatest, with
    /// weight 1.
    sums: [(f64, f64); Value::ALL.len()],
    /// By identity: the sums of used and size, and the number of rows.
    pools: BTreeMap<u128, (u128, u128, u128)>,
    rows: usize,
}

impl Mean {
    pub fn add(&mut self, row: &Row) {
        self.rows += 1;
        for value in Value::ALL {
            let Some(is) = row.value(value) else { continue };
            let (sum, weight) = &mut self.sums[value as usize];
            match value.together() {
                Together::Mean => (*sum, *weight) = (*sum + is, *weight + 1.0),
                Together::ByWeight(by) => {
                    let of_row = row.value(by).unwrap_or(1.0);
                    (*sum, *weight) = (*sum + is * of_row, *weight + of_row);
                }
                Together::Greatest => (*sum, *weight) = (sum.max(is), 1.0),
            }
        }
        for pool in &row.pools {
            let (used, size, count) = self.pools.entry(pool.id).or_default();
            *used += u128::from(pool.used);
            *size += u128::from(pool.size);
            *count += 1;
        }
    }

    /// The combined row; `None`: no row was added.
    pub fn row(&self, at: u64, step: u32) -> Option<Row> {
        let values = self.sums.map(|(sum, weight)| (weight > 0.0).then(|| sum / weight));
        let pool = |(id, (used, size, count)): (&u128, &(u128, u128, u128))| PoolUse {
            id: *id,
            // A mean is at most the greatest value, so it fits.
            used: (used / count) as u64,
            size: (size / count) as u64,
        };
        (self.rows > 0).then(|| Row { at, step, values, pools: self.pools.iter().map(pool).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[(Value, f64)]) -> Row {
        let mut row = Row { at: 1_800_000_010, step: 10, values: Default::default(), pools: Vec::new() };
        values.iter().for_each(|(value, is)| row.values[*value as usize] = Some(*is));
        row
    }

    #[test]
    fn the_bytes_are_as_described() {
        let pool = PoolUse { id: 0x0102, used: 0x0304, size: 0x0506 };
        let full =
            Row { pools: vec![pool], ..row(&[(Value::ReadOperations, 1.0), (Value::OutOfSync, -2.0)]) };
        let bytes = full.encode();
        assert_eq!(&bytes[..8], b"URSAHIST");
        assert_eq!(bytes[8..24], [0x0a, 0xd2, 0x49, 0x6b, 0, 0, 0, 0, 10, 0, 0, 0, 11, 0, 1, 0]);
        assert_eq!(bytes[28..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        // Not a number: writes are unknown.
        assert_eq!(bytes[40..48], [0, 0, 0, 0, 0, 0, 0xf8, 0x7f]);
        assert_eq!(bytes[112..120], [0, 0, 0, 0, 0, 0, 0, 0xc0]);
        assert_eq!(bytes[512..516], [2, 1, 0, 0]);
        assert_eq!((bytes[528..530].to_vec(), bytes[536..538].to_vec()), (vec![4, 3], vec![6, 5]));
        assert_eq!(Row::parse(&bytes), Some(full));
    }

    #[test]
    fn no_damaged_byte_goes_unnoticed() {
        let whole = row(&[(Value::Cpu, 0.5)]).encode();
        for at in 0..ROW_BYTES {
            let mut bytes = whole;
            bytes[at] ^= 0x10;
            assert_eq!(Row::parse(&bytes), None, "byte {at}");
        }
        assert_eq!(Row::parse(&[0; ROW_BYTES]), None);
    }

    #[test]
    fn unknown_fields_of_another_version_do_no_harm() {
        let mut bytes = row(&[(Value::ReadOperations, 7.0), (Value::OutOfSync, 1.0)]).encode();
        for (count, expected) in [(1u16, None), (60, Some(1.0)), (u16::MAX, Some(1.0))] {
            bytes[20..22].copy_from_slice(&count.to_le_bytes());
            bytes[22..24].copy_from_slice(&count.to_le_bytes());
            let crc = checksum(&bytes);
            bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
            let row = Row::parse(&bytes).unwrap();
            assert_eq!(
                (row.value(Value::ReadOperations), row.value(Value::OutOfSync)),
                (Some(7.0), expected)
            );
            assert!(row.pools.len() <= POOLS_MAX);
        }
    }

    #[test]
    fn together_they_are_a_mean_and_the_worst_of_the_worst() {
        let busy = row(&[
            (Value::ReadOperations, 300.0),
            (Value::ReadMean, 100.0),
            (Value::ReadP99, 512.0),
            (Value::WriteOperations, 0.0),
        ]);
        let calm = row(&[(Value::ReadOperations, 100.0), (Value::ReadMean, 500.0), (Value::ReadP99, 2048.0)]);
        let mut mean = Mean::default();
        assert_eq!(mean.row(60, 60), None);
        [&busy, &calm].into_iter().for_each(|row| mean.add(row));
        let both = mean.row(60, 60).unwrap();
        assert_eq!(both.value(Value::ReadOperations), Some(200.0));
        assert_eq!(both.value(Value::ReadMean), Some(200.0), "a read is a read");
        assert_eq!((both.value(Value::ReadP99), both.value(Value::Cpu)), (Some(2048.0), None));
        assert_eq!((both.value(Value::WriteOperations), both.value(Value::WriteMean)), (Some(0.0), None));
        // A pool that was there half of the time does not count as half as large.
        let pool = |id, used| PoolUse { id, used, size: u64::MAX };
        let mut pools = Mean::default();
        pools.add(&Row { pools: vec![pool(1, 10), pool(2, u64::MAX)], ..busy });
        pools.add(&Row { pools: vec![pool(1, 30)], ..calm });
        assert_eq!(pools.row(60, 60).unwrap().pools, [pool(1, 20), pool(2, u64::MAX)]);
    }
}
