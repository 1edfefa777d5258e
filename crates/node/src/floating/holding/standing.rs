//! The state of the holder as far as this node can know: by the record, by the holder's heartbeats, and by
//! its own answers.

use std::time::Duration;

use base::Instant;
use cluster::Revision;
use replica::{Incarnation, NodeId};

use super::super::absence::{Absence, News, Whereabouts};
use super::super::decision::{Device, Holder, Seen};
use super::super::emit_events::{absence_event, return_event};
use super::super::{
    AFTER_LOSS, ASK_HOLDER_EVERY, AddressEntry, CONFIRM_EVERY, DOUBT_AFTER, HOLD_LENGTH, HolderEntry,
    LET_GO_MIN, Life, REACHED_MIN, SILENCE_LENGTH, holder_key,
};
use super::{Held, Holding};
use crate::copies::{Answer, Ask};
use crate::events::tell;

impl Holding {
    /// How much longer the address may stay on the device, by the record's last confirmation.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.confirmed.map_or(Duration::ZERO, |asked| HOLD_LENGTH.saturating_sub(now.since(asked)))
    }

    /// Asks the record whether this life still holds the address.
    ///
    /// The node's own view of the record may be out of date.
    pub(super) async fn confirm(&mut self, held: &Held) {
        let now = rt::now();
        if !held.as_ref().is_some_and(|(holder, _)| self.is_this_life(holder)) {
            self.confirmed = None;
            return;
        }
        let left = self.left(now);
        // An address whose time has run out is removed first.
        let runs_out = left.is_zero() && self.device == Device::On;
        if runs_out || self.confirmed.is_some_and(|asked| now.since(asked) < CONFIRM_EVERY) {
            return;
        }
        let deadline = if left.is_zero() { CONFIRM_EVERY } else { left.min(CONFIRM_EVERY) };
        let answer = self.keeper.store().get(&holder_key(self.address), deadline);
        match rt::timeout(deadline, answer).await {
            Ok(Ok(Some(value))) => {
                let holder = serde_json::from_slice::<HolderEntry>(&value.value);
                let is_mine = holder.is_ok_and(|holder| self.is_this_life(&holder));
                self.confirmed = is_mine.then_some(now);
            }
            Ok(Ok(None)) => self.confirmed = None,
            Ok(Err(error)) => {
                tracing::debug!(address = %self.address, %error, "the record does not say which node holds the floating IP")
            }
            Err(rt::Elapsed) => tracing::debug!(address = %self.address, "the record does not respond"),
        }
    }

    /// Asks another node that holds the address whether it has it.
    ///
    /// A holder that does not reach the record has no other way to let others know that it has removed the
    /// address.
    pub(super) async fn ask_holder(&mut self, holder: Option<&HolderEntry>) {
        let now = rt::now();
        let other = holder.filter(|holder| holder.node != self.keeper.me().0);
        // A holder that waits for its predecessor will have the address soon.
        let asked = other.filter(|holder| !holder.unsure && self.keeper.hears(NodeId(holder.node)));
        let Some(holder) = asked else {
            (self.holder_asked, self.let_go, self.holder_says) = (None, 0, None);
            return;
        };
        let life = Life { node: holder.node, incarnation: holder.incarnation };
        match self.holder_asked {
            Some((asked, at)) if asked == life && now.since(at) < ASK_HOLDER_EVERY => return,
            Some((asked, _)) if asked == life => {}
            _ => (self.let_go, self.holder_says) = (0, None),
        }
        self.holder_asked = Some((life, now));
        let ask = Ask::HasAddress { address: self.address };
        let answer = self.keeper.ask_within(NodeId(holder.node), ask, CONFIRM_EVERY).await;
        // If the holder does not answer, nothing is known; its silence will show.
        self.holder_says = match answer {
            Ok(Answer::Has(has)) => Some(has),
            _ => None,
        };
        self.let_go = if self.holder_says == Some(false) { self.let_go + 1 } else { 0 };
    }

    /// Checks whether this node reaches the record, while the holder is in doubt.
    pub(super) async fn look_at_record(&mut self, holder: Option<&HolderEntry>) {
        let now = rt::now();
        if !holder.is_some_and(|holder| self.is_in_doubt(holder)) {
            (self.reached, self.record_asked) = (None, None);
            return;
        }
        if self.record_asked.is_some_and(|at| now.since(at) < DOUBT_AFTER) {
            return;
        }
        self.record_asked = Some(now);
        let answer = self.keeper.store().get(&holder_key(self.address), CONFIRM_EVERY);
        match rt::timeout(CONFIRM_EVERY, answer).await {
            Ok(Ok(_)) => self.reached = self.reached.or(Some(now)),
            // What the holder has said meanwhile may only be so because no node reaches the record.
            Ok(Err(_)) | Err(rt::Elapsed) => (self.reached, self.let_go) = (None, 0),
        }
    }

    /// Reports that no node has had the address for long, and that a node has it again.
    ///
    /// `entry` is the address in the record, with its revision.
    pub(super) async fn note_absence(&mut self, seen: &Seen, entry: (&AddressEntry, Revision), held: &Held) {
        let (entry, revision) = entry;
        let whereabouts = self.whereabouts(seen);
        let mut news = self.absence.note(rt::now(), whereabouts);
        if news == Some(News::Lost) && !self.agrees_with_record(held).await {
            // This node's view is out of date.
            (self.absence, news) = (Absence::default(), None);
        }
        self.control.floating().note_lost(self.address, self.absence.lost_since());
        let event = match news {
            None => return,
            Some(News::Lost) => absence_event(&self.keeper, entry),
            Some(News::Returned) => {
                let Some((holder, _)) = held else { return };
                let names = self.control.node_names();
                let name = names.get(&holder.node).map_or("a node", String::as_str);
                return_event(self.address, name).of_node(holder.node)
            }
        };
        // All nodes report what they see; the revision shows that their events concern the same address.
        tell(event.of_revision(Some(revision.0)));
    }

    fn whereabouts(&self, seen: &Seen) -> Whereabouts {
        let of = |has: bool| if has { Whereabouts::Held } else { Whereabouts::Nobody };
        match seen.holder {
            Holder::Me if !seen.confirmed => Whereabouts::Unknown,
            Holder::Me => of(self.control.floating().here(self.address).is_reached),
            Holder::Unreadable => Whereabouts::Unknown,
            // With etcd, the holder may still reach the record. If the nodes vote, those that reach the
            // record hear each other.
            Holder::Silent if !self.keeper.nodes_vote() => Whereabouts::Unknown,
            Holder::Nobody | Holder::Former | Holder::Over | Holder::Silent => Whereabouts::Nobody,
            Holder::Heard if seen.unsure => Whereabouts::Nobody,
            Holder::Heard => self.holder_says.map_or(Whereabouts::Unknown, of),
        }
    }

    /// Whether the holder in the record is the one that this node knows.
    async fn agrees_with_record(&self, held: &Held) -> bool {
        let answer = self.keeper.store().get(&holder_key(self.address), CONFIRM_EVERY);
        let by_record = match rt::timeout(CONFIRM_EVERY, answer).await {
            Ok(Ok(value)) => value.map(|value| value.revision),
            Ok(Err(_)) | Err(rt::Elapsed) => return false,
        };
        by_record == held.as_ref().map(|(_, revision)| *revision)
    }

    fn is_in_doubt(&self, holder: &HolderEntry) -> bool {
        let node = NodeId(holder.node);
        let is_silent = || self.keeper.silence_of(node).is_some_and(|silence| silence.age >= DOUBT_AFTER);
        node != self.keeper.me() && (is_silent() || self.is_in_later_life(holder) || self.let_go > 0)
    }

    fn is_in_later_life(&self, holder: &HolderEntry) -> bool {
        let heard = self.keeper.life_heard_of(NodeId(holder.node));
        heard.is_some_and(|heard| heard > Incarnation(holder.incarnation))
    }

    pub(super) fn standing(&self, now: Instant, holder: Option<&HolderEntry>) -> Holder {
        let Some(holder) = holder else {
            return if self.unreadable.is_some() { Holder::Unreadable } else { Holder::Nobody };
        };
        if self.is_this_life(holder) {
            return Holder::Me;
        }
        let (node, life) = (NodeId(holder.node), Incarnation(holder.incarnation));
        if node == self.keeper.me() {
            return Holder::Former;
        }
        if self.keeper.is_dead(node, life) {
            return Holder::Over;
        }
        let is_silent = self.is_silent(now, node);
        let has_let_go = self.let_go >= LET_GO_MIN;
        let reached = self.reached.is_some_and(|since| now.since(since) >= REACHED_MIN);
        if reached && (is_silent || self.is_in_later_life(holder) || has_let_go) {
            Holder::Silent
        } else {
            Holder::Heard
        }
    }

    /// Whether a node is silent, and not only cut off from this node.
    fn is_silent(&self, now: Instant, node: NodeId) -> bool {
        let Some(silence) = self.keeper.silence_of(node) else { return false };
        // It took the address because this node was silent to it. Two nodes that do not hear each other would
        // otherwise take it from each other forever, and no node would have it.
        let lost = self.lost.map(|lost| now.since(lost)).filter(|since| *since < AFTER_LOSS);
        let is_heard_since = lost.is_none_or(|since| silence.age < since);
        silence.age >= SILENCE_LENGTH && is_heard_since && self.keeper.reached_by(node).is_empty()
    }
}
