//! By which nodes hosts reach the volumes that have a copy here, and how: as this node acts.

use base::Instant;
use proto::scsi::AccessState;
use replica::{Config, NodeId};
use store::VolumeId;

use super::{Keeper, Kept};
use crate::control::Control;
use crate::parts;
use crate::port_numbers::NodeNumber;
use crate::unit::{Paths, Way};

impl Keeper {
    /// The ways to some of the volumes that have an open copy here, those behind `after`; and where the next
    /// turn of this core goes on, if there may be more.
    pub fn some_paths(&self, after: Option<VolumeId>) -> (Vec<(VolumeId, Paths)>, Option<VolumeId>) {
        let mut some = Vec::new();
        let next = parts::look_at_some(&mut self.volumes.borrow_mut(), after, |id, kept| {
            if self.is_shown(kept) {
                some.push((id, self.paths_to(kept)));
            }
        });
        (some, next)
    }

    /// The ways to one of them.
    pub fn paths_of(&self, id: VolumeId) -> Option<Paths> {
        self.volumes.borrow().get(&id).filter(|kept| self.is_shown(kept)).map(|kept| self.paths_to(kept))
    }

    /// Not before it acts where it is the only member: of a volume that hosts could use before it had copies,
    /// what they are told stays.
    fn is_shown(&self, kept: &Kept) -> bool {
        let is_only = |config: &Config| config.members().without(kept.slot).is_empty();
        let acts_soon =
            || kept.membership.active().is_none() && kept.membership.newest().is_some_and(is_only);
        kept.open && !acts_soon()
    }

    /// As this node acts. Hosts count on it: of a node through which the volume is said to be unavailable
    /// nothing takes effect any more.
    fn paths_to(&self, kept: &Kept) -> Paths {
        // Its disk and its links have more to do: as long as there is another, hosts are better served there.
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
            // Before this node acts by anything it says what the record says.
            let config = kept.membership.active().or(kept.membership.newest());
            Some((number, Way::new(way(config.is_some_and(serves), NodeId(copy.node)))))
        });
        let serves = acts && named && kept.agreement.known && !kept.is_held();
        let own = kept.doubt.state().filter(|_| serves).unwrap_or_else(|| way(serves, self.me()));
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

    /// Tells units by which nodes they are reached and how.
    pub(super) async fn show_paths(&self) {
        if let Some(control) = Control::try_current() {
            control.show_paths_of_copies().await;
        }
    }
}
