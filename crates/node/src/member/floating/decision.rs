//! What a node does about a floating address, given what it sees. No state, no clock. What it has learned
//! over time is in [`super::watch`]; `docs/why/addresses.md` has the rules A1 to A9.

/// The holder of the address, by the cluster's record and by the heartbeats of that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// No node.
    Nobody,
    /// This node, in this life.
    Me,
    /// This node, in an earlier life.
    Former,
    /// Another node, whose heartbeats arrive, or did a moment ago.
    Heard,
    /// Another node, silent to all nodes for so long that others may claim its place; or one that has been
    /// heard in a later life, or that has said repeatedly that it does not have the address.
    Silent,
    /// Unknown: the record's entry was written by a later version, and this version cannot read it.
    Unreadable,
    /// A life of another node that is certainly over: its watcher has reported so, after it removed the
    /// address or tried to.
    Over,
}

/// Whether the address is on a device of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// This life has not looked yet; an earlier life may have left the address there.
    Unknown,
    /// It is not.
    Off,
    /// It is.
    On,
}

/// What a node sees of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The holder.
    pub(super) holder: Holder,
    /// Whether the address is on a device of this machine.
    pub(super) device: Device,
    /// The address is in the record, and not removed.
    pub(super) wanted: bool,
    /// This node may hold the address: it is one of the named nodes, serves, is not in maintenance, is not
    /// stopping, and could set the address when it last tried.
    pub(super) may: bool,
    /// The record has recently confirmed that this life holds the address.
    pub(super) confirmed: bool,
    /// A previous holder has removed the address by now.
    pub(super) waited: bool,
    /// The holder in the record is waiting for its predecessor, or was when it was last heard: the
    /// predecessor may still have the address.
    pub(super) unsure: bool,
    /// Sessions through the address have ended here, with all of their commands. Initiators may then send
    /// these commands again through another node.
    pub(super) quiet: bool,
    /// The preferred node has asked this node for the address.
    pub(super) asked_for: bool,
    /// The address has no holder, and the preferred node is up and still has the right to take it first.
    pub(super) leaves_first: bool,
    /// This node is the preferred one, has been up for long enough to ask for the address, and could set it
    /// when it last tried.
    pub(super) settled: bool,
    /// This node has already asked for the address.
    pub(super) asked: bool,
}

/// The next step of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// Set the address, or renew its lifetime there.
    PutOn,
    /// Remove the address, if it is there.
    TakeOff,
    /// Record that this life no longer holds the address, which is already removed.
    GiveUp,
    /// Record that this life holds the address. `unsure`: a previous holder may have it for a while yet.
    Claim { unsure: bool },
    /// Record that the preferred node asks for the address.
    Ask,
}

