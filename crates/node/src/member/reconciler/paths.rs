//! Through which nodes hosts reach the volumes that have a copy here, and in which access state: as this node
//! acts.

use base::Instant;
use proto::scsi::AccessState;
use replica::{Config, NodeId};
use store::VolumeId;

use super::{Kept, Reconciler};
use crate::attach::port_numbers::NodeNumber;
use crate::attach::unit::{Paths, Way};
use crate::control::Control;
use crate::yielding;

impl Reconciler {
    /// The paths to some of the volumes that have an open copy here, beginning behind `after`.
    ///
    /// Also returns where the next turn of this core continues, if there may be more.
    pub fn some_paths(&self, after: Option<VolumeId>) -> (Vec<(VolumeId, Paths)>, Option<VolumeId>) {
        let mut some = Vec::new();
        let next = yielding::look_at_some(&mut self.volumes.borrow_mut(), after, |id, kept| {
            if self.is_shown(kept) {
                some.push((id, self.paths_to(kept)));
            }
        });
        (some, next)
    }

    /// The paths to one of these volumes.
    pub fn paths_of(&self, id: VolumeId) -> Option<Paths> {
        self.volumes.borrow().get(&id).filter(|kept| self.is_shown(kept)).map(|kept| self.paths_to(kept))
    }

    /// Whether hosts are to see these paths.
    ///
    /// Not before the copy acts if it is the only member: hosts may have used the volume before it had
    /// copies, and keep seeing what they saw.
    fn is_shown(&self, kept: &Kept) -> bool {
        let is_only = |config: &Config| config.members().without(kept.slot).is_empty();
        let acts_soon =
            || kept.membership.active().is_none() && kept.membership.newest().is_some_and(is_only);
        kept.open && !acts_soon()
    }

    /// The paths to a volume as this node acts.
    ///
    /// Hosts rely on them: through a node that is reported unavailable for the volume, nothing takes effect
    /// any more.
    fn paths_to(&self, kept: &Kept) -> Paths {
        // The disk and links of a resync's source have more to do: another copy in sync serves hosts better.
        let others_serve = kept.membership.active().is_some_and(|config| config.in_sync().len() > 1);
        let way = |serves: bool, node: NodeId| match serves {
            false => AccessState::Unavailable,
            true if others_serve && self.is_source(kept.entry.number, node) => {
                AccessState::ActiveNonOptimized
            }
            true => AccessState::ActiveOptimized,
        };
        let acts = kept.membership.active().is_some_and(|config| self.is_in_sync(kept, config));
        let named = kept.membership.newest().is_some_and(|config| self.is_in_sync(kept, config));
        let others = kept.entry.copies.iter().filter(|copy| copy.slot as usize != kept.slot.index());
        let others = others.filter_map(|copy| {
            let number = NodeNumber::new(copy.node.into())?;
            let slot = copy.slot()?;
            let serves = |config: &Config| config.in_sync().contains(slot);
            // Before this node acts in a configuration, it reports what the record says.
            let config = kept.membership.active().or(kept.membership.newest());
            Some((number, Way::new(way(config.is_some_and(serves), NodeId(copy.node)))))
        });
        let serves = acts && named && kept.agreement.is_known() && !kept.is_held();
        let own = kept.suspicion.state().filter(|_| serves).unwrap_or_else(|| way(serves, self.me()));
        Paths { own: Way::new(own), others: others.collect() }
    }

    pub(super) fn serves(&self, now: Instant, kept: &Kept) -> bool {
        !kept.is_held()
            && kept.membership.active().is_some_and(|config| {
                let others = config.members().without(kept.slot);
                let nodes = others.iter().filter_map(|slot| config.copy(slot)).map(|copy| copy.node);
                self.is_in_sync(kept, config) && self.copies.holds_all(now, nodes)
            })
    }

    /// Tells the units through which nodes hosts reach them, and in which state.
    pub(super) async fn show_paths(&self) {
        if let Some(control) = Control::try_current() {
            control.show_paths_of_copies().await;
        }
    }
}
