//! A database: tasks read its pages at once; changed pages are written some time later.

use std::cell::{Cell, RefCell};

use base::{Buf, Rng};
use initiator::Pattern;
use rt::sync::{Notify, Semaphore};

use super::super::Plan;
use super::volume::{Stopped, Volume};
use crate::content::Filler;
use crate::device::Failure;
use crate::ledger::{Claim, Ledger};
use crate::mail::PAGE_BYTES;

/// Pages that are written concurrently.
pub(super) const WRITERS: usize = 32;
/// The most changed pages that wait to be written: 100 MiB, as far as an Exchange checkpoint may lag behind
/// the log.
pub(super) const CHANGED_MAX: usize = (100 << 20) / PAGE_BYTES as usize;

pub(super) struct Database {
    volume: Volume,
    /// Chooses the pages.
    choice: RefCell<Rng>,
    filler: RefCell<Filler>,
    /// With `--verify`: what was written where.
    ledger: Option<Ledger>,
    pattern: Pattern,
    checked: Cell<u64>,
    unchecked: Cell<u64>,
    /// Changed pages that wait to be written.
    changed: Cell<usize>,
    /// Room for more changed pages.
    room: Semaphore,
    /// Notified when there are changed pages, or the database is closed.
    work: Notify,
    closed: Cell<bool>,
}

impl Database {
    pub(super) fn new(volume: Volume, plan: &Plan, mut rng: Rng) -> Database {
        let workload = &plan.workload;
        let pages = volume.part.region.len / u64::from(PAGE_BYTES);
        Database {
            ledger: workload.verify.then(|| Ledger::new(pages, plan.filled)),
            pattern: Pattern::new(plan.pattern),
            filler: RefCell::new(Filler::new(workload.content, PAGE_BYTES as usize, rng.fork())),
            choice: RefCell::new(rng),
            volume,
            checked: Cell::new(0),
            unchecked: Cell::new(0),
            changed: Cell::new(0),
            room: Semaphore::new(CHANGED_MAX),
            work: Notify::new(),
            closed: Cell::new(false),
        }
    }

    /// Reads a random page.
    pub(super) async fn read_page(&self) -> Result<(), Stopped> {
        let (page, claim) = self.choose(true);
        let offset = self.offset(page);
        let data = self.volume.read(offset, PAGE_BYTES).await?;
        if let (Some(claim), Some(ledger)) = (claim, &self.ledger) {
            match ledger.expected(claim) {
                None => self.unchecked.set(self.unchecked.get() + 1),
                Some(number) => {
                    self.checked.set(self.checked.get() + 1);
                    let check = self.pattern.check(&data, offset, number);
                    check.map_err(|wrong| self.volume.wrong(offset, Failure::WrongData(wrong)))?;
                }
            }
            ledger.release(page, claim);
        }
        Ok(())
    }

    /// Waits until this many more pages may be changed.
    pub(super) async fn make_room(&self, pages: u32) {
        self.room.acquire(pages as usize).await;
    }

    /// Changes this many pages, for which there is room.
    pub(super) fn change(&self, pages: u32) {
        self.changed.set(self.changed.get() + pages as usize);
        self.work.notify();
    }

    /// Writes changed pages, one after the other, until the database is closed or a write fails.
    pub(super) async fn write_changed(&self) {
        while !self.closed.get() {
            let Some(left) = self.changed.get().checked_sub(1) else {
                self.work.notified().await;
                continue;
            };
            self.changed.set(left);
            let written = self.write_page().await;
            self.room.release(1);
            if written.is_err() {
                return;
            }
        }
    }

    async fn write_page(&self) -> Result<(), Stopped> {
        let (page, claim) = self.choose(false);
        let offset = self.offset(page);
        let (Some(claim), Some(ledger)) = (claim, &self.ledger) else {
            let data = self.filler.borrow_mut().next();
            self.volume.write(offset, data.clone(), false).await?;
            self.filler.borrow_mut().give_back(data);
            return Ok(());
        };
        let mut data = Buf::uncleared(PAGE_BYTES as usize);
        self.pattern.fill(&mut data, offset, claim.write_number());
        self.volume.write(offset, data.share(), false).await?;
        ledger.release(page, claim);
        Ok(())
    }

    /// Stops writing pages, except for those under way.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.work.notify();
    }

    /// Pages that were checked, and pages that could not be checked.
    pub(super) fn checks(&self) -> (u64, u64) {
        (self.checked.get(), self.unchecked.get())
    }

    /// A random page that no conflicting request uses.
    fn choose(&self, read: bool) -> (u64, Option<Claim>) {
        let pages = self.volume.part.region.len / u64::from(PAGE_BYTES);
        loop {
            let page = self.choice.borrow_mut().below(pages);
            let Some(ledger) = &self.ledger else { return (page, None) };
            if let Some(claim) = ledger.claim(page, read) {
                return (page, Some(claim));
            }
        }
    }

    fn offset(&self, page: u64) -> u64 {
        self.volume.part.region.start + page * u64::from(PAGE_BYTES)
    }
}
