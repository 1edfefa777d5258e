//! What a node has learned about a floating address over time, and what it asks next. No I/O: what the node
//! sees, answers and time go in; questions and what the node decides by ([`Seen`]) come out.
//!
//! The driver is [`super::holding`]. The rules A1 to A9 and the reasons for them are in
//! `docs/why/addresses.md`.

use std::time::Duration;

use base::Instant;

use super::absence::Whereabouts;
use super::decision::{Device, Holder, Seen};
use super::{
    AFTER_FAILURE, AFTER_LOSS, ASK_HOLDER_EVERY, CONFIRM_EVERY, DOUBT_AFTER, HOLD_LENGTH, LEFT_FIRST,
    LET_GO_MIN, Life, PREDECESSOR_LENGTH, PREFERRED_AFTER, REACHED_MIN, SILENCE_LENGTH,
};

#[cfg(test)]
mod tests;

/// The holder of an address in the record, and what this node knows of it at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The node, in its life.
    pub(super) life: Life,
    /// It waits for its predecessor, or did when it was last heard.
    pub(super) unsure: bool,
    /// The life of the preferred node that asks for the address.
    pub(super) asked_by: Option<Life>,
    /// For how long nothing was heard from the node; `None`: it was heard just now.
    pub(super) silence: Option<Duration>,
    /// Other nodes that this one hears reach the node.
    pub(super) reached_by_others: bool,
    /// The life in which the node was last heard.
    pub(super) heard_in: Option<u64>,
    /// This life of the node is certainly over.
    pub(super) dead: bool,
}

/// What a node sees of an address besides its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scene {
    /// The record's entry about the holder cannot be read by this version.
    pub(super) unreadable: bool,
    /// The address is in the record, and not removed.
    pub(super) wanted: bool,
    /// This node is one of the named nodes, serves, is not in maintenance, and is not stopping.
    pub(super) may: bool,
    /// Whether the address is on a device of this machine.
    pub(super) device: Device,
    /// Sessions through the address have ended here, with all of their commands.
    pub(super) quiet: bool,
    /// This node is the preferred one.
    pub(super) preferred: bool,
    /// Another node is the preferred one; it is up, and not in maintenance.
    pub(super) prefers_another: bool,
    /// Another node that is up, and not in maintenance, has asked the holder for the address.
    pub(super) asked_for: bool,
}

/// What a node has learned about an address over time.
#[derive(Debug)]
pub(super) struct Watch {
    me: Life,
    began: Instant,
    /// When the last request was sent to which the record confirmed this life as the holder.
    confirmed: Option<Instant>,
    /// The holder that was last asked whether it has the address, when, and how often in a row it has said
    /// no.
    holder_asked: Option<(Life, Instant)>,
    let_go: u32,
    /// The holder's last answer; `None`: no answer.
    holder_says: Option<bool>,
    /// Since when the record has answered every request while the holder is in doubt, and when it was last
    /// asked.
    reached: Option<Instant>,
    record_asked: Option<Instant>,
    /// When a previous holder that was silent has removed the address.
    sure_at: Option<Instant>,
    /// When another node took over from this life, which had not given the address up.
    lost: Option<Instant>,
    /// At the last look this life held the address, and was not about to give it up.
    had: bool,
    /// Since when the address has no holder.
    free_since: Option<Instant>,
    /// When setting the address failed, unless it has succeeded since.
    failed: Option<Instant>,
}

impl Watch {
    /// This life of a node begins to attend to an address.
    pub(super) fn new(me: Life, now: Instant) -> Watch {
        Watch {
            me,
            began: now,
            confirmed: None,
            holder_asked: None,
            let_go: 0,
            holder_says: None,
            reached: None,
            record_asked: None,
            sure_at: None,
            lost: None,
            had: false,
            free_since: None,
            failed: None,
        }
    }

