//! Hosts that exchange what a block holds by COMPARE AND WRITE, each through one node, and one host a block that writes it: nothing is exchanged
//! twice, and no write in between is lost (A11).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use base::{BlockCount, Lba, Rng};
use initiator::command::CompareAndWrite;
use initiator::{Error, Session};

use super::hot::attended;
use super::{Common, LOG_IN_AGAIN};
use crate::cluster::{LUN, log_in};
use crate::history::{filled, value_of};
use crate::layout::EXCHANGED;

/// What was exchanged for what, by block and old value: what was answered GOOD.
#[derive(Clone, Default)]
pub(super) struct Exchanges(Rc<RefCell<BTreeMap<(u64, u64), u64>>>);

pub(super) struct Exchanger {
    common: Common,
    exchanges: Exchanges,
    /// The block that it does not exchange but writes. Every write of its has a tag that is greater than the last, and exchanges keep it: one
    /// that overwrote what it had not compared would bring an old tag back.
    writes: Option<u64>,
    /// The tag of its last write that was answered.
    tag: Cell<u64>,
}

/// Above the values of all histories.
const TAG_SHIFT: u32 = 40;

impl Exchanger {
    pub(super) fn new(common: Common, exchanges: Exchanges, number: u64) -> Exchanger {
        let block = EXCHANGED.start + number;
        let writes = EXCHANGED.contains(&block).then_some(block);
        Exchanger { common, exchanges, writes, tag: Cell::new(0) }
    }

    pub(super) async fn run(self, portal: SocketAddr, name: String, mut rng: Rng) {
        loop {
            let Ok(session) = log_in(portal, &name).await else {
                rt::sleep(LOG_IN_AGAIN).await;
                continue;
            };
            while self.turn(&session, &mut rng).await.is_ok() {
                self.common.think(&mut rng).await;
            }
        }
    }

    async fn turn(&self, session: &Session, rng: &mut Rng) -> Result<(), Error> {
        let Common { history, counts, size, .. } = &self.common;
        let (lba, size) = (EXCHANGED.start + rng.below(EXCHANGED.end - EXCHANGED.start), *size);
        let call = history.tick();
        let data = attended(async || session.read(LUN, Lba(lba), BlockCount(1), size).await).await?;
        history.read(lba, &data, call);
        // A write that a power cut has torn: nothing can be exchanged for it.
        let old = value_of(&data);
        let tag = old.unwrap_or(u64::MAX) >> TAG_SHIFT;
        if self.writes == Some(lba) {
            assert!(tag >= self.tag.get(), "block {lba}: write {} was lost, {tag} is there", self.tag.get());
            let tag = history.value();
            let new = tag << TAG_SHIFT | tag;
            let begun = history.begin_write(lba..lba + 1, new);
            attended(async || session.write(LUN, Lba(lba), filled(new, 1, size), size).await).await?;
            history.end_write(&begun);
            self.tag.set(tag);
            return Ok(());
        }
        let Some(old) = old else { return Ok(()) };
        let new = tag << TAG_SHIFT | history.value();
        let begun = history.begin_write(lba..lba + 1, new);
        let call = history.tick();
        let exchange = || CompareAndWrite {
            lba: Lba(lba),
            compare: filled(old, 1, size),
            write: filled(new, 1, size),
            size,
        };
        match attended(async || session.compare_and_write(LUN, exchange()).await).await {
            Ok(()) => {
                // It found the old value between its beginning and its end.
                history.found(lba, old, call);
                history.end_write(&begun);
                counts.count("exchange");
                let before = self.exchanges.0.borrow_mut().insert((lba, old), new);
                assert_eq!(before, None, "block {lba}: {old:x} was exchanged twice, then for {new:x}");
                Ok(())
            }
            Err(error) if error.is_miscompare() => {
                counts.count("miscompare");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
