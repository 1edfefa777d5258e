//! Sets the address on a device of this machine and removes it, together with its listeners, its portals on
//! all cores, and the sessions through it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use proto::iscsi::target_role::CloseReason;
use rt::Listener;

use super::super::decision::{Device, Holder, Seen};
use super::super::{
    AddressEntry, AddressOn, AddressWork, DeviceTrouble, HolderEntry, PREDECESSOR_LENGTH, RETURNED_LENGTH,
    may_have, portals_of,
};
use super::{Held, Holding, TURN};
use crate::events::code::FLOATING_IP_FAILED;
use crate::events::{Event, tell};
use crate::iscsi::portal;
use crate::shard::{FloatingPortal, Shard, on_all_cores};

/// How long the machine may take to set or remove an address. It normally takes milliseconds. If it hangs,
/// the address still expires with its lifetime.
const DEVICE_DEADLINE: Duration = Duration::from_secs(2);

/// The shortest lifetime with which an address is set: kernels count whole seconds, and the machine may take
/// most of one.
const SHORTEST: Duration = Duration::from_secs(2);

/// How long commands that came through the address may take to end before the node reports that they keep
/// other nodes from holding it.
const ENDING_LENGTH: Duration = Duration::from_secs(5);

/// How long a former listener may take to end.
const LISTEN_DEADLINE: Duration = Duration::from_secs(1);

const _: () = assert!(
    2 * DEVICE_DEADLINE.as_millis() + LISTEN_DEADLINE.as_millis() + TURN.as_millis()
        < RETURNED_LENGTH.as_millis(),
    "who tries to put it on and takes it off again is not taken for one that has it"
);

/// How often to announce a newly set address to the neighbors, once per second: an announcement may be lost,
/// and a predecessor's kernel may have spoken last.
const ANNOUNCEMENTS: u32 = 4;

/// What has failed or takes too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Setting the address.
    PutOn,
    /// Removing it.
    TakeOff,
    /// The end of commands that came through it.
    End,
}

impl Holding {
    pub(super) async fn put_on(&mut self, entry: Option<AddressEntry>, held: Held) {
        let now = rt::now();
        let (Some(entry), Some((holder, revision))) = (entry, held) else { return };
        let is_new = self.device != Device::On;
        // The machine already knows the lifetime, unless the record has confirmed the holder since.
        let is_told = !is_new && self.put_on >= self.watch.confirmed();
        if is_told || self.watch.left(now) < SHORTEST {
            return;
        }
        let on = AddressOn { address: self.address, prefix: entry.prefix, device: entry.device.clone() };
        // Whatever the result, the address may be there from now on.
        (self.device, self.on, self.put_on) = (Device::On, Some(on.clone()), Some(now));
        self.control.floating().change(self.address, |here| here.is_on = true);
        if is_new {
            // Before any initiator can use the address: through a portal on all addresses, a login would
            // otherwise get the node's own portal group, and initiators remember that.
            let (portals, _) = portals_of(self.address, &Shard::current().portals());
            show_portals(self.address, portals, entry.group).await;
        }
        let announce = self.announced < ANNOUNCEMENTS;
        let put_on = match self.watch.left(rt::now()) {
            lasts if lasts < SHORTEST => Err(DeviceTrouble::CoreSlow),
            lasts => self.work(AddressWork::PutOn { on, lasts, announce }).await,
        };
        let shown = match put_on {
            Ok(()) if is_new => self.listen_besides().await,
            done => done,
        };
        self.watch.handle_put_on(now, shown.is_ok());
        if let Err(trouble) = shown {
            return self.note_trouble(Trouble::PutOn, trouble);
        }
        self.announced = self.announced.saturating_add(1);
        if is_new {
            tracing::info!(address = %self.address, "this node holds the floating IP");
            self.control.floating().change(self.address, |here| here.is_reached = true);
        }
        self.end_trouble(&[Trouble::PutOn, Trouble::TakeOff, Trouble::End]);
        if holder.unsure {
            self.commit(Some(revision), Some(HolderEntry { unsure: false, ..holder })).await;
        }
    }

