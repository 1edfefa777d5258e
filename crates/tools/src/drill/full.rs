//! Pools that are full: a host writes until there is no space, and reads all of that back. Then it unmaps
//! half, and writes again.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc;
use std::time::Duration;

use base::{BlockCount, Buf, Lba, LbaRange};
use initiator::load::LoadError;
use initiator::multipath::Failure;
use initiator::{Lun, Multipath, Pattern, Policy, Search, WrongSector};
use serde::Serialize;

use super::DrillError;
use super::fleet::{Fleet, VOLUME};
use super::load::{on_a_core, options};
use super::waiter::Waiter;
use super::watch::now;

/// Bytes of each write.
const PIECE_BYTES: u64 = 256 << 10;

/// Pieces that one UNMAP covers: 16 MiB.
const UNMAPPED_AT_ONCE: u64 = 64;

/// Of what fits in the pools, this part is written again after UNMAP.
const AGAIN_PART: u64 = 8;

/// How long a write may find no space after UNMAP, and how often it is sent: logs free space a moment later.
const SPACE_LIMIT: Duration = Duration::from_secs(10);
const SPACE_AGAIN: Duration = Duration::from_millis(100);

const STEP_LIMIT: Duration = Duration::from_secs(120);

/// The numbers of the writes to a piece.
const FIRST: u64 = 1;
const SECOND: u64 = 2;

/// The host that fills the pools.
pub struct Full {
    host: Host,
    /// How many pieces were written until there was no space.
    pieces: u64,
    found: Filled,
}

/// What became of full pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Filled {
    /// Bytes that were written until there was no space, besides those of the load.
    pub filled_bytes: u64,
    /// Bytes of them that were unmapped.
    pub unmapped_bytes: u64,
    /// Bytes of those that were then written again.
    pub rewritten_bytes: u64,
    /// How often a write of the load found no space, and was sent again.
    pub refused_writes: u64,
    /// What failed first, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[derive(Clone)]
struct Host {
    portals: Vec<SocketAddr>,
    policy: Policy,
    /// The part of the volume from here on is its own.
    from: u64,
    pattern: Pattern,
}

/// The volume as the host uses it.
struct Unit {
    unit: Multipath,
    from: u64,
    pattern: Pattern,
}

impl Full {
    /// Writes until there is no space, and reads all of that back.
    ///
    /// # Errors
    /// It could not be tried, or took too long. What the cluster did wrong is in [`Full::found`].
    pub fn begin(fleet: &Fleet, policy: Policy, waiter: &Waiter) -> Result<Full, DrillError> {
        let portals = fleet.with_copies().iter().map(|node| node.portal).collect();
        let from = fleet.load_span().unwrap_or(0);
        let host = Host { portals, policy, from, pattern: Pattern::new(now().0) };
        let mut full = Full { host, pieces: 0, found: Filled::default() };
        let filled = full.step("writes until the pools are full", waiter, async |unit| unit.fill().await)?;
        full.pieces = filled.unwrap_or(0);
        full.found.filled_bytes = full.pieces * PIECE_BYTES;
        let all = 0..full.pieces;
        full.step("reads from full pools", waiter, async move |unit| unit.check(all, FIRST).await)?;
        Ok(full)
    }

    /// Unmaps the first half, and writes some of it again.
    pub fn make_room(&mut self, waiter: &Waiter) -> Result<(), DrillError> {
        let (half, again) = (self.half(), self.again());
        let unmapped = self.step("UNMAP in full pools", waiter, async move |unit| unit.unmap(half).await)?;
        if unmapped.is_some() {
            self.found.unmapped_bytes = self.half().end * PIECE_BYTES;
        }
        let what = "writes after UNMAP";
        let written = self.step(what, waiter, async move |unit| unit.write_again(again).await)?;
        if written.is_some() {
            self.found.rewritten_bytes = self.again().end * PIECE_BYTES;
        }
        Ok(())
    }

    /// Reads everything once more. `refused` is how often writes of the load found no space.
    pub fn found(mut self, refused: u64, waiter: &Waiter) -> Result<Filled, DrillError> {
        let (half, again, pieces) = (self.half(), self.again(), self.pieces);
        self.step("the final reads", waiter, async move |unit| {
            unit.check(again.clone(), SECOND).await?;
            unit.check_zeros(again.end..half.end).await?;
            unit.check(half.end..pieces, FIRST).await
        })?;
        Ok(Filled { refused_writes: refused, ..self.found })
    }

    /// The pieces that are unmapped.
    fn half(&self) -> Range<u64> {
        0..self.pieces / 2
    }

    /// Those of them that are written again.
    fn again(&self) -> Range<u64> {
        0..self.pieces / AGAIN_PART
    }

