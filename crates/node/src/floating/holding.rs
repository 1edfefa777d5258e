//! Has this node hold addresses, as [`super::decision`] says: a task an address, on core 0.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use cluster::Revision;
use proto::iscsi::target::CloseReason;
use replica::{Incarnation, NodeId};
use rt::{Listener, Task};

use super::decision::{Device, Holder, Seen, Step, next_step};
use super::{
    ADDRESSES, AFTER_FAILURE, AFTER_LOSS, ASK_HOLDER_EVERY, AddressEntry, AddressOn, AddressWork,
    CONFIRM_EVERY, DOUBT_AFTER, FloatingPortal, GIVE_UP_DEADLINE, HOLD_LENGTH, HOLDERS, HolderEntry,
    LEFT_FIRST, LET_GO_MIN, Life, PREDECESSOR_LENGTH, PREFERRED_AFTER, REACHED_MIN, SILENCE_LENGTH,
    address_key, holder_key, may_have, portals_of,
};
use crate::control::Control;
use crate::copies::{Answer, Ask, Keeper, NodeEntry, json, node_key};
use crate::events::code::ADDRESS_FAILED;
use crate::events::{Event, tell};
use crate::portal;
use crate::shard::{Shard, on_all_cores};

/// How often it is looked for addresses that nobody looks after, should the record not have told of them.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How often it is thought over what to do about one.
const TURN: Duration = Duration::from_millis(100);

/// How long the machine may take to put an address on, or to take it off. It takes milliseconds; what hangs ends with the address's own time.
const DEVICE_DEADLINE: Duration = Duration::from_secs(2);

/// What is left for an address when it is put on, at least: kernels count whole seconds, and the machine may take most of one.
const SHORTEST: Duration = Duration::from_secs(2);

/// How long commands that came through it may take to end until it is said that nobody has the address because of them.
const ENDING_LENGTH: Duration = Duration::from_secs(5);

/// What is said then.
const STILL_ENDING: &str = "commands that came through it are still at a disk of this node, and until they end no other node may have it: look whether a disk or a volume hangs (`ursa pool list`, `ursa volume list`, the kernel's log)";

/// How long a former listener may take to end.
const LISTEN_DEADLINE: Duration = Duration::from_secs(1);

/// How often neighbours are told where a new address is, once a second: one word may be lost, and a predecessor's kernel may have spoken last.
const ANNOUNCEMENTS: u32 = 4;

impl Control {
    /// Looks after the addresses of the cluster's record, until the node stops.
    pub(crate) async fn hold_addresses(self: Rc<Control>, keeper: Rc<Keeper>) {
        while !keeper.is_stopping() {
            for address in self.unattended(&keeper) {
                self.floating().begin(address);
                rt::spawn(Holding::new(Rc::clone(&self), Rc::clone(&keeper), address).run()).detach();
            }
            // The record tells when there is one more.
            keeper.until(LOOK_EVERY, || !self.unattended(&keeper).is_empty()).await;
        }
    }

    /// Addresses of the record that concern this node and that no task looks after yet.
    fn unattended(&self, keeper: &Keeper) -> BTreeSet<IpAddr> {
        let known = keeper.list::<AddressEntry>(ADDRESSES).into_iter().map(|entry| entry.address);
        let own = keeper.list::<HolderEntry>(HOLDERS).into_iter().filter(|one| one.node == keeper.me().0);
        let all = known.chain(own.map(|holder| holder.address));
        all.filter(|address| !self.floating().looks_after(*address)).collect()
    }

    /// Gives all addresses to others, for the node is about to stop; not for longer than [`GIVE_UP_DEADLINE`].
    pub(crate) async fn give_up_addresses(&self) {
        let Some(keeper) = self.keeper() else { return };
        let floating = self.floating();
        floating.leave();
        let holds = |holder: &HolderEntry| {
            (NodeId(holder.node), Incarnation(holder.incarnation)) == (keeper.me(), keeper.incarnation())
        };
        let over = || floating.all_on().is_empty() && !keeper.list::<HolderEntry>(HOLDERS).iter().any(holds);
        let until = rt::now() + GIVE_UP_DEADLINE;
        while !over() && rt::now() < until {
            let _ = rt::timeout(TURN, floating.changed()).await;
        }
        if !over() {
            tracing::warn!(
                "not all floating addresses could be given up in time: others wait until they are off"
            );
        }
    }
}