    /// Listens at the address, if no portal on all addresses covers it.
    async fn listen_besides(&mut self) -> Result<(), DeviceTrouble> {
        let own = Shard::current().portals();
        let (_, more) = portals_of(self.address, &own);
        for address in more {
            let listener = match listen(address).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && may_have(address, &own) => continue,
                listening => listening,
            };
            let listener =
                listener.map_err(|error| DeviceTrouble::Listen { address, errno: rt::errno(&error) })?;
            self.listeners.push(rt::spawn(portal::serve(listener, Rc::default())));
        }
        Ok(())
    }

    pub(super) async fn take_off(&mut self, entry: Option<AddressEntry>) {
        let now = rt::now();
        if self.device == Device::On {
            self.listeners.clear();
            // While the connections still work, so that initiators are informed and need no timeout.
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
                    // Sessions that came in between, through a portal on all addresses.
                    self.ending.extend(end_sessions_through(self.address).await);
                    tracing::info!(address = %self.address, "this node no longer holds the floating IP");
                }
                self.note_off().await;
                self.end_trouble(&[Trouble::TakeOff]);
            }
            Err(trouble) => {
                self.note_trouble(Trouble::TakeOff, trouble);
                // The kernel has removed it by now.
                if now.since(self.put_on.unwrap_or(self.began)) > PREDECESSOR_LENGTH {
                    self.note_off().await;
                }
            }
        }
    }

    async fn note_off(&mut self) {
        // Until now an initiator may have used the address, and needed its group.
        show_portals(self.address, Vec::new(), 0).await;
        (self.device, self.on, self.announced) = (Device::Off, None, 0);
        self.control.floating().change(self.address, |here| (here.is_on, here.is_reached) = (false, false));
    }

    async fn work(&self, work: AddressWork) -> Result<(), DeviceTrouble> {
        let done = Shard::current().config().devices.work(work);
        match rt::timeout(DEVICE_DEADLINE, done).await {
            Ok(done) => done,
            Err(rt::Elapsed) => Err(DeviceTrouble::SystemSilent),
        }
    }

    /// Reports commands that came through the address if, though it is removed, they alone keep other nodes
    /// from holding it.
    pub(super) fn note_end(&mut self, now: Instant, seen: &Seen) {
        let is_off = seen.holder == Holder::Me && seen.device == Device::Off;
        if !is_off || !seen.confirmed || !seen.waited || seen.quiet {
            self.waits_for_end = None;
            return self.end_trouble(&[Trouble::End]);
        }
        let since = *self.waits_for_end.get_or_insert(now);
        if now.since(since) >= ENDING_LENGTH {
            self.note_trouble(Trouble::End, DeviceTrouble::CommandsRunning);
        }
    }

    /// Clears the trouble if it is one of these.
    fn end_trouble(&mut self, of: &[Trouble]) {
        if self.trouble.is_some_and(|trouble| of.contains(&trouble)) {
            self.trouble = None;
            self.control.floating().change(self.address, |here| here.trouble = None);
        }
    }

    /// Reports, once, why setting, removing or giving up the address failed.
    fn note_trouble(&mut self, of: Trouble, trouble: DeviceTrouble) {
        self.trouble = Some(of);
        let floating = self.control.floating();
        if floating.here(self.address).trouble.as_ref() == Some(&trouble) {
            return;
        }
        tracing::error!(address = %self.address, %trouble, "the floating IP could not be added, removed or released");
        let text = format!("floating IP {} could not be added, removed or released: {trouble}", self.address);
        tell(Event::new(FLOATING_IP_FAILED, self.address.to_string(), text).of_node(self.reconciler.me().0));
        floating.change(self.address, |here| here.trouble = Some(trouble));
    }
}

/// Listens at an address. Waits for a former listener that may not have ended yet.
async fn listen(address: SocketAddr) -> io::Result<Listener> {
    let until = rt::now() + LISTEN_DEADLINE;
    loop {
        match Listener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && rt::now() < until => {
                rt::sleep(TURN).await
            }
            listening => return listening,
        }
    }
}

/// Sets the portals of the address on every core; an empty list means that it is not here.
async fn show_portals(address: IpAddr, portals: Vec<SocketAddr>, group: u16) {
    let portals: Vec<FloatingPortal> =
        portals.into_iter().map(|portal| FloatingPortal { portal, group }).collect();
    on_all_cores(move || async move { Shard::current().set_floating(address, portals) }).await;
}

/// Cuts off sessions with a connection to the address; returns their TSIHs.
async fn end_sessions_through(address: IpAddr) -> Vec<u16> {
    let ended = on_all_cores(move || async move {
        let mut sessions = Shard::current().sessions();
        sessions.retain(|session| session.comes_through(address));
        sessions.iter().for_each(|session| session.end(CloseReason::Reset));
        sessions.iter().map(|session| session.tsih()).collect::<Vec<u16>>()
    });
    ended.await.concat()
}
