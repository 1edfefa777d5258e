//! What a node does about a floating address, from what it sees. No state, no clock: `docs/why/addresses.md`
//! has the argument.

/// Who holds the address, by the cluster's record and by what is heard of that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Nobody.
    Nobody,
    /// This node, in this life.
    Me,
    /// This node, in an earlier life.
    Former,
    /// Another one, which is heard, or was a moment ago.
    Heard,
    /// Another one, of which nobody has heard for so long that others may ask for its place; or a later life
    /// of it is heard, or it says again and again that it has not got it.
    Silent,
    /// Whoever the record names in words of a later version, which this one cannot read.
    Unreadable,
    /// A life of another one that is over for certain: its watcher has said so, and has taken the address off
    /// before, or has tried to.
    Over,
}

/// Whether the address is on a device of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// This life has not looked yet: an earlier one may have left it there.
    Unknown,
    /// It is not.
    Off,
    /// It is.
    On,
}

/// What a node sees of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Who holds it.
    pub(super) holder: Holder,
    /// Whether it is here.
    pub(super) device: Device,
    /// The record has the address: nobody has removed it.
    pub(super) wanted: bool,
    /// This node may have it: it is one of those named, serves, is not in maintenance, does not stop, and
    /// could put it on when it last tried.
    pub(super) may: bool,
    /// The record has said lately that this life holds it.
    pub(super) confirmed: bool,
    /// Whoever may have had it before has taken it off by now.
    pub(super) waited: bool,
    /// Whoever holds it by the record waits itself, or has waited when it was last heard: the one before may
    /// still have it.
    pub(super) unsure: bool,
    /// Sessions through it have ended here, with the last of their commands: initiators may send these again
    /// through another node.
    pub(super) quiet: bool,
    /// The preferred node has asked this one for it.
    pub(super) asked_for: bool,
    /// It is free, and the preferred node is there and has not had its moment yet.
    pub(super) leaves_first: bool,
    /// This node is the preferred one, has been up for long enough to have it back, and could put it on when
    /// it last tried.
    pub(super) settled: bool,
    /// It has asked for it already.
    pub(super) asked: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// Put it on, or have it stay there for longer.
    PutOn,
    /// Take it off, if it is there.
    TakeOff,
    /// Have the record say that this life holds it no more; it is off.
    GiveUp,
    /// Have the record say that this life holds it. `unsure`: whoever had it before may have it for a while
    /// yet.
    Claim { unsure: bool },
    /// Have the record say that the preferred node wants it back.
    Ask,
}

/// The next step. The address is taken off before the record says that somebody else may have it, and put on
/// only while the record says that this life holds it.
pub(super) fn next_step(seen: &Seen) -> Step {
    let keeps = seen.holder == Holder::Me && seen.wanted && seen.may && !seen.asked_for;
    match (keeps && seen.confirmed && seen.waited, seen.device) {
        (true, _) => return Step::PutOn,
        (false, Device::On | Device::Unknown) => return Step::TakeOff,
        (false, Device::Off) => {}
    }
    let may_claim = seen.wanted && seen.may;
    match seen.holder {
        // It waits for the record; or for its predecessor or its commands, and who comes after it would not
        // know that.
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
    fn who_may_takes_what_nobody_has() {
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
    fn what_a_later_version_says_is_left_alone() {
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
    fn it_is_on_only_while_the_record_says_so() {
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
    fn it_is_given_up_only_when_it_is_off() {
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
    fn the_preferred_node_asks_once_and_takes_nothing_by_itself() {
        let settled = Seen { holder: Holder::Heard, settled: true, ..FREE };
        assert_eq!(next_step(&settled), Step::Ask);
        assert_eq!(next_step(&Seen { asked: true, ..settled }), Step::Nothing);
        assert_eq!(next_step(&Seen { may: false, ..settled }), Step::Nothing);
    }
}
