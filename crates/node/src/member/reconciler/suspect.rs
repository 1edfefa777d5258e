//! What happens to hosts' commands while a copy in sync lacks leases (R21).
//!
//! It may be a short hiccup. Or another copy was lost, and this one continues as soon as that copy's leases
//! have expired. Or this node is cut off, and others continue without it. Until it is known which, commands
//! wait. Then commands are refused at once as long as it lasts, so that initiators use another path, and
//! initiators hear when this path can be used again. A node that has lost the cluster's record as well waits
//! less: other nodes do not hear it, so it is not the one that continues.

use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use proto::scsi::AccessState;
use store::VolumeId;

use super::rest::Rested;
use super::{Kept, Reconciler};
use crate::copies::HOLD_MAX;
use crate::copies::core::Copies;
use crate::shard::on_all_cores;
use crate::yielding;

/// How long leases may be missing before hosts learn of it.
///
/// When another copy is lost it takes less, and a change of paths costs hosts more.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// How long commands wait if the cluster's record cannot be reached either.
///
/// Leases expire a second after the other nodes were last heard.
const CUT_OFF_MAX: Duration = Duration::from_millis(300);
/// How long the record may take to report its status, which this node knows without asking others.
const STATUS_DEADLINE: Duration = Duration::from_millis(100);

/// Whether a copy in sync has its leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Suspicion {
    /// It has them, or it is not in sync and needs none.
    #[default]
    None,
    /// Some are missing.
    Since(Instant),
    /// Some have been missing for so long that hosts learn of it.
    Shown(Instant),
    /// Initiators are sent to other paths.
    GivenUp,
}

impl Suspicion {
    /// The access state that initiators see for a copy in sync; `None`: the usual one.
    pub(super) fn state(self) -> Option<AccessState> {
        match self {
            Suspicion::None | Suspicion::Since(_) => None,
            Suspicion::Shown(_) => Some(AccessState::Transitioning),
            Suspicion::GivenUp => Some(AccessState::Unavailable),
        }
    }

    /// The state after another look.
    fn next(self, now: Instant, lacks: bool, quorum: bool) -> Suspicion {
        let since = match self {
            _ if !lacks => return Suspicion::None,
            Suspicion::GivenUp => return Suspicion::GivenUp,
            Suspicion::None => now,
            Suspicion::Since(since) | Suspicion::Shown(since) => since,
        };
        let lasted = now.since(since);
        match () {
            () if lasted >= HOLD_MAX || !quorum && lasted >= CUT_OFF_MAX => Suspicion::GivenUp,
            () if lasted >= SHOWN_AFTER => Suspicion::Shown(since),
            () => Suspicion::Since(since),
        }
    }
}

impl Reconciler {
    /// Checks which copies lack leases, and makes commands and paths act by that.
    ///
    /// `rested` is the time since the last look, if no volume was looked at in it because none had changed.
    pub(super) async fn look_at_leases(self: &Rc<Self>, rested: Option<Rested>) {
        let is_waiting =
            |suspicion: Suspicion| matches!(suspicion, Suspicion::Since(_) | Suspicion::Shown(_));
        let asks = self.volumes.borrow().values().any(|kept| is_waiting(kept.suspicion));
        let quorum = !asks || self.has_quorum().await;
        let mut turned: Vec<(u32, bool)> = Vec::new();
        let mut shown = false;
        let mut after: Option<VolumeId> = None;
        loop {
            let now = rt::now();
            after = yielding::look_at_some(&mut self.volumes.borrow_mut(), after, |_, kept| {
                let before = kept.suspicion;
                kept.led = kept.led.map(|led| rested.map_or(led, |rested| rested.led(led)));
                self.look_at_leases_of(now, kept, quorum);
                shown |= before.state() != kept.suspicion.state();
                let given_up = kept.suspicion == Suspicion::GivenUp;
                if given_up != (before == Suspicion::GivenUp) {
                    turned.push((kept.entry.number, given_up));
                }
            });
            if after.is_none() {
                break;
            }
            rt::next_turn().await;
        }
        if !turned.is_empty() {
            on_all_cores(move || async move {
                for (volume, given_up) in turned {
                    Copies::current().slices_of(volume).iter().for_each(|copy| copy.set_given_up(given_up));
                }
            })
            .await;
        }
        if shown {
            self.show_paths().await;
        }
    }

    /// Whether the cluster's record has a quorum, as far as this node knows.
    pub(super) async fn has_quorum(&self) -> bool {
        self.store.status(STATUS_DEADLINE).await.is_ok_and(|status| status.quorum)
    }

    fn look_at_leases_of(&self, now: Instant, kept: &mut Kept, quorum: bool) {
        let in_sync = kept.membership.active().is_some_and(|config| self.is_in_sync(kept, config));
        let lacks = kept.open && in_sync && !self.serves(now, kept);
        if kept.open && in_sync && !lacks {
            kept.led = Some(now);
        }
        let before = kept.suspicion;
        kept.suspicion = before.next(now, lacks, quorum);
        if kept.suspicion == Suspicion::GivenUp && before != Suspicion::GivenUp {
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

    /// The access states at these milliseconds while leases are missing.
    fn course(quorum: bool, looks: &[u64]) -> Vec<Option<AccessState>> {
        let mut suspicion = Suspicion::default();
        let mut look = |ms: &u64| {
            suspicion = suspicion.next(at(*ms), true, quorum);
            suspicion.state()
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
        assert_eq!(Suspicion::GivenUp.next(at(9000), false, true), Suspicion::None);
    }
}
