//! Lets this node hold addresses as [`super::decision`] decides: one task per address, on core 0.
//! [`standing`] asks and looks for what [`super::watch`] wants to know, [`device`] executes the decision.

mod device;
mod standing;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use cluster::Revision;
use replica::{Incarnation, NodeId};
use rt::Task;

use self::device::Trouble;
use super::absence::Absence;
use super::decision::{Device, Step, next_step};
use super::watch::Watch;
use super::{
    ADDRESSES, AddressEntry, AddressOn, GIVE_UP_DEADLINE, HOLDERS, HolderEntry, Life, address_key, holder_key,
};
use crate::control::Control;
use crate::member::{Reconciler, json};
use crate::shard::Shard;

/// How often to look for addresses without a task, in case the record did not notify of them.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How often to decide about an address.
const TURN: Duration = Duration::from_millis(100);

impl Control {
    /// Attends to the addresses in the cluster's record, until the node stops.
    pub(crate) async fn hold_addresses(self: Rc<Control>, reconciler: Rc<Reconciler>) {
        while !reconciler.is_stopping() {
            for address in self.unattended(&reconciler) {
                self.floating().begin(address);
                rt::spawn(Holding::new(Rc::clone(&self), Rc::clone(&reconciler), address).run()).detach();
            }
            // The record notifies of new addresses.
            reconciler.until(LOOK_EVERY, || !self.unattended(&reconciler).is_empty()).await;
        }
    }

    /// Addresses in the record that concern this node and have no task yet.
    fn unattended(&self, reconciler: &Reconciler) -> BTreeSet<IpAddr> {
        let known = reconciler.list::<AddressEntry>(ADDRESSES).into_iter().map(|entry| entry.address);
        let own =
            reconciler.list::<HolderEntry>(HOLDERS).into_iter().filter(|one| one.node == reconciler.me().0);
        let all = known.chain(own.map(|holder| holder.address));
        all.filter(|address| !self.floating().looks_after(*address)).collect()
    }

    /// Gives up all addresses, because the node is about to stop.
    ///
    /// This cuts off the sessions through them. It takes at most [`GIVE_UP_DEADLINE`].
    pub(crate) async fn give_up_addresses(&self) {
        let Ok(reconciler) = self.reconciler() else { return };
        let floating = self.floating();
        floating.leave();
        let holds = |holder: &HolderEntry| {
            (NodeId(holder.node), Incarnation(holder.incarnation))
                == (reconciler.me(), reconciler.incarnation())
        };
        let over =
            || floating.all_on().is_empty() && !reconciler.list::<HolderEntry>(HOLDERS).iter().any(holds);
        let until = rt::now() + GIVE_UP_DEADLINE;
        while !over() && rt::now() < until {
            let _ = rt::timeout(TURN, floating.changed()).await;
        }
        if !over() {
            tracing::warn!("not all floating IPs were released in time: other nodes wait until they are off");
        }
    }
}

/// The task that attends to one address.
struct Holding {
    control: Rc<Control>,
    reconciler: Rc<Reconciler>,
    address: IpAddr,
    began: Instant,
    device: Device,
    /// The device on which the address was last set.
    on: Option<AddressOn>,
    /// When it was last set or renewed.
    put_on: Option<Instant>,
    /// How often it was announced to the neighbors since it is here.
    announced: u32,
    /// Listeners at the address, if no portal on all addresses covers it. Dropping them stops them.
    listeners: Vec<Task<()>>,
    /// Sessions through the address that have not ended: their commands may be at a disk.
    ending: BTreeSet<u16>,
    /// Since when only these sessions keep other nodes from holding the address.
    waits_for_end: Option<Instant>,
    /// The kind of trouble that is shown, if any.
    trouble: Option<Trouble>,
    /// What the node has learned about the address.
    watch: Watch,
    /// Since when no node has the address, as far as this node can know.
    absence: Absence,
    /// The revision of a holder entry that this version cannot read.
    unreadable: Option<Revision>,
}

/// The holder in the record, as far as this node has followed it, and the revision of that entry.
type Held = Option<(HolderEntry, Revision)>;

impl Holding {
    fn new(control: Rc<Control>, reconciler: Rc<Reconciler>, address: IpAddr) -> Holding {
        let (me, began) = (life_of(&reconciler), rt::now());
        Holding {
            control,
            reconciler,
            address,
            began,
            device: Device::Unknown,
            on: None,
            put_on: None,
            announced: 0,
            listeners: Vec::new(),
            ending: BTreeSet::new(),
            waits_for_end: None,
            trouble: None,
            watch: Watch::new(me, began),
            absence: Absence::default(),
            unreadable: None,
        }
    }