/// Looks after one address.
struct Holding {
    control: Rc<Control>,
    keeper: Rc<Keeper>,
    address: IpAddr,
    began: Instant,
    device: Device,
    /// Where it was put on last.
    on: Option<AddressOn>,
    /// When.
    put_on: Option<Instant>,
    /// How often neighbours were told since it is here.
    announced: u32,
    /// They listen at the address, where no portal on all addresses does; dropped, they do not.
    listeners: Vec<Task<()>>,
    /// Sessions that came through it and are not over yet: their commands may be at a disk.
    ending: BTreeSet<u16>,
    /// Since when another node could have it but for those.
    waits_for_end: Option<Instant>,
    /// Of what the trouble is that is shown, if there is any.
    trouble: Option<Trouble>,
    /// The holder that was asked last whether it has the address, when, and how often it has said no since it last said yes.
    holder_asked: Option<(Life, Instant)>,
    let_go: u32,
    /// Since when the record has answered each time, while the holder is in doubt, and when it was asked last.
    reached: Option<Instant>,
    record_asked: Option<Instant>,
    /// When the record was asked that has said last that this life holds it.
    confirmed: Option<Instant>,
    /// When whoever had it before has taken it off, if that was silent.
    sure_at: Option<Instant>,
    /// When another node has taken the place of this life, which had not given it up.
    lost: Option<Instant>,
    /// This life held it when it was looked last, and was not about to give it up.
    had: bool,
    /// Since when nobody holds it.
    free_since: Option<Instant>,
    /// When it could not be put on, if it never could since.
    failed: Option<Instant>,
}

/// What may be in trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// To put it on.
    PutOn,
    /// To take it off.
    TakeOff,
    /// The end of commands that came through it.
    End,
}

/// Who holds the address by the record, as this node has followed it, and the revision that says so.
type Held = Option<(HolderEntry, Revision)>;

impl Holding {
    fn new(control: Rc<Control>, keeper: Rc<Keeper>, address: IpAddr) -> Holding {
        Holding {
            control,
            keeper,
            address,
            began: rt::now(),
            device: Device::Unknown,
            on: None,
            put_on: None,
            announced: 0,
            listeners: Vec::new(),
            ending: BTreeSet::new(),
            waits_for_end: None,
            trouble: None,
            holder_asked: None,
            let_go: 0,
            reached: None,
            record_asked: None,
            confirmed: None,
            sure_at: None,
            lost: None,
            had: false,
            free_since: None,
            failed: None,
        }
    }

    async fn run(mut self) {
        while !self.keeper.is_stopping() {
            let entry = self.keeper.get::<AddressEntry>(&address_key(self.address)).map(|(entry, _)| entry);
            let held: Held = self.keeper.get(&holder_key(self.address));
            let concerned = held.as_ref().is_some_and(|(holder, _)| holder.node == self.keeper.me().0);
            if entry.is_none() && !concerned && self.device == Device::Off {
                break;
            }
            self.confirm(&held).await;
            self.ask_holder(held.as_ref().map(|(holder, _)| holder)).await;
            self.look_at_record(held.as_ref().map(|(holder, _)| holder)).await;
            let seen = self.look(rt::now(), entry.as_ref(), held.as_ref().map(|(holder, _)| holder));
            self.note_end(rt::now(), &seen);
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

    fn life(&self) -> Life {
        Life { node: self.keeper.me().0, incarnation: self.keeper.incarnation().0 }
    }

    fn is_this_life(&self, holder: &HolderEntry) -> bool {
        self.life() == Life { node: holder.node, incarnation: holder.incarnation }
    }

    /// For how long the address may stay, by what the record has said last.
    fn left(&self, now: Instant) -> Duration {
        self.confirmed.map_or(Duration::ZERO, |asked| HOLD_LENGTH.saturating_sub(now.since(asked)))
    }

    /// Asks the record whether this life holds the address still: not this node's picture of it, which may be behind.
    async fn confirm(&mut self, held: &Held) {
        let now = rt::now();
        if !held.as_ref().is_some_and(|(holder, _)| self.is_this_life(holder)) {
            self.confirmed = None;
            return;
        }
        let left = self.left(now);
        // What has run out comes off first.
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
                tracing::debug!(address = %self.address, %error, "the record does not say who holds it")
            }
            Err(rt::Elapsed) => tracing::debug!(address = %self.address, "the record does not answer"),
        }
    }