/// The next step.
///
/// The address is removed before the record allows another node to hold it, and set only while the record
/// says that this life holds it.
pub(super) fn next_step(seen: &Seen) -> Step {
    let keeps = seen.holder == Holder::Me && seen.wanted && seen.may && !seen.asked_for;
    match (keeps && seen.confirmed && seen.waited, seen.device) {
        (true, _) => return Step::PutOn,
        (false, Device::On | Device::Unknown) => return Step::TakeOff,
        (false, Device::Off) => {}
    }
    let may_claim = seen.wanted && seen.may;
    match seen.holder {
        // It waits for the record, for its predecessor, or for its commands; the next holder would not know
        // of the last two.
        Holder::Me if keeps || !seen.waited || !seen.quiet => Step::Nothing,
        Holder::Me => Step::GiveUp,
        Holder::Former if !may_claim && !seen.unsure => Step::GiveUp,
        Holder::Nobody if may_claim && !seen.leaves_first => Step::Claim { unsure: false },
        Holder::Former | Holder::Over if may_claim => Step::Claim { unsure: seen.unsure },
        Holder::Silent if may_claim => Step::Claim { unsure: true },
        Holder::Heard if may_claim && seen.settled && !seen.asked => Step::Ask,
        _ => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Seen = Seen {
        holder: Holder::Nobody,
        device: Device::Off,
        wanted: true,
        may: true,
        confirmed: false,
        waited: true,
        unsure: false,
        quiet: true,
        asked_for: false,
        leaves_first: false,
        settled: false,
        asked: false,
    };
    const HELD: Seen = Seen { holder: Holder::Me, device: Device::On, confirmed: true, ..FREE };

    #[test]
    fn an_eligible_node_takes_an_unheld_address() {
        use Holder::{Former, Heard, Nobody, Over, Silent};
        let sure = Step::Claim { unsure: false };
        for (holder, step) in [
            (Nobody, sure),
            (Former, sure),
            (Over, sure),
            (Silent, Step::Claim { unsure: true }),
            (Heard, Step::Nothing),
        ] {
            let seen = Seen { holder, ..FREE };
            assert_eq!(next_step(&seen), step, "{holder:?}");
            let barred = [Seen { may: false, ..seen }, Seen { wanted: false, ..seen }];
            let other = if holder == Former { Step::GiveUp } else { Step::Nothing };
            assert_eq!(barred.map(|seen| next_step(&seen)), [other; 2], "{holder:?}");
        }
        assert_eq!(next_step(&Seen { leaves_first: true, ..FREE }), Step::Nothing);
        let died_waiting = Seen { holder: Holder::Over, unsure: true, ..FREE };
        assert_eq!(next_step(&died_waiting), Step::Claim { unsure: true }, "its predecessor may have it yet");
    }

    #[test]
    fn entries_of_a_later_version_are_not_touched() {
        let seen = Seen { holder: Holder::Unreadable, settled: true, ..FREE };
        assert_eq!(next_step(&seen), Step::Nothing);
        assert_eq!(next_step(&Seen { wanted: false, ..seen }), Step::Nothing);
        assert_eq!(next_step(&Seen { device: Device::On, confirmed: true, ..seen }), Step::TakeOff);
    }

    #[test]
    fn an_earlier_life_may_have_left_it_there() {
        for holder in [Holder::Nobody, Holder::Former, Holder::Heard, Holder::Silent, Holder::Over] {
            let seen = Seen { holder, device: Device::Unknown, ..FREE };
            assert_eq!(next_step(&seen), Step::TakeOff, "{holder:?}");
        }
    }

    #[test]
    fn an_address_is_configured_only_while_the_record_says_so() {
        assert_eq!(next_step(&HELD), Step::PutOn, "it stays for longer");
        assert_eq!(next_step(&Seen { device: Device::Off, ..HELD }), Step::PutOn);
        let lost = [
            Seen { confirmed: false, ..HELD },
            Seen { holder: Holder::Heard, ..HELD },
            Seen { holder: Holder::Nobody, ..HELD },
            Seen { may: false, ..HELD },
            Seen { wanted: false, ..HELD },
            Seen { asked_for: true, ..HELD },
            Seen { waited: false, ..HELD },
        ];
        for seen in lost {
            assert_eq!(next_step(&seen), Step::TakeOff, "{seen:?}");
        }
    }

    #[test]
    fn an_address_is_released_only_once_it_is_off_the_device() {
        let off = Seen { device: Device::Off, ..HELD };
        assert_eq!(next_step(&Seen { may: false, ..off }), Step::GiveUp);
        assert_eq!(next_step(&Seen { wanted: false, ..off }), Step::GiveUp);
        assert_eq!(next_step(&Seen { asked_for: true, ..off }), Step::GiveUp);
        assert_eq!(next_step(&Seen { confirmed: false, ..off }), Step::Nothing, "the record may be back");
        let busy = Seen { may: false, quiet: false, ..off };
        assert_eq!(next_step(&busy), Step::Nothing, "a command may be at a disk");
        let waits = Seen { waited: false, unsure: true, ..off };
        assert_eq!(next_step(&waits), Step::Nothing, "its predecessor may have it");
        assert_eq!(
            next_step(&Seen { may: false, ..waits }),
            Step::Nothing,
            "the next one would not know that"
        );
    }

    #[test]
    fn the_preferred_node_asks_once_and_takes_nothing_unasked() {
        let settled = Seen { holder: Holder::Heard, settled: true, ..FREE };
        assert_eq!(next_step(&settled), Step::Ask);
        assert_eq!(next_step(&Seen { asked: true, ..settled }), Step::Nothing);
        assert_eq!(next_step(&Seen { may: false, ..settled }), Step::Nothing);
    }
}