    /// Does a step, unless an earlier one has failed. Returns `None` if it did not succeed.
    fn step<T: Send + 'static>(
        &mut self,
        what: &str,
        waiter: &Waiter,
        work: impl AsyncFnOnce(&Unit) -> Result<T, LoadError> + Send + 'static,
    ) -> Result<Option<T>, DrillError> {
        if self.found.failure.is_some() {
            return Ok(None);
        }
        match self.host.carry_out(what, waiter, work)? {
            Ok(done) => Ok(Some(done)),
            Err(error) => {
                self.found.failure = Some(format!("{what}: {error}"));
                Ok(None)
            }
        }
    }
}

impl Host {
    /// Does `work` on a core of its own; returns its result.
    fn carry_out<T: Send + 'static>(
        &self,
        what: &str,
        waiter: &Waiter,
        work: impl AsyncFnOnce(&Unit) -> Result<T, LoadError> + Send + 'static,
    ) -> Result<Result<T, LoadError>, DrillError> {
        let (done, result) = mpsc::channel();
        let host = self.clone();
        let running = on_a_core(move || async move {
            // Nobody waits for it after an interruption.
            let _ = done.send(host.with_unit(work).await);
        })?;
        let mut found = None;
        waiter.wait(STEP_LIMIT, what, || {
            found = result.try_recv().ok();
            found.is_some()
        })?;
        running.join();
        Ok(found.expect("the wait ends with a result"))
    }

    async fn with_unit<T>(
        self,
        work: impl AsyncFnOnce(&Unit) -> Result<T, LoadError>,
    ) -> Result<T, LoadError> {
        let search = Search {
            portals: self.portals,
            target: Some(api::default_target(VOLUME)),
            unit: initiator::UnitSelector::Lun(Lun(0)),
            discover: false,
        };
        let unit = Multipath::open(&search, options(self.policy)).await?;
        let unit = Unit { unit, from: self.from, pattern: self.pattern };
        let result = work(&unit).await;
        unit.unit.close().await;
        result
    }
}

impl Unit {
    /// Writes one piece after the other until there is no space; returns how many had some.
    async fn fill(&self) -> Result<u64, LoadError> {
        let capacity = self.unit.capacity();
        let bytes = (capacity.blocks * capacity.block_size).0.saturating_sub(self.from);
        for piece in 0..bytes / PIECE_BYTES {
            match self.write(piece, FIRST).await {
                Ok(()) => {}
                Err(failure) if failure.is_out_of_space() => return Ok(piece),
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(LoadError::Config("the volume was full before its pools"))
    }

    async fn unmap(&self, pieces: Range<u64>) -> Result<(), LoadError> {
        for start in pieces.clone().step_by(UNMAPPED_AT_ONCE as usize) {
            let (start, end) = (self.lba(start), self.lba(pieces.end.min(start + UNMAPPED_AT_ONCE)));
            self.unit.unmap(&[LbaRange { start, count: end - start }]).await?;
        }
        Ok(())
    }

    /// Writes pieces a second time, as soon as there is space.
    async fn write_again(&self, pieces: Range<u64>) -> Result<(), LoadError> {
        let until = rt::now() + SPACE_LIMIT;
        for piece in pieces {
            while let Err(failure) = self.write(piece, SECOND).await {
                if !failure.is_out_of_space() || rt::now() >= until {
                    return Err(failure.into());
                }
                rt::sleep(SPACE_AGAIN).await;
            }
        }
        Ok(())
    }

    async fn write(&self, piece: u64, write: u64) -> Result<(), Failure> {
        let mut data = Buf::uncleared(PIECE_BYTES as usize);
        self.pattern.fill(&mut data, self.offset(piece), write);
        self.unit.write(self.lba(piece), data.into()).await
    }

    async fn check(&self, pieces: Range<u64>, write: u64) -> Result<(), LoadError> {
        for piece in pieces {
            let data = self.read(piece).await?;
            self.pattern.check(&data, self.offset(piece), write).map_err(LoadError::WrongData)?;
        }
        Ok(())
    }

    async fn check_zeros(&self, pieces: Range<u64>) -> Result<(), LoadError> {
        for piece in pieces {
            let data = self.read(piece).await?;
            let mut sectors = (self.offset(piece) / 512..).zip(data.as_chunks::<512>().0);
            if let Some((sector, data)) = sectors.find(|(_, data)| **data != [0; 512]) {
                let words = data.as_chunks::<8>().0;
                let found = [0, 1, 2].map(|word| u64::from_le_bytes(words[word]));
                return Err(LoadError::WrongData(WrongSector { sector, expected: 0, found, whole: false }));
            }
        }
        Ok(())
    }

    async fn read(&self, piece: u64) -> Result<Buf, Failure> {
        let count = BlockCount(PIECE_BYTES / u64::from(self.unit.capacity().block_size.bytes()));
        self.unit.read(self.lba(piece), count).await
    }

    fn offset(&self, piece: u64) -> u64 {
        self.from + piece * PIECE_BYTES
    }

    fn lba(&self, piece: u64) -> Lba {
        Lba(self.offset(piece) / u64::from(self.unit.capacity().block_size.bytes()))
    }
}
