//! Which copies are in sync: a volume's configuration, and the few ways in which it may change (R13, R14,
//! R16).
//!
//! The configuration is stored in the cluster's record and changes by compare-and-swap, one epoch at a time.
//! Each change does one thing. Members are in-sync copies and joiners; every write needs all of them.

use thiserror::Error;

use crate::{Epoch, Incarnation, NodeId, Revision, Slot, Slots};

/// One volume's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its number.
    pub epoch: Epoch,
    /// The revision of the cluster's record that holds it.
    pub revision: Revision,
    copies: [Option<CopyState>; Slot::MAX],
}

/// One copy of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyState {
    /// The node whose disks it is on.
    pub node: NodeId,
    /// What it may do.
    pub standing: Standing,
}

/// What a copy may do.
///
/// A restarted process is another incarnation and so is outside, whatever its previous life was (R14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The copy misses writes.
    Outside,
    /// The copy takes every write and gets what it missed; it must not be read.
    Joining(Incarnation),
    /// The copy has every acknowledged write, and serves.
    InSync(Incarnation),
}

/// Why a change of the configuration is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// At least one copy must stay in sync.
    #[error("it is the last copy in sync: without it the data is lost")]
    LastInSync,
    /// The slot has no copy, or the copy has another standing.
    #[error("the copy is not in the state that this change requires")]
    Standing,
    /// Only a restarted process of an in-sync copy can recover.
    #[error("this process of the copy is already in sync")]
    NotRestarted,
}

impl Config {
    /// The configuration of a new volume: all copies in sync, because all are empty.
    pub fn initial(copies: &[(NodeId, Incarnation)], revision: Revision) -> Config {
        assert!((1..=Slot::MAX).contains(&copies.len()), "a volume has one to four copies");
        let mut slots = [None; Slot::MAX];
        for (slot, (node, incarnation)) in slots.iter_mut().zip(copies) {
            *slot = Some(CopyState { node: *node, standing: Standing::InSync(*incarnation) });
        }
        Config { epoch: Epoch::FIRST, revision, copies: slots }
    }

    /// The configuration that the record holds, with its copies by slot.
    pub fn recorded(epoch: Epoch, revision: Revision, copies: [Option<CopyState>; Slot::MAX]) -> Config {
        Config { epoch, revision, copies }
    }

    /// The copies, by slot.
    pub fn copies(&self) -> impl Iterator<Item = (Slot, CopyState)> {
        Slot::all().filter_map(|slot| Some((slot, self.copy(slot)?)))
    }

    /// This configuration with the revision at which it was committed.
    #[must_use]
    pub fn committed_at(self, revision: Revision) -> Config {
        Config { revision, ..self }
    }

    /// The copy in the slot.
    pub fn copy(&self, slot: Slot) -> Option<CopyState> {
        self.copies[slot.index()]
    }

    /// The slot of the node's copy.
    pub fn slot_of(&self, node: NodeId) -> Option<Slot> {
        Slot::all().find(|slot| self.copy(*slot).is_some_and(|copy| copy.node == node))
    }

    /// Whether it directly follows `before`, and neither adds nor removes a copy.
    pub fn follows_with_same_copies(&self, before: &Config) -> bool {
        let node = |config: &Config, slot| config.copy(slot).map(|copy| copy.node);
        self.epoch.0 == before.epoch.0 + 1 && Slot::all().all(|slot| node(self, slot) == node(before, slot))
    }

    /// The slots that have a copy, in sync or not.
    pub fn configured(&self) -> Slots {
        self.which(|_| true)
    }

    /// The slots whose copies are in sync.
    pub fn in_sync(&self) -> Slots {
        self.which(|standing| matches!(standing, Standing::InSync(_)))
    }

    /// The slots whose copies are joining.
    pub fn joining(&self) -> Slots {
        self.which(|standing| matches!(standing, Standing::Joining(_)))
    }

    /// In-sync copies and joiners: a write needs all of them.
    pub fn members(&self) -> Slots {
        self.in_sync().or(self.joining())
    }

