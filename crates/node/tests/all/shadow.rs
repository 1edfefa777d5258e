//! What a volume may hold after a power cut, according to the responses to its clients.
//!
//! A sector holds its latest durable write, or any write that began after that one. A write is durable if it
//! was sent as such, or if a flush that began after its response has succeeded. Only one client writes a
//! sector at a time.

use std::collections::BTreeMap;

use crate::content::{Foreign, SECTOR, Stamp, stamp_of};

/// The sectors of one volume.
pub(crate) struct Shadow {
    volume: u64,
    sectors: BTreeMap<u64, Sector>,
    /// Orders responses and flushes.
    clock: u64,
}

#[derive(Default)]
struct Sector {
    certain: Option<Stamp>,
    /// Writes that began after `certain`, oldest first.
    later: Vec<Later>,
}

struct Later {
    stamp: Stamp,
    /// When it succeeded.
    answered: Option<u64>,
}

/// How the volume contradicts the responses to its clients.
#[derive(Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "shown when a test fails")]
pub(crate) enum Broken {
    /// It holds something that no client wrote there.
    Foreign(Foreign),
    /// It holds a write that was overwritten, or nothing, although a newer one is durable.
    Lost { sector: u64, found: Option<Stamp>, certain: Option<Stamp> },
    /// A running node does not return the latest acknowledged write.
    Stale { sector: u64, found: Option<Stamp>, newest: Option<Stamp> },
}

/// A flush that has begun.
#[derive(Clone, Copy)]
pub(crate) struct Flush(u64);

impl Shadow {
    pub(crate) fn new(volume: u64) -> Shadow {
        Shadow { volume, sectors: BTreeMap::new(), clock: 0 }
    }

    pub(crate) fn begin_write(&mut self, sectors: std::ops::Range<u64>, stamp: Stamp) {
        for sector in sectors {
            self.sectors.entry(sector).or_default().later.push(Later { stamp, answered: None });
        }
    }

    /// Notes that the write succeeded.
    pub(crate) fn end_write(&mut self, sectors: std::ops::Range<u64>, stamp: Stamp, durable: bool) {
        self.clock += 1;
        for sector in sectors {
            let sector = self.sectors.get_mut(&sector).expect("the write has begun");
            let at = sector.later.iter().position(|later| later.stamp == stamp);
            let at = at.expect("nobody else has written the sector since");
            if durable {
                sector.certain = Some(stamp);
                sector.later.drain(..=at);
            } else {
                sector.later[at].answered = Some(self.clock);
            }
        }
    }

    pub(crate) fn begin_flush(&self) -> Flush {
        Flush(self.clock)
    }

    /// Notes that the flush succeeded.
    pub(crate) fn end_flush(&mut self, flush: Flush) {
        for sector in self.sectors.values_mut() {
            let covered = |later: &Later| later.answered.is_some_and(|answered| answered <= flush.0);
            if let Some(at) = sector.later.iter().rposition(covered) {
                sector.certain = Some(sector.later[at].stamp);
                sector.later.drain(..=at);
            }
        }
    }

    /// Notes that the node has stopped in good order: every acknowledged write is durable.
    pub(crate) fn stopped(&mut self) {
        self.end_flush(Flush(self.clock));
    }

    /// Checks what is found from sector `first` on after a power cut; from then on, that is what the volume
    /// holds.
    pub(crate) fn check_after_cut(&mut self, first: u64, data: &[u8]) -> Result<(), Broken> {
        for (number, bytes) in (first..).zip(data.chunks_exact(SECTOR)) {
            let found = stamp_of(self.volume, number, bytes).map_err(Broken::Foreign)?;
            let sector = self.sectors.entry(number).or_default();
            if found != sector.certain && !sector.later.iter().any(|later| Some(later.stamp) == found) {
                return Err(Broken::Lost { sector: number, found, certain: sector.certain });
            }
            *sector = Sector { certain: found, later: Vec::new() };
        }
        Ok(())
    }