    /// Asks another node that holds the address whether it has it: one that does not reach the record can tell nobody else that it has taken it off.
    async fn ask_holder(&mut self, holder: Option<&HolderEntry>) {
        let now = rt::now();
        let other = holder.filter(|holder| holder.node != self.keeper.me().0);
        // One that waits for its predecessor has it in a moment.
        let asked = other.filter(|holder| !holder.unsure && self.keeper.hears(NodeId(holder.node)));
        let Some(holder) = asked else {
            (self.holder_asked, self.let_go) = (None, 0);
            return;
        };
        let life = Life { node: holder.node, incarnation: holder.incarnation };
        match self.holder_asked {
            Some((asked, at)) if asked == life && now.since(at) < ASK_HOLDER_EVERY => return,
            Some((asked, _)) if asked == life => {}
            _ => self.let_go = 0,
        }
        self.holder_asked = Some((life, now));
        let ask = Ask::HasAddress { address: self.address };
        let answer = self.keeper.ask_within(NodeId(holder.node), ask, CONFIRM_EVERY).await;
        // Of one that does not answer nothing is known: its silence will tell.
        self.let_go = if matches!(answer, Ok(Answer::Has(false))) { self.let_go + 1 } else { 0 };
    }

    /// Whether this node reaches the record, while it is in doubt about the holder.
    async fn look_at_record(&mut self, holder: Option<&HolderEntry>) {
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
            // What the holder has said meanwhile it may have said because nobody reaches the record.
            Ok(Err(_)) | Err(rt::Elapsed) => (self.reached, self.let_go) = (None, 0),
        }
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

    fn look(&mut self, now: Instant, entry: Option<&AddressEntry>, holder: Option<&HolderEntry>) -> Seen {
        if self.had && holder.is_some_and(|holder| holder.node != self.keeper.me().0) {
            self.lost = Some(now);
        }
        let standing = self.standing(now, holder);
        self.free_since = match standing {
            Holder::Nobody => self.free_since.or(Some(now)),
            _ => None,
        };
        let unsure = holder.is_some_and(|holder| holder.unsure);
        self.sure_at = match standing {
            Holder::Me if unsure => self.sure_at.or(Some(now + PREDECESSOR_LENGTH)),
            _ => None,
        };
        let registry = self.control.registry();
        self.ending.retain(|tsih| registry.place(*tsih).is_some());
        self.control.floating().note_end(self.address, !self.ending.is_empty());
        let me = self.keeper.me().0;
        let preferred = entry.and_then(|entry| entry.prefer);
        let is_free = self.free_since.is_some_and(|since| now.since(since) < LEFT_FIRST);
        let seen = Seen {
            holder: standing,
            device: self.device,
            wanted: entry.is_some(),
            may: entry.is_some_and(|entry| self.may(now, entry)),
            confirmed: !self.left(now).is_zero(),
            waited: self.sure_at.is_none_or(|at| at <= now),
            unsure,
            quiet: self.ending.is_empty(),
            asked_for: holder.is_some_and(|holder| self.asker(holder).is_some()),
            leaves_first: is_free && preferred.is_some_and(|node| node != me && self.is_there(node)),
            settled: preferred == Some(me)
                && now.since(self.began) >= PREFERRED_AFTER
                && self.failed.is_none(),
            asked: holder.is_some_and(|holder| holder.asked_by == Some(self.life())),
        };
        self.had = seen.holder == Holder::Me && seen.wanted && seen.may && !seen.asked_for;
        seen
    }