    /// The incarnation that is in sync in this slot.
    pub fn in_sync_incarnation(&self, slot: Slot) -> Option<Incarnation> {
        match self.copy(slot)?.standing {
            Standing::InSync(incarnation) => Some(incarnation),
            Standing::Joining(_) | Standing::Outside => None,
        }
    }

    /// The node and incarnation that are in sync in this slot.
    ///
    /// Slots are reused by other nodes, whose incarnations are counted separately.
    pub fn in_sync_life(&self, slot: Slot) -> Option<(NodeId, Incarnation)> {
        Some((self.copy(slot)?.node, self.in_sync_incarnation(slot)?))
    }

    /// What this life of the slot's process may do.
    pub fn standing(&self, slot: Slot, incarnation: Incarnation) -> Standing {
        match self.copy(slot).map(|copy| copy.standing) {
            Some(Standing::InSync(named)) if named == incarnation => Standing::InSync(named),
            Some(Standing::Joining(named)) if named == incarnation => Standing::Joining(named),
            _ => Standing::Outside,
        }
    }

    /// Whether this life of the slot's process is a member.
    pub fn has_member(&self, slot: Slot, incarnation: Incarnation) -> bool {
        self.standing(slot, incarnation) != Standing::Outside
    }

    fn which(&self, wanted: impl Fn(Standing) -> bool) -> Slots {
        Slot::all().filter(|slot| self.copy(*slot).is_some_and(|copy| wanted(copy.standing))).collect()
    }

    fn next(&self, slot: Slot, standing: Standing) -> Result<Config, Refusal> {
        let mut next = self.clone();
        next.epoch.0 += 1;
        next.copies[slot.index()].as_mut().ok_or(Refusal::Standing)?.standing = standing;
        Ok(next)
    }

    /// Removes a member (R13).
    ///
    /// # Errors
    /// [`Refusal::LastInSync`]; [`Refusal::Standing`] if it is not a member.
    pub fn remove(&self, slot: Slot) -> Result<Config, Refusal> {
        if !self.members().contains(slot) {
            return Err(Refusal::Standing);
        }
        if self.in_sync().without(slot).is_empty() {
            return Err(Refusal::LastInSync);
        }
        self.next(slot, Standing::Outside)
    }

    /// Lets a copy join (R13).
    ///
    /// # Errors
    /// [`Refusal::Standing`] if it is a member, or there is no copy.
    pub fn admit(&self, slot: Slot, incarnation: Incarnation) -> Result<Config, Refusal> {
        if self.members().contains(slot) {
            return Err(Refusal::Standing);
        }
        self.next(slot, Standing::Joining(incarnation))
    }

    /// Makes a joiner an in-sync copy.
    ///
    /// The proposer knows two things: each in-sync copy acts in the epoch in which the joiner joins, and
    /// everything that the joiner missed is on its disk (R13 a, b).
    ///
    /// # Errors
    /// [`Refusal::Standing`] if it is not joining.
    pub fn promote(&self, slot: Slot) -> Result<Config, Refusal> {
        match self.copy(slot).map(|copy| copy.standing) {
            Some(Standing::Joining(incarnation)) => self.next(slot, Standing::InSync(incarnation)),
            _ => Err(Refusal::Standing),
        }
    }

    /// Adds a copy on `node`, outside, in a slot that has none.
    ///
    /// The caller must create it blank: the other copies' maps do not have what was written while its slot
    /// was empty.
    ///
    /// # Errors
    /// [`Refusal::Standing`] if the slot or the node has a copy.
    pub fn add(&self, slot: Slot, node: NodeId) -> Result<Config, Refusal> {
        if self.copy(slot).is_some() || self.slot_of(node).is_some() {
            return Err(Refusal::Standing);
        }
        let mut next = self.clone();
        next.epoch.0 += 1;
        next.copies[slot.index()] = Some(CopyState { node, standing: Standing::Outside });
        Ok(next)
    }

    /// Removes a copy that is outside: from now on no copy notes what it misses.
    ///
    /// # Errors
    /// [`Refusal::Standing`] if it is a member, or there is no copy.
    pub fn drop_copy(&self, slot: Slot) -> Result<Config, Refusal> {
        if self.members().contains(slot) {
            return Err(Refusal::Standing);
        }
        let mut next = self.next(slot, Standing::Outside)?;
        next.copies[slot.index()] = None;
        Ok(next)
    }

