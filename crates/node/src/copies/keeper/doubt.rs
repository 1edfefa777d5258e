//! What becomes of hosts' commands while a copy in sync lacks leases (R21).
//!
//! It is a moment's hiccup; or another copy was lost, and this one goes on as soon as the others' leases have
//! run out; or it is this node that is cut off, and others go on without it. Until that is known commands
//! wait. Then initiators are told to use another path, at once as long as it lasts, and are told when this
//! one can be used again. A node that has lost the cluster's record as well waits less: others do not hear of
//! it, and it is not this node that goes on.

use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use proto::scsi::AccessState;
use store::VolumeId;

use super::{Keeper, Kept};
use crate::copies::HOLD_MAX;
use crate::copies::core::Copies;
use crate::parts;
use crate::shard::on_all_cores;

/// For how long leases may be missing before it is shown: when another copy is lost it takes less, and a path
/// that changes costs hosts more.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// For how long commands wait if the cluster's record cannot be reached either. Leases run out a second after
/// the others were last heard of.
const CUT_OFF_MAX: Duration = Duration::from_millis(300);
/// How long the record may take to say how it is: it is asked on this node.
const STATUS_DEADLINE: Duration = Duration::from_millis(100);

/// Whether a copy in sync has its leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It has, or it is not in sync and needs none.
    #[default]
    None,
    /// Some are missing.
    Since(Instant),
    /// They have been for long, which hosts are told.
    Shown(Instant),
    /// Initiators are sent elsewhere.
    GivenUp,
}

impl Doubt {
    /// What initiators are told of a copy in sync; `None`: nothing of this.
    pub(super) fn state(self) -> Option<AccessState> {
        match self {
            Doubt::None | Doubt::Since(_) => None,
            Doubt::Shown(_) => Some(AccessState::Transitioning),
            Doubt::GivenUp => Some(AccessState::Unavailable),
        }
    }

    /// What it is after another look.
    fn next(self, now: Instant, lacks: bool, quorum: bool) -> Doubt {
        let since = match self {
            _ if !lacks => return Doubt::None,
            Doubt::GivenUp => return Doubt::GivenUp,
            Doubt::None => now,
            Doubt::Since(since) | Doubt::Shown(since) => since,
        };
        let lasted = now.since(since);
        match () {
            () if lasted >= HOLD_MAX || !quorum && lasted >= CUT_OFF_MAX => Doubt::GivenUp,
            () if lasted >= SHOWN_AFTER => Doubt::Shown(since),
            () => Doubt::Since(since),
        }
    }
}

impl Keeper {
    /// Looks which copies lack leases, and has commands and paths act by that.
    pub(super) async fn look_at_leases(self: &Rc<Self>) {
        let is_waiting = |doubt: Doubt| matches!(doubt, Doubt::Since(_) | Doubt::Shown(_));
        let asks = self.volumes.borrow().values().any(|kept| is_waiting(kept.doubt));
        let quorum = !asks || self.store.status(STATUS_DEADLINE).await.is_ok_and(|status| status.quorum);
        let mut turned: Vec<(u32, bool)> = Vec::new();
        let mut shown = false;
        let mut after: Option<VolumeId> = None;
        loop {
            let now = rt::now();
            after = parts::look_at_some(&mut self.volumes.borrow_mut(), after, |_, kept| {
                let before = kept.doubt;
                self.look_at_leases_of(now, kept, quorum);
                shown |= before.state() != kept.doubt.state();
                let given_up = kept.doubt == Doubt::GivenUp;
                if given_up != (before == Doubt::GivenUp) {
                    turned.push((kept.entry.number, given_up));
                }
            });
            if after.is_none() {
                break;
            }
            rt::next_turn().await;
        }
        if !turned.is_empty() {
            on_all_cores(move || {
                let turned = turned.clone();
                async move {
                    for (volume, given_up) in turned {
                        Copies::current()
                            .slices_of(volume)
                            .iter()
                            .for_each(|copy| copy.set_given_up(given_up));
                    }
                }
            })
            .await;
        }
        if shown {
            self.show_paths().await;
        }
    }

    fn look_at_leases_of(&self, now: Instant, kept: &mut Kept, quorum: bool) {
        let in_sync = kept.membership.active().is_some_and(|config| self.is_in_sync(kept, config));
        let lacks = kept.open && in_sync && !self.serves(now, kept);
        if kept.open && in_sync && !lacks {
            kept.led = Some(now);
        }
        let before = kept.doubt;
        kept.doubt = before.next(now, lacks, quorum);
        if kept.doubt == Doubt::GivenUp && before != Doubt::GivenUp {
            tracing::warn!(
                volume = kept.entry.name,
                "other copies are not responding: hosts are asked to use other nodes until they respond again"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// What it is at these milliseconds while leases are missing.
    fn course(quorum: bool, looks: &[u64]) -> Vec<Option<AccessState>> {
        let mut doubt = Doubt::default();
        let mut look = |ms: &u64| {
            doubt = doubt.next(at(*ms), true, quorum);
            doubt.state()
        };
        looks.iter().map(&mut look).collect()
    }

    #[test]
    fn a_hiccup_is_not_shown_and_a_long_silence_sends_hosts_elsewhere() {
        let transitioning = Some(AccessState::Transitioning);
        let unavailable = Some(AccessState::Unavailable);
        assert_eq!(
            course(true, &[1000, 1499, 1500, 2999, 3000, 9000]),
            [None, None, transitioning, transitioning, unavailable, unavailable]
        );
        assert_eq!(course(false, &[1000, 1299, 1300]), [None, None, unavailable]);
        assert_eq!(Doubt::GivenUp.next(at(9000), false, true), Doubt::None);
    }
}
