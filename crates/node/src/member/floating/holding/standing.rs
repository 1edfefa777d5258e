//! What this node knows of an address and its holder: by the record, by the holder's heartbeats, and by its
//! answers.

use cluster::Revision;
use replica::{Incarnation, NodeId};

use super::super::absence::{Absence, News};
use super::super::decision::Seen;
use super::super::emit_events::{absence_event, return_event};
use super::super::watch::{Known, Scene};
use super::super::{AddressEntry, CONFIRM_EVERY, HolderEntry, Life, holder_key};
use super::{Held, Holding};
use crate::copies::{Answer, Ask, NodeEntry, node_key};
use crate::events::tell;
use crate::shard::Shard;

impl Holding {
    /// Asks the record whether this life still holds the address, if it is time for that.
    pub(super) async fn confirm(&mut self, holder: Option<&HolderEntry>) {
        let now = rt::now();
        let holder = holder.map(|holder| self.known(holder));
        let Some(deadline) = self.watch.confirms(now, holder.as_ref(), self.device) else { return };
        let answer = self.reconciler.store().get(&holder_key(self.address), deadline);
        match rt::timeout(deadline, answer).await {
            Ok(Ok(value)) => {
                let holder = value.and_then(|value| serde_json::from_slice::<HolderEntry>(&value.value).ok());
                let is_mine = holder.is_some_and(|holder| self.is_this_life(&holder));
                self.watch.handle_confirmation(now, is_mine);
            }
            Ok(Err(error)) => {
                tracing::debug!(address = %self.address, %error, "the record does not say which node holds the floating IP")
            }
            Err(rt::Elapsed) => tracing::debug!(address = %self.address, "the record does not respond"),
        }
    }

    /// Asks another node that holds the address whether it has it, if it is time for that.
    pub(super) async fn ask_holder(&mut self, holder: Option<&HolderEntry>) {
        let known = holder.map(|holder| self.known(holder));
        if !self.watch.asks_holder(rt::now(), known.as_ref()) {
            return;
        }
        let Some(holder) = holder else { return };
        let ask = Ask::HasAddress { address: self.address };
        let says = match self.reconciler.ask_within(NodeId(holder.node), ask, CONFIRM_EVERY).await {
            Ok(Answer::Has(has)) => Some(has),
            _ => None,
        };
        self.watch.handle_holder(says);
    }

    /// Checks whether this node reaches the record, while the holder is in doubt.
    pub(super) async fn look_at_record(&mut self, holder: Option<&HolderEntry>) {
        let now = rt::now();
        let holder = holder.map(|holder| self.known(holder));
        if !self.watch.looks_at_record(now, holder.as_ref()) {
            return;
        }
        let answer = self.reconciler.store().get(&holder_key(self.address), CONFIRM_EVERY);
        let answered = matches!(rt::timeout(CONFIRM_EVERY, answer).await, Ok(Ok(_)));
        self.watch.handle_record(now, answered);
    }

    /// What the node decides by.
    pub(super) fn look(&mut self, entry: Option<&AddressEntry>, holder: Option<&HolderEntry>) -> Seen {
        let registry = self.control.registry();
        self.ending.retain(|tsih| registry.place(*tsih).is_some());
        self.control.floating().note_end(self.address, !self.ending.is_empty());
        let me = self.reconciler.me().0;
        let preferred = entry.and_then(|entry| entry.prefer);
        let scene = Scene {
            unreadable: self.unreadable.is_some(),
            wanted: entry.is_some(),
            may: entry.is_some_and(|entry| self.may(entry)),
            device: self.device,
            quiet: self.ending.is_empty(),
            preferred: preferred == Some(me),
            prefers_another: preferred.is_some_and(|node| node != me && self.is_there(node)),
            asked_for: holder.is_some_and(|holder| self.asker(holder).is_some()),
        };
        let holder = holder.map(|holder| self.known(holder));
        self.watch.look(rt::now(), holder.as_ref(), &scene)
    }

    fn known(&self, holder: &HolderEntry) -> Known {
        let (node, life) = (NodeId(holder.node), Incarnation(holder.incarnation));
        Known {
            life: Life { node: holder.node, incarnation: holder.incarnation },
            unsure: holder.unsure,
            asked_by: holder.asked_by,
            silence: self.reconciler.silence_of(node).map(|silence| silence.age),
            reached_by_others: !self.reconciler.reached_by(node).is_empty(),
            heard_in: self.reconciler.life_heard_of(node).map(|life| life.0),
            dead: self.reconciler.is_dead(node, life),
        }
    }

    /// Whether this node may hold the address, unless it could not set it.
    fn may(&self, entry: &AddressEntry) -> bool {
        let me = self.reconciler.me();
        let own = self.reconciler.get::<NodeEntry>(&node_key(me));
        (entry.nodes.is_empty() || entry.nodes.contains(&me.0))
            && own.is_some_and(|(own, _)| !own.witness)
            && !self.reconciler.is_in_maintenance(me)
            && !self.control.floating().is_leaving()
            // The node serves.
            && !Shard::current().portals().is_empty()
    }

    /// Reports that no node has had the address for long, and that a node has it again.
    ///
    /// `entry` is the address in the record, with its revision.
    pub(super) async fn note_absence(&mut self, seen: &Seen, entry: (&AddressEntry, Revision), held: &Held) {
        let (entry, revision) = entry;
        let is_reached = self.control.floating().here(self.address).is_reached;
        let whereabouts = self.watch.whereabouts(seen, is_reached, self.reconciler.nodes_vote());
        let mut news = self.absence.note(rt::now(), whereabouts);
        if news == Some(News::Lost) && !self.agrees_with_record(held).await {
            // This node's view is out of date.
            (self.absence, news) = (Absence::default(), None);
        }
        self.control.floating().note_lost(self.address, self.absence.lost_since());
        let event = match news {
            None => return,
            Some(News::Lost) => absence_event(&self.reconciler, entry),
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

    /// Whether the holder in the record is the one that this node knows.
    async fn agrees_with_record(&self, held: &Held) -> bool {
        let answer = self.reconciler.store().get(&holder_key(self.address), CONFIRM_EVERY);
        let by_record = match rt::timeout(CONFIRM_EVERY, answer).await {
            Ok(Ok(value)) => value.map(|value| value.revision),
            Ok(Err(_)) | Err(rt::Elapsed) => return false,
        };
        by_record == held.as_ref().map(|(_, revision)| *revision)
    }
}
