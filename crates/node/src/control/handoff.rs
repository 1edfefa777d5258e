//! What a watcher of this process tells the other nodes when the process is dead (R11 of
//! `docs/why/replication.md`).
//!
//! The watcher is a process of its own. This process sends it the handoff, and does so again after each
//! change.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use link::{DeathNotice, Limits, NodeCredentials};
use replica::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use super::Control;
use super::cluster::{EnterError, Member, Place, cluster_id, cluster_path};
use crate::copies::{NODES, NodeEntry};
use crate::member::floating::AddressOn;

/// How often the node looks for another handoff.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The pause between two attempts to reach a node that did not respond; only the watcher of a dead process
/// makes them, for a limited time.
const AGAIN: Duration = Duration::from_millis(50);

/// Which life it is, and which nodes the watcher tells about its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// The node and its life, and the other nodes.
    place: Place,
    /// The directory with its credentials.
    directory: PathBuf,
    /// The floating addresses that are on the machine.
    addresses: Vec<AddressOn>,
}

impl Control {
    /// The handoff for the watcher; `None` if there is no other node to tell.
    pub fn handoff(&self) -> Option<Handoff> {
        let reconciler = self.reconciler().ok()?;
        let place = self.place()?;
        let entries: Vec<NodeEntry> = reconciler.list(NODES);
        let others = entries.into_iter().filter(|entry| entry.id != place.node);
        let others = others.map(|entry| Member { node: entry.id, addresses: entry.addresses });
        let members: Vec<Member> = others.collect();
        if members.is_empty() {
            return None;
        }
        let addresses = self.addresses_on();
        let directory = cluster_path(&place);
        Some(Handoff { place: Place { members, ..place }, directory, addresses })
    }

    /// The handoff, once it is another than the one that is known.
    ///
    /// The core looks for that when it wakes anyway, with its heartbeats.
    pub async fn next_handoff(self: Rc<Control>, known: Option<Handoff>) -> Option<Handoff> {
        loop {
            let handoff = self.handoff();
            if handoff != known {
                return handoff;
            }
            rt::sleep_until(rt::now().beat_after(LOOK_EVERY)).await;
        }
    }
}

impl Handoff {
    /// Loads the credentials with which the watcher speaks for the node.
    ///
    /// # Errors
    /// The files cannot be read, or are invalid.
    pub fn credentials(&self) -> Result<NodeCredentials, EnterError> {
        let cluster = cluster_id(&self.place)?;
        Ok(NodeCredentials::load(&self.directory, cluster, NodeId(self.place.node))?)
    }

    /// The floating addresses to remove from the machine before any node learns of them: that node takes them
    /// at once.
    pub fn addresses(&self) -> &[AddressOn] {
        &self.addresses
    }

    /// Tells all other nodes in parallel that this life is over; returns the number of nodes that know.
    ///
    /// It tries again with nodes that do not respond, until `limit` is over. It must not be called before the
    /// process is certainly dead.
    ///
    /// # Errors
    /// The credentials are invalid. Without credentials, which is for simulated worlds, nothing is proven.
    pub async fn carry_out(
        &self,
        credentials: Option<&NodeCredentials>,
        limit: Duration,
    ) -> Result<usize, EnterError> {
        let life = Incarnation(self.place.incarnation);
        let death_notice = match credentials {
            Some(credentials) => DeathNotice::new(credentials, life)?,
            None => DeathNotice::unproven(cluster_id(&self.place)?, NodeId(self.place.node), life),
        };
        let until = rt::now() + limit;
        let limits = Limits { connect: limit, handshake: limit, ..Limits::default() };
        let told = self.place.members.iter().map(|member| tell(&death_notice, member, &limits, until));
        Ok(rt::join_all(told).await.into_iter().filter(|told| *told).count())
    }
}

/// Tells one node; returns whether it knows.
async fn tell(death_notice: &DeathNotice, to: &Member, limits: &Limits, until: Instant) -> bool {
    let attempts = async {
        for address in to.addresses.iter().cycle() {
            match death_notice.tell(NodeId(to.node), *address, limits).await {
                Ok(()) => return true,
                // It has seen a later life, or does not know the node: there is nothing to tell it.
                Err(link::DeathNoticeError::Refused(_)) => return false,
                Err(_) => rt::sleep(AGAIN).await,
            }
        }
        false
    };
    rt::timeout(until.since(rt::now()), attempts).await.unwrap_or(false)
}