    /// The restarted process of an in-sync copy continues alone (R16).
    ///
    /// It has every acknowledged write on its disk. All others are outside until they have joined.
    ///
    /// # Errors
    /// [`Refusal::Standing`] if the copy is not in sync; [`Refusal::NotRestarted`] if this very process is in
    /// sync.
    pub fn recover(&self, slot: Slot, incarnation: Incarnation) -> Result<Config, Refusal> {
        let last = self.in_sync_incarnation(slot).ok_or(Refusal::Standing)?;
        if incarnation <= last {
            return Err(Refusal::NotRestarted);
        }
        let mut next = self.next(slot, Standing::InSync(incarnation))?;
        for (index, copy) in next.copies.iter_mut().enumerate() {
            if let (Some(copy), true) = (copy, index != slot.index()) {
                copy.standing = Standing::Outside;
            }
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: usize) -> Slot {
        Slot::new(number).unwrap()
    }

    fn two() -> Config {
        Config::initial(&[(NodeId(7), Incarnation(1)), (NodeId(9), Incarnation(4))], Revision(1))
    }

    #[test]
    fn the_last_copy_in_sync_stays() {
        let alone = two().remove(slot(0)).unwrap();
        assert_eq!((alone.epoch, alone.in_sync()), (Epoch(2), Slots::from_bits(0b10)));
        assert_eq!(alone.remove(slot(1)), Err(Refusal::LastInSync));
        let joined = alone.admit(slot(0), Incarnation(2)).unwrap();
        assert_eq!(joined.remove(slot(1)), Err(Refusal::LastInSync), "a joiner is not in sync");
        assert_eq!(joined.members(), Slots::from_bits(0b11));
    }

    #[test]
    fn copies_come_and_go_outside() {
        assert_eq!(two().drop_copy(slot(1)), Err(Refusal::Standing), "it is in sync");
        let one = two().remove(slot(1)).unwrap().drop_copy(slot(1)).unwrap();
        assert_eq!((one.epoch, one.configured()), (Epoch(3), Slots::from_bits(0b01)));
        assert_eq!(one.drop_copy(slot(1)), Err(Refusal::Standing), "there is none");
        assert_eq!(one.add(slot(1), NodeId(7)), Err(Refusal::Standing), "the node has one");
        assert_eq!(one.add(slot(0), NodeId(8)), Err(Refusal::Standing), "the slot has one");
        let three = one.add(slot(1), NodeId(8)).unwrap();
        assert_eq!(three.copy(slot(1)), Some(CopyState { node: NodeId(8), standing: Standing::Outside }));
        assert_eq!((three.epoch, three.members()), (Epoch(4), Slots::from_bits(0b01)));
    }

    #[test]
    fn a_restarted_process_is_not_a_member() {
        let config = two();
        assert_eq!(config.standing(slot(1), Incarnation(4)), Standing::InSync(Incarnation(4)));
        assert_eq!(config.standing(slot(1), Incarnation(5)), Standing::Outside);
    }

    #[test]
    fn recovery_is_for_restarted_in_sync_copies_and_leaves_the_others_outside() {
        let config = two();
        assert_eq!(config.recover(slot(0), Incarnation(1)), Err(Refusal::NotRestarted));
        let recovered = config.recover(slot(0), Incarnation(2)).unwrap();
        assert_eq!(
            (recovered.in_sync(), recovered.configured()),
            (Slots::from_bits(1), Slots::from_bits(0b11))
        );
        assert_eq!(recovered.recover(slot(1), Incarnation(5)), Err(Refusal::Standing));
    }

    #[test]
    fn a_promoted_joiner_keeps_its_incarnation() {
        let alone = two().remove(slot(1)).unwrap();
        assert_eq!(alone.promote(slot(1)), Err(Refusal::Standing));
        let promoted = alone.admit(slot(1), Incarnation(5)).unwrap().promote(slot(1)).unwrap();
        assert_eq!((promoted.epoch, promoted.in_sync_incarnation(slot(1))), (Epoch(4), Some(Incarnation(5))));
    }
}