    /// How much longer the address may stay on the device, by the record's last confirmation (A1).
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.confirmed.map_or(Duration::ZERO, |asked| HOLD_LENGTH.saturating_sub(now.since(asked)))
    }

    /// When the last request was sent to which the record confirmed this life as the holder.
    pub(super) fn confirmed(&self) -> Option<Instant> {
        self.confirmed
    }

    /// Whether to ask the record now if this life still holds the address (A1), and how long to wait for the
    /// answer: the node's own view of the record may be out of date.
    ///
    /// The answer goes to [`Watch::handle_confirmation`].
    pub(super) fn confirms(
        &mut self,
        now: Instant,
        holder: Option<&Known>,
        device: Device,
    ) -> Option<Duration> {
        let is_holder = holder.is_some_and(|holder| holder.life == self.me);
        if !is_holder {
            self.confirmed = None;
            return None;
        }
        let left = self.left(now);
        // An address whose time has run out is removed first.
        let runs_out = left.is_zero() && device == Device::On;
        if runs_out || self.confirmed.is_some_and(|asked| now.since(asked) < CONFIRM_EVERY) {
            return None;
        }
        Some(if left.is_zero() { CONFIRM_EVERY } else { left.min(CONFIRM_EVERY) })
    }

    /// The record has answered whether this life is the holder. No answer changes nothing.
    pub(super) fn handle_confirmation(&mut self, asked: Instant, is_holder: bool) {
        self.confirmed = is_holder.then_some(asked);
    }

    /// Whether to ask another node that holds the address whether it has it (A5). The answer, or that there
    /// was none, goes to [`Watch::handle_holder`].
    ///
    /// A holder that does not reach the record has no other way to let others know that it has removed the
    /// address.
    pub(super) fn asks_holder(&mut self, now: Instant, holder: Option<&Known>) -> bool {
        let other = holder.filter(|holder| holder.life.node != self.me.node);
        // A holder that waits for its predecessor will have the address soon.
        let Some(holder) = other.filter(|holder| !holder.unsure && holder.silence.is_none()) else {
            (self.holder_asked, self.let_go, self.holder_says) = (None, 0, None);
            return false;
        };
        match self.holder_asked {
            Some((asked, at)) if asked == holder.life && now.since(at) < ASK_HOLDER_EVERY => return false,
            Some((asked, _)) if asked == holder.life => {}
            _ => (self.let_go, self.holder_says) = (0, None),
        }
        self.holder_asked = Some((holder.life, now));
        true
    }

    /// The holder says whether it has the address. If it does not answer, nothing is known; its silence will
    /// show.
    pub(super) fn handle_holder(&mut self, says: Option<bool>) {
        self.holder_says = says;
        self.let_go = if says == Some(false) { self.let_go + 1 } else { 0 };
    }

    /// Whether to check now if this node reaches the record, because the holder is in doubt (A5). The result
    /// goes to [`Watch::handle_record`].
    pub(super) fn looks_at_record(&mut self, now: Instant, holder: Option<&Known>) -> bool {
        if !holder.is_some_and(|holder| self.is_in_doubt(holder)) {
            (self.reached, self.record_asked) = (None, None);
            return false;
        }
        if self.record_asked.is_some_and(|at| now.since(at) < DOUBT_AFTER) {
            return false;
        }
        self.record_asked = Some(now);
        true
    }

    /// The record has answered a request that was sent at this time, or has not.
    pub(super) fn handle_record(&mut self, asked: Instant, answered: bool) {
        if answered {
            self.reached = self.reached.or(Some(asked));
        } else {
            // What the holder has said meanwhile may only be so because no node reaches the record.
            (self.reached, self.let_go) = (None, 0);
        }
    }

    /// This machine has set the address, or could not.
    pub(super) fn handle_put_on(&mut self, began: Instant, done: bool) {
        self.failed = (!done).then_some(began);
    }

    /// What the node decides by.
    pub(super) fn look(&mut self, now: Instant, holder: Option<&Known>, scene: &Scene) -> Seen {
        if self.had && holder.is_some_and(|holder| holder.life.node != self.me.node) {
            self.lost = Some(now);
        }
        let standing = self.standing(now, holder, scene.unreadable);
        self.free_since = match standing {
            Holder::Nobody => self.free_since.or(Some(now)),
            _ => None,
        };
        let unsure = holder.is_some_and(|holder| holder.unsure);
        self.sure_at = match standing {
            Holder::Me if unsure => self.sure_at.or(Some(now + PREDECESSOR_LENGTH)),
            _ => None,
        };
        let is_free = self.free_since.is_some_and(|since| now.since(since) < LEFT_FIRST);
        let seen = Seen {
            holder: standing,
            device: scene.device,
            wanted: scene.wanted,
            may: scene.may && self.failed.is_none_or(|at| now.since(at) >= AFTER_FAILURE),
            confirmed: !self.left(now).is_zero(),
            waited: self.sure_at.is_none_or(|at| at <= now),
            unsure,
            quiet: scene.quiet,
            asked_for: scene.asked_for,
            leaves_first: is_free && scene.prefers_another,
            settled: scene.preferred && now.since(self.began) >= PREFERRED_AFTER && self.failed.is_none(),
            asked: holder.is_some_and(|holder| holder.asked_by == Some(self.me)),
        };
        self.had = seen.holder == Holder::Me && seen.wanted && seen.may && !seen.asked_for;
        seen
    }

    /// Where the address is, as far as this node can know. `is_reached`: this machine has confirmed that the
    /// address is here. `nodes_vote`: the record is not in an etcd.
    pub(super) fn whereabouts(&self, seen: &Seen, is_reached: bool, nodes_vote: bool) -> Whereabouts {
        let of = |has: bool| if has { Whereabouts::Held } else { Whereabouts::Nobody };
        match seen.holder {
            Holder::Me if !seen.confirmed => Whereabouts::Unknown,
            Holder::Me => of(is_reached),
            Holder::Unreadable => Whereabouts::Unknown,
            // With etcd, the holder may still reach the record. If the nodes vote, those that reach the
            // record hear each other.
            Holder::Silent if !nodes_vote => Whereabouts::Unknown,
            Holder::Nobody | Holder::Former | Holder::Over | Holder::Silent => Whereabouts::Nobody,
            Holder::Heard if seen.unsure => Whereabouts::Nobody,
            Holder::Heard => self.holder_says.map_or(Whereabouts::Unknown, of),
        }
    }

    fn standing(&self, now: Instant, holder: Option<&Known>, unreadable: bool) -> Holder {
        let Some(holder) = holder else {
            return if unreadable { Holder::Unreadable } else { Holder::Nobody };
        };
        if holder.life == self.me {
            return Holder::Me;
        }
        if holder.life.node == self.me.node {
            return Holder::Former;
        }
        if holder.dead {
            return Holder::Over;
        }
        let has_let_go = self.let_go >= LET_GO_MIN;
        let reached = self.reached.is_some_and(|since| now.since(since) >= REACHED_MIN);
        if reached && (self.is_silent(now, holder) || is_in_later_life(holder) || has_let_go) {
            Holder::Silent
        } else {
            Holder::Heard
        }
    }

    fn is_in_doubt(&self, holder: &Known) -> bool {
        let is_silent = holder.silence.is_some_and(|silence| silence >= DOUBT_AFTER);
        holder.life.node != self.me.node && (is_silent || is_in_later_life(holder) || self.let_go > 0)
    }

    /// Whether the holder's node is silent, and not only cut off from this node (A6).
    fn is_silent(&self, now: Instant, holder: &Known) -> bool {
        let Some(silence) = holder.silence else { return false };
        // It took the address because this node was silent to it. Two nodes that do not hear each other would
        // otherwise take it from each other forever, and no node would have it.
        let lost = self.lost.map(|lost| now.since(lost)).filter(|since| *since < AFTER_LOSS);
        let is_heard_since = lost.is_none_or(|since| silence < since);
        silence >= SILENCE_LENGTH && is_heard_since && !holder.reached_by_others
    }
}

fn is_in_later_life(holder: &Known) -> bool {
    holder.heard_in.is_some_and(|heard| heard > holder.life.incarnation)
}