    async fn run(mut self) {
        while !self.reconciler.is_stopping() {
            let known = self.reconciler.get::<AddressEntry>(&address_key(self.address));
            let held = self.held();
            let concerned = held.as_ref().is_some_and(|(holder, _)| holder.node == self.reconciler.me().0);
            if known.is_none() && !concerned && self.device == Device::Off {
                break;
            }
            let holder = held.as_ref().map(|(holder, _)| holder);
            self.confirm(holder).await;
            self.ask_holder(holder).await;
            self.look_at_record(holder).await;
            let seen = self.look(known.as_ref().map(|(entry, _)| entry), holder);
            self.note_end(rt::now(), &seen);
            if let Some((entry, revision)) = &known {
                self.note_absence(&seen, (entry, *revision), &held).await;
            }
            let entry = known.map(|(entry, _)| entry);
            match next_step(&seen) {
                Step::Nothing => {}
                Step::PutOn => self.put_on(entry, held).await,
                Step::TakeOff => self.take_off(entry).await,
                Step::GiveUp => self.give_up(held).await,
                Step::Claim { unsure } => self.claim(&held, unsure).await,
                Step::Ask => self.ask(held).await,
            }
            rt::sleep(TURN).await;
        }
        self.control.floating().end(self.address);
    }

    fn held(&mut self) -> Held {
        let key = holder_key(self.address);
        let revision = self.reconciler.revision_of(&key);
        if revision.is_some() && revision == self.unreadable {
            // This was already logged.
            return None;
        }
        let held: Held = self.reconciler.get(&key);
        self.unreadable = revision.filter(|_| held.is_none());
        held
    }

    fn life(&self) -> Life {
        life_of(&self.reconciler)
    }

    fn is_this_life(&self, holder: &HolderEntry) -> bool {
        self.life() == Life { node: holder.node, incarnation: holder.incarnation }
    }

    fn is_there(&self, node: u16) -> bool {
        self.reconciler.hears(NodeId(node)) && !self.reconciler.is_in_maintenance(NodeId(node))
    }

    /// The node that has asked for the address, if it is up.
    fn asker(&self, holder: &HolderEntry) -> Option<Life> {
        holder.asked_by.filter(|asker| asker.node != self.reconciler.me().0 && self.is_there(asker.node))
    }

    async fn claim(&self, held: &Held, unsure: bool) {
        let revision = held.as_ref().map(|(_, revision)| *revision);
        self.commit(revision, Some(self.entry_of(self.life(), unsure))).await;
    }

    async fn give_up(&self, held: Held) {
        let Some((holder, revision)) = held else { return };
        let next = self.asker(&holder).filter(|_| self.is_this_life(&holder));
        self.commit(Some(revision), next.map(|asker| self.entry_of(asker, false))).await;
    }

    /// The entry of a life that holds the address from now on.
    fn entry_of(&self, Life { node, incarnation }: Life, unsure: bool) -> HolderEntry {
        let since = (Shard::current().config().unix_now)();
        HolderEntry { address: self.address, node, incarnation, since, unsure, asked_by: None }
    }

    async fn ask(&self, held: Held) {
        let Some((holder, revision)) = held else { return };
        self.commit(Some(revision), Some(HolderEntry { asked_by: Some(self.life()), ..holder })).await;
    }

    /// Records the holder (`None`: no node), if the entry still has this revision (`None`: there is none).
    async fn commit(&self, revision: Option<Revision>, holder: Option<HolderEntry>) {
        let key = holder_key(self.address);
        let transaction = Reconciler::transaction().expect(&key, revision);
        let transaction = match holder {
            Some(holder) => transaction.put(&key, json(&holder)),
            None => transaction.delete(&key),
        };
        // Another node was first, or the record is unavailable: the next turn looks again.
        if let Err(error) = self.reconciler.commit(transaction).await {
            tracing::debug!(address = %self.address, %error, "the holder of the floating IP could not be changed");
        }
        self.control.floating().notify();
    }
}

/// This node, in this life.
fn life_of(reconciler: &Reconciler) -> Life {
    Life { node: reconciler.me().0, incarnation: reconciler.incarnation().0 }
}