    fn standing(&self, now: Instant, holder: Option<&HolderEntry>) -> Holder {
        let Some(holder) = holder else { return Holder::Nobody };
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

    /// Whether a node is silent, and not cut off from this one alone.
    fn is_silent(&self, now: Instant, node: NodeId) -> bool {
        let Some(silence) = self.keeper.silence_of(node) else { return false };
        // It took the address because this node was silent to it: two that do not hear each other would take it from each other for ever, and nobody would have it.
        let lost = self.lost.map(|lost| now.since(lost)).filter(|since| *since < AFTER_LOSS);
        let is_heard_since = lost.is_none_or(|since| silence.age < since);
        silence.age >= SILENCE_LENGTH && is_heard_since && self.keeper.reached_by(node).is_empty()
    }

    /// Whether this node may have it.
    fn may(&self, now: Instant, entry: &AddressEntry) -> bool {
        let me = self.keeper.me();
        let own = self.keeper.get::<NodeEntry>(&node_key(me));
        (entry.nodes.is_empty() || entry.nodes.contains(&me.0))
            && own.is_some_and(|(own, _)| !own.witness)
            && !self.keeper.is_in_maintenance(me)
            && !self.control.floating().is_leaving()
            // It serves.
            && !Shard::current().portals().is_empty()
            && self.failed.is_none_or(|at| now.since(at) >= AFTER_FAILURE)
    }

    fn is_there(&self, node: u16) -> bool {
        self.keeper.hears(NodeId(node)) && !self.keeper.is_in_maintenance(NodeId(node))
    }

    /// The node that has asked for the address, if it is there.
    fn asker(&self, holder: &HolderEntry) -> Option<Life> {
        holder.asked_by.filter(|asker| asker.node != self.keeper.me().0 && self.is_there(asker.node))
    }

    async fn put_on(&mut self, entry: Option<AddressEntry>, held: Held) {
        let now = rt::now();
        let (Some(entry), Some((holder, revision))) = (entry, held) else { return };
        let is_new = self.device != Device::On;
        // The machine knows already for how long, as long as the record has not said it again.
        let is_told = !is_new && self.put_on >= self.confirmed;
        if is_told || self.left(now) < SHORTEST {
            return;
        }
        let on = AddressOn { address: self.address, prefix: entry.prefix, device: entry.device.clone() };
        // Whatever the answer is, it may be there from now on.
        (self.device, self.on, self.put_on) = (Device::On, Some(on.clone()), Some(now));
        self.control.floating().change(self.address, |here| here.is_on = true);
        if is_new {
            // Before anybody can come by it: where a portal is on all addresses, a login would be told the node's own group, and initiators remember that.
            let (portals, _) = portals_of(self.address, &Shard::current().portals());
            show_portals(self.address, portals, entry.group).await;
        }
        let announce = self.announced < ANNOUNCEMENTS;
        let put_on = match self.left(rt::now()) {
            lasts if lasts < SHORTEST => Err("a core of this node hesitates: it is too late now".to_owned()),
            lasts => self.work(AddressWork::PutOn { on, lasts, announce }).await,
        };
        let shown = match put_on {
            Ok(()) if is_new => self.listen_besides().await,
            done => done,
        };
        if let Err(trouble) = shown {
            self.failed = Some(now);
            return self.note_trouble(Trouble::PutOn, trouble);
        }
        self.failed = None;
        self.announced = self.announced.saturating_add(1);
        if is_new {
            tracing::info!(address = %self.address, "this node has the floating address");
        }
        self.end_trouble(&[Trouble::PutOn, Trouble::TakeOff, Trouble::End]);
        if holder.unsure {
            self.commit(revision, Some(HolderEntry { unsure: false, ..holder })).await;
        }
    }

    /// Listens at the address, where no portal on all addresses does.
    async fn listen_besides(&mut self) -> Result<(), String> {
        let own = Shard::current().portals();
        let (_, more) = portals_of(self.address, &own);
        for address in more {
            let listener = match listen(address).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && may_have(address, &own) => continue,
                listening => listening,
            };
            let listener =
                listener.map_err(|error| format!("cannot listen for iSCSI at {address}: {error}"))?;
            self.listeners.push(rt::spawn(portal::serve(listener, Rc::default())));
        }
        Ok(())
    }

    async fn take_off(&mut self, entry: Option<AddressEntry>) {
        let now = rt::now();
        if self.device == Device::On {
            self.listeners.clear();
            // While what they send still goes out: initiators need not find out by themselves.
            self.ending.extend(end_sessions_through(self.address).await);
        }
        let whole: u8 = if self.address.is_ipv4() { 32 } else { 128 };
        let on = self.on.clone().unwrap_or_else(|| AddressOn {
            address: self.address,
            prefix: entry.as_ref().map_or(whole, |entry| entry.prefix),
            device: entry.and_then(|entry| entry.device),
        });
        match self.work(AddressWork::TakeOff(on)).await {
            Ok(()) => {
                if self.device == Device::On {
                    // Who came in between, where a portal is on all addresses.
                    self.ending.extend(end_sessions_through(self.address).await);
                    tracing::info!(address = %self.address, "this node does not have the floating address any more");
                }
                self.note_off().await;
                self.end_trouble(&[Trouble::TakeOff]);
            }
            Err(trouble) => {
                self.note_trouble(Trouble::TakeOff, trouble);
                // The kernel has taken it off by now.
                if now.since(self.put_on.unwrap_or(self.began)) > PREDECESSOR_LENGTH {
                    self.note_off().await;
                }
            }
        }
    }

    async fn note_off(&mut self) {
        // Until now somebody may have come by it, and was to be told its group.
        show_portals(self.address, Vec::new(), 0).await;
        (self.device, self.on, self.announced) = (Device::Off, None, 0);
        self.control.floating().change(self.address, |here| here.is_on = false);
    }

    async fn work(&self, work: AddressWork) -> Result<(), String> {
        let done = Shard::current().config().devices.work(work);
        match rt::timeout(DEVICE_DEADLINE, done).await {
            Ok(done) => done,
            Err(rt::Elapsed) => Err("the machine has not answered for 2 seconds".to_owned()),
        }
    }

