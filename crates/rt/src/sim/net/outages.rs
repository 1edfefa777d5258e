//! What scenarios and machines do to the network.

use std::net::IpAddr;
use std::time::Duration;

use super::connection::{Side, State};
use super::links::NetProfile;
use super::network::{Net, NetDue};
use crate::sim::ledger::{Due, Ledger};
use crate::sim::log::Event;
use crate::sim::node::NodeId;

/// The range of the interval between retransmissions, which doubles from the first to the second of these.
const RETRY_NANOS: (u64, u64) = (200_000_000, 120_000_000_000);

impl Net {
    /// Breaks all connections between two nodes; returns how many there were.
    pub(in crate::sim) fn break_between(&mut self, a: NodeId, b: NodeId, ledger: &mut Ledger) -> usize {
        let between: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                let (client, server) = (&connection.ends.client, &connection.ends.server);
                connection.established
                    && (client.is_on(a) && server.is_on(b) || client.is_on(b) && server.is_on(a))
            })
            .map(|(id, _)| *id)
            .collect();
        between.iter().for_each(|id| self.break_connection(*id, ledger));
        between.len()
    }

    pub(in crate::sim) fn set_profile(&mut self, profile: NetProfile) {
        assert!(profile.window.start > 0, "a connection without a window carries nothing");
        self.profile = profile;
    }

    pub(in crate::sim) fn add_address(&mut self, node: NodeId, address: IpAddr) {
        self.links.add_address(node, address);
    }

    pub(in crate::sim) fn set_cut(&mut self, from: NodeId, to: NodeId, cut: bool, ledger: &mut Ledger) {
        ledger.log(if cut { Event::Cut(from, to) } else { Event::Healed(from, to) });
        self.links.set_cut(from, to, cut);
        self.paths_changed(ledger);
    }

    pub(in crate::sim) fn set_address_cut(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        cut: bool,
        ledger: &mut Ledger,
    ) {
        self.links.set_address_cut(from, to, cut);
        self.paths_changed(ledger);
    }

    pub(in crate::sim) fn heal_all(&mut self, ledger: &mut Ledger) {
        self.links.heal_all();
        self.paths_changed(ledger);
    }

    /// The process of `node` is gone: its kernel closes everything.
    pub(in crate::sim) fn end_process(&mut self, node: NodeId, ledger: &mut Ledger) {
        self.close_dropped(ledger);
        for listener in self.listeners_of(node) {
            self.close_listener(listener, ledger);
        }
        for (id, side) in self.ends_of(node) {
            self.close(id, side, ledger);
        }
    }

    /// The machine of `node` lost power: it sends nothing more and forgets everything.
    pub(in crate::sim) fn power_off(&mut self, node: NodeId, ledger: &mut Ledger) {
        self.close_dropped(ledger);
        for listener in self.listeners_of(node) {
            self.listeners.remove(&listener);
        }
        self.links.set_power(node, false);
        for (id, side) in self.ends_of(node) {
            self.lose_some(id, side);
            // The connection is already gone if both of its ends were on this machine.
            let Some(end) = self.end(id, side) else { continue };
            end.state = State::Vanished;
            end.held = false;
            end.wake();
            self.forget_if_over(id);
        }
        self.paths_changed(ledger);
    }

    pub(in crate::sim) fn power_on(&mut self, node: NodeId, ledger: &mut Ledger) {
        self.links.set_power(node, true);
        self.paths_changed(ledger);
    }

    /// Something was cut or healed: updates every affected connection.
    fn paths_changed(&mut self, ledger: &mut Ledger) {
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for id in ids {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let (client, server) = (connection.ends.client.place, connection.ends.server.place);
            let there = self.links.is_blocked(client, server);
            let back = self.links.is_blocked(server, client);
            for (from, blocked, deaf) in [(Side::Client, there, back), (Side::Server, back, there)] {
                let pipe = &mut connection.pipes[from];
                if !blocked && std::mem::take(&mut pipe.blocked) {
                    pipe.scheduled = true;
                    // The interval between two attempts is about as long as the sender has tried.
                    let tried = ledger.now() - connection.cut_since.unwrap_or(ledger.now());
                    let again = ledger.now() + self.rng.below(tried.clamp(RETRY_NANOS.0, RETRY_NANOS.1));
                    ledger.schedule(again, Due::Net(NetDue::Deliver { connection: id, from }));
                }
                if !deaf && std::mem::take(&mut pipe.unacknowledged) {
                    pipe.progress += 1;
                }
                if !deaf && pipe.owed > 0 {
                    pipe.used = pipe.used.saturating_sub(std::mem::take(&mut pipe.owed));
                    if let Some(waker) = connection.ends[from].sender.take() {
                        waker.wake();
                    }
                }
            }
            match (there || back, connection.cut_since) {
                (true, None) => {
                    let cut_since = ledger.now();
                    connection.cut_since = Some(cut_since);
                    for side in Side::BOTH {
                        let jitter = Duration::from_nanos(self.rng.below(1_000_000_000));
                        let due = NetDue::KeepAlive { connection: id, side, cut_since };
                        ledger.schedule_in(self.profile.keep_alive + jitter, Due::Net(due));
                    }
                }
                (false, Some(_)) => {
                    connection.cut_since = None;
                    for side in Side::BOTH {
                        let wait = self.rng.below(self.profile.keep_alive.as_nanos() as u64 + 1);
                        let due = NetDue::Probe { connection: id, side };
                        ledger.schedule_in(Duration::from_nanos(wait), Due::Net(due));
                    }
                }
                _ => {}
            }
        }
    }
}