    /// Checks what a running node returns without concurrent writes: the latest acknowledged write, or an
    /// unacknowledged one that began after it.
    pub(crate) fn check_alive(&self, first: u64, data: &[u8]) -> Result<(), Broken> {
        for (number, bytes) in (first..).zip(data.chunks_exact(SECTOR)) {
            let found = stamp_of(self.volume, number, bytes).map_err(Broken::Foreign)?;
            let Some(sector) = self.sectors.get(&number) else {
                if found.is_some() {
                    return Err(Broken::Stale { sector: number, found, newest: None });
                }
                continue;
            };
            let answered = sector.later.iter().rposition(|later| later.answered.is_some());
            let newest = answered.map_or(sector.certain, |at| Some(sector.later[at].stamp));
            let after = &sector.later[answered.map_or(0, |at| at + 1)..];
            if found != newest && !after.iter().any(|later| Some(later.stamp) == found) {
                return Err(Broken::Stale { sector: number, found, newest });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Broken, Shadow};
    use crate::content::{Stamp, stamped};

    fn stamp(sequence: u64) -> Stamp {
        Stamp { client: 1, sequence }
    }

    fn write(shadow: &mut Shadow, sequence: u64, durable: bool) {
        shadow.begin_write(0..1, stamp(sequence));
        shadow.end_write(0..1, stamp(sequence), durable);
    }

    fn after_cut(shadow: &mut Shadow, found: Option<u64>) -> Result<(), Broken> {
        let data = found.map_or(vec![0; 512], |sequence| stamped(1, 0, 1, stamp(sequence)).to_vec());
        shadow.check_after_cut(0, &data)
    }

    #[test]
    fn a_lost_durable_write_is_noticed() {
        let mut shadow = Shadow::new(1);
        write(&mut shadow, 1, true);
        assert!(matches!(after_cut(&mut shadow, None), Err(Broken::Lost { .. })));
        write(&mut shadow, 2, true);
        assert!(matches!(after_cut(&mut shadow, Some(1)), Err(Broken::Lost { .. })), "an old one is back");
        assert_eq!(after_cut(&mut shadow, Some(2)), Ok(()));
    }

    #[test]
    fn a_cached_write_may_be_lost_until_a_flush_that_began_after_it() {
        for (found, early, late) in [(None, true, false), (Some(1), true, true)] {
            for late_flush in [false, true] {
                let mut shadow = Shadow::new(1);
                let flush = shadow.begin_flush();
                write(&mut shadow, 1, false);
                let flush = if late_flush { shadow.begin_flush() } else { flush };
                shadow.end_flush(flush);
                let expected = if late_flush { late } else { early };
                assert_eq!(after_cut(&mut shadow, found).is_ok(), expected, "{found:?}, {late_flush}");
            }
        }
    }

    #[test]
    fn an_unanswered_write_may_be_there_or_not() {
        for (found, expected) in [(Some(1), true), (Some(2), true), (None, false), (Some(3), false)] {
            let mut shadow = Shadow::new(1);
            write(&mut shadow, 1, true);
            shadow.begin_write(0..1, stamp(2));
            assert_eq!(after_cut(&mut shadow, found).is_ok(), expected, "{found:?}");
        }
    }

    #[test]
    fn foreign_data_is_noticed() {
        let mut shadow = Shadow::new(1);
        write(&mut shadow, 1, false);
        let other_place = stamped(1, 9, 1, stamp(1)).to_vec();
        assert!(matches!(shadow.check_after_cut(0, &other_place), Err(Broken::Foreign(_))));
        let other_volume = stamped(2, 0, 1, stamp(1)).to_vec();
        assert!(matches!(shadow.check_alive(0, &other_volume), Err(Broken::Foreign(_))));
    }

    #[test]
    fn a_stale_read_is_noticed() {
        let mut shadow = Shadow::new(1);
        write(&mut shadow, 1, false);
        write(&mut shadow, 2, false);
        assert!(shadow.check_alive(0, &stamped(1, 0, 1, stamp(1)).to_vec()).is_err());
        assert!(shadow.check_alive(0, &[0; 512]).is_err());
        assert_eq!(shadow.check_alive(0, &stamped(1, 0, 1, stamp(2)).to_vec()), Ok(()));
        assert!(shadow.check_alive(1, &stamped(1, 1, 1, stamp(1)).to_vec()).is_err(), "never written");
    }
}