    /// Says so when it is off, and could be another node's but for commands that came through it.
    fn note_end(&mut self, now: Instant, seen: &Seen) {
        let is_off = seen.holder == Holder::Me && seen.device == Device::Off;
        if !is_off || !seen.confirmed || !seen.waited || seen.quiet {
            self.waits_for_end = None;
            return self.end_trouble(&[Trouble::End]);
        }
        let since = *self.waits_for_end.get_or_insert(now);
        if now.since(since) >= ENDING_LENGTH {
            self.note_trouble(Trouble::End, STILL_ENDING.to_owned());
        }
    }

    /// What of these was in trouble is not any more.
    fn end_trouble(&mut self, of: &[Trouble]) {
        if self.trouble.is_some_and(|trouble| of.contains(&trouble)) {
            self.trouble = None;
            self.control.floating().change(self.address, |here| here.trouble = None);
        }
    }

    /// Says why it could not be put on, taken off or given up, once.
    fn note_trouble(&mut self, of: Trouble, trouble: String) {
        self.trouble = Some(of);
        let floating = self.control.floating();
        if floating.here(self.address).trouble.as_ref() == Some(&trouble) {
            return;
        }
        tracing::error!(address = %self.address, trouble, "the floating address could not be put on, taken off or given up");
        let text = format!(
            "the floating address {} could not be put on, taken off or given up: {trouble}",
            self.address
        );
        tell(Event::new(ADDRESS_FAILED, self.address.to_string(), text).of_node(self.keeper.me().0));
        floating.change(self.address, |here| here.trouble = Some(trouble));
    }

    async fn claim(&self, held: &Held, unsure: bool) {
        let Life { node, incarnation } = self.life();
        let since = (Shard::current().config().unix_now)();
        let holder = HolderEntry { address: self.address, node, incarnation, since, unsure, asked_by: None };
        let key = holder_key(self.address);
        let transaction = Keeper::transaction().expect(&key, held.as_ref().map(|(_, revision)| *revision));
        self.commit_all(transaction.put(&key, json(&holder))).await;
    }

    async fn give_up(&self, held: Held) {
        let Some((holder, revision)) = held else { return };
        let since = (Shard::current().config().unix_now)();
        let next = self.asker(&holder).filter(|_| self.is_this_life(&holder)).map(|asker| HolderEntry {
            address: self.address,
            node: asker.node,
            incarnation: asker.incarnation,
            since,
            unsure: false,
            asked_by: None,
        });
        self.commit(revision, next).await;
    }

    async fn ask(&self, held: Held) {
        let Some((holder, revision)) = held else { return };
        self.commit(revision, Some(HolderEntry { asked_by: Some(self.life()), ..holder })).await;
    }

    /// Has the record say who holds it; `None`: nobody.
    async fn commit(&self, revision: Revision, holder: Option<HolderEntry>) {
        let key = holder_key(self.address);
        let transaction = Keeper::transaction().expect(&key, Some(revision));
        let transaction = match holder {
            Some(holder) => transaction.put(&key, json(&holder)),
            None => transaction.delete(&key),
        };
        self.commit_all(transaction).await;
    }

    async fn commit_all(&self, transaction: cluster::Transaction) {
        // Another one was first, or the record is away: the next turn looks again.
        if let Err(error) = self.keeper.commit(transaction).await {
            tracing::debug!(address = %self.address, %error, "who holds it could not be changed");
        }
        self.control.floating().notify();
    }
}

/// Listens at an address. A listener that was here a moment ago may not be gone yet.
async fn listen(address: SocketAddr) -> io::Result<Listener> {
    let until = rt::now() + LISTEN_DEADLINE;
    loop {
        match portal::listen(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && rt::now() < until => {
                rt::sleep(TURN).await
            }
            listening => return listening,
        }
    }
}

/// Has every core know at which portals of the address this node is reached: none.
async fn show_portals(address: IpAddr, portals: Vec<SocketAddr>, group: u16) {
    let portals: Vec<FloatingPortal> =
        portals.into_iter().map(|portal| FloatingPortal { portal, group }).collect();
    on_all_cores(move || {
        let portals = portals.clone();
        async move { Shard::current().set_floating(address, portals) }
    })
    .await;
}

/// Cuts off sessions with a connection to the address; gives their numbers.
async fn end_sessions_through(address: IpAddr) -> Vec<u16> {
    let ended = on_all_cores(move || async move {
        let mut sessions = Shard::current().sessions();
        sessions.retain(|session| session.comes_through(address));
        sessions.iter().for_each(|session| session.end(CloseReason::Reset));
        sessions.iter().map(|session| session.tsih()).collect::<Vec<u16>>()
    });
    ended.await.concat()
}
