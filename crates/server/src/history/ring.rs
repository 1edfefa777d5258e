//! A file of rows, one for each step of time, in which the newest rows replace the oldest.
//!
//! A row's time determines its place, and the row contains its time and a checksum. So nothing else has to be
//! kept, and only rows can be lost: a row that a crash tore, that was damaged, or that a truncated file lacks
//! counts as never written. The same holds when the clock is set: times that the clock skipped have no row,
//! and rows from a clock that was ahead are overwritten when their time comes.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use super::row::{ROW_BYTES, Row};

const READ_ROWS: u64 = 64;

/// How much is kept, and how finely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The length of a row in seconds.
    pub step: u32,
    pub rows: u32,
}

impl Shape {
    /// How long a row is kept, in seconds.
    pub const fn seconds(self) -> u64 {
        self.step as u64 * self.rows as u64
    }

    /// The greatest length of the file.
    pub const fn bytes(self) -> u64 {
        self.rows as u64 * ROW_BYTES as u64
    }
}

/// The file. It is opened when it is first needed, and again after an error.
#[derive(Debug)]
pub struct Ring {
    path: PathBuf,
    shape: Shape,
    file: Option<File>,
}

impl Ring {
    /// The ring in this file, whatever the file contains. Does not open it yet.
    pub fn new(path: PathBuf, shape: Shape) -> Ring {
        Ring { path, shape, file: None }
    }

    pub fn write(&mut self, row: &Row) -> io::Result<()> {
        let place = row.at / u64::from(self.shape.step) % u64::from(self.shape.rows);
        let written = self.open(true)?.write_all_at(&row.encode(), place * ROW_BYTES as u64);
        if written.is_err() {
            self.file = None;
        }
        written
    }

    /// Passes the rows that ended after `from` and not after `to` to `each`, the oldest first.
    pub fn read(&mut self, from: u64, to: u64, mut each: impl FnMut(Row)) -> io::Result<()> {
        let (step, rows) = (u64::from(self.shape.step), u64::from(self.shape.rows));
        let last = to / step;
        let mut number = (from / step + 1).max((last + 1).saturating_sub(rows));
        let file = match self.open(false) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let mut bytes = vec![[0; ROW_BYTES]; READ_ROWS as usize];
        while number <= last {
            let place = number % rows;
            let count = READ_ROWS.min(rows - place).min(last - number + 1);
            let bytes = &mut bytes[..count as usize];
            // What lies beyond the end of the file was never written.
            bytes.as_flattened_mut().fill(0);
            read_at(file, bytes.as_flattened_mut(), place * ROW_BYTES as u64)?;
            for (bytes, number) in bytes.iter().zip(number..) {
                if let Some(row) = Row::parse(bytes)
                    && (row.at, u64::from(row.step)) == (number * step, step)
                {
                    each(row);
                }
            }
            number += count;
        }
        Ok(())
    }

    fn open(&mut self, to_write: bool) -> io::Result<&File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(to_write).mode(0o600);
                let file = options.open(&self.path)?;
                // A version that kept more rows has left a longer file.
                if file.metadata()?.len() > self.shape.bytes() {
                    file.set_len(self.shape.bytes())?;
                }
                Ok(none.insert(file))
            }
        }
    }
}

fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.read_at(bytes, at) {
            Ok(0) => return Ok(()),
            Ok(count) => (bytes, at) = (&mut bytes[count..], at + count as u64),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use base::Rng;

    use super::super::row::{POOLS_MAX, PoolUse, Value};
    use super::*;

    const SHAPE: Shape = Shape { step: 10, rows: 100 };
    const START: u64 = 1_800_000_000;

    struct Kept {
        dir: tempfile::TempDir,
        ring: Ring,
    }

    impl Kept {
        fn new() -> Kept {
            let dir = tempfile::tempdir().unwrap();
            let ring = Ring::new(dir.path().join("ring"), SHAPE);
            Kept { dir, ring }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("ring")
        }

        fn write(&mut self, at: u64, value: f64) {
            // A full row, so that each truncation of the file damages it.
            let pools = vec![PoolUse { id: 1, used: 1, size: u64::MAX }; POOLS_MAX];
            let mut row = Row { at, step: SHAPE.step, values: Default::default(), pools };
            row.values[Value::Cpu as usize] = Some(value);
            self.ring.write(&row).unwrap();
        }

        fn read(&mut self, from: u64, to: u64) -> Vec<(u64, f64)> {
            let mut rows = Vec::new();
            self.ring.read(from, to, |row| rows.push((row.at, row.value(Value::Cpu).unwrap()))).unwrap();
            rows
        }
    }

    #[test]
    fn the_newest_take_the_place_of_the_oldest() {
        let mut kept = Kept::new();
        assert_eq!(kept.read(0, START), []);
        assert!(!kept.path().exists(), "to read makes nothing");
        (1..=250).for_each(|n| kept.write(START + 10 * n, n as f64));
        let all = kept.read(0, START + 2500);
        assert_eq!((all.len(), all[0], all[99]), (100, (START + 1510, 151.0), (START + 2500, 250.0)));
        assert_eq!(fs::metadata(kept.path()).unwrap().len(), SHAPE.bytes());
        // The range excludes `from` and includes `to`.
        assert_eq!(kept.read(START + 2470, START + 2489), [(START + 2480, 248.0)]);
        assert_eq!(kept.read(START + 2500, START + 9990), []);
        // A file that a later version has made longer is truncated.
        drop(kept.ring.file.take());
        OpenOptions::new().write(true).open(kept.path()).unwrap().set_len(SHAPE.bytes() * 3).unwrap();
        assert_eq!(kept.read(START + 2490, START + 2500), [(START + 2500, 250.0)]);
        assert_eq!(fs::metadata(kept.path()).unwrap().len(), SHAPE.bytes());
    }

    #[test]
    fn the_ring_equals_a_bounded_map_whatever_the_clock_does() {
        let mut rng = Rng::new(7);
        let mut kept = Kept::new();
        // By place: the last row written there.
        let mut model: BTreeMap<u64, (u64, f64)> = BTreeMap::new();
        let mut now = START;
        for n in 0..2000 {
            now = match rng.below(40) {
                0 => now - 10 * rng.below(150),
                1 => now + 10 * rng.below(300),
                _ => now + 10,
            };
            kept.write(now, f64::from(n));
            model.insert(now / 10 % 100, (now, f64::from(n)));
            if n % 20 == 0 {
                // A restart, and some window.
                kept.ring.file = None;
                let (from, to) = (now - 10 * rng.below(120), now + rng.below(50));
                let mut expected: Vec<(u64, f64)> =
                    model.values().copied().filter(|(at, _)| *at > from && *at <= to).collect();
                expected.retain(|(at, _)| *at / 10 + 100 > to / 10);
                expected.sort_by_key(|(at, _)| *at);
                assert_eq!(kept.read(from, to), expected, "{n}: {from} to {to}");
            }
        }
    }

    #[test]
    fn cut_at_any_byte_it_has_the_rows_before_that() {
        let mut kept = Kept::new();
        // From place 0.
        let first = START / 1000 * 1000;
        (0..4).for_each(|n| kept.write(first + 10 * n, n as f64));
        let whole = fs::read(kept.path()).unwrap();
        for length in (0..whole.len()).rev() {
            kept.ring.file = None;
            fs::write(kept.path(), &whole[..length]).unwrap();
            let rows = kept.read(first - 10, first + 100);
            assert_eq!(rows.len(), length / ROW_BYTES, "cut at {length}");
        }
        // Writing continues from there.
        kept.write(first + 40, 4.0);
        assert_eq!(kept.read(first - 10, first + 100), [(first + 40, 4.0)]);
    }

    #[test]
    fn damaged_rows_are_ignored() {
        let mut kept = Kept::new();
        let first = START / 1000 * 1000;
        (0..4).for_each(|n| kept.write(first + 10 * n, n as f64));
        let mut bytes = fs::read(kept.path()).unwrap();
        bytes[ROW_BYTES + 100] ^= 1;
        // One row in another row's place.
        bytes.copy_within(0..ROW_BYTES, 3 * ROW_BYTES);
        fs::write(kept.path(), bytes).unwrap();
        assert_eq!(kept.read(first - 10, first + 100), [(first, 0.0), (first + 20, 2.0)]);
        kept.write(first + 10, 1.5);
        assert_eq!(kept.read(first, first + 10), [(first + 10, 1.5)]);
    }

    #[test]
    fn an_error_ends_with_its_cause() {
        let mut kept = Kept::new();
        fs::create_dir(kept.path()).unwrap();
        let row = Row { at: START, step: 10, values: Default::default(), pools: Vec::new() };
        assert!(kept.ring.write(&row).is_err());
        assert!(kept.ring.read(0, START, |_| {}).is_err());
        fs::remove_dir(kept.path()).unwrap();
        kept.write(START, 1.0);
        assert_eq!(kept.read(START - 10, START), [(START, 1.0)]);
    }
}
