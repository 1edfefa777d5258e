//! Polls the nodes' view of the volume, with one thread per node: a node that hangs delays no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use api::{Client, CopyState, Volume};
use base::Instant;
use rustix::time::{ClockId, clock_gettime};

use super::fleet::{Member, VOLUME};

/// How often a node is polled.
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The clock of the runtime's cores, so that their times and those of polls are comparable.
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    let duration = Duration::try_from(time).expect("it counts from the machine's start");
    Instant(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// A node's response that differs from its previous one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// When the response arrived.
    pub at: Instant,
    pub node: u16,
    /// The content; `None`: the node does not respond.
    pub seen: Option<Seen>,
}

/// A node's view of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub epoch: u64,
    /// Why the epoch changed last.
    pub reason: String,
    /// Whether hosts can use the volume through the node.
    pub serving: bool,
    /// The copies by node.
    pub copies: Vec<(u16, CopyState)>,
}

/// Polls until it is dropped.
pub struct Watch {
    over: Arc<AtomicBool>,
    sightings: Receiver<Sighting>,
}

impl Watch {
    pub fn start(nodes: &[Member]) -> Watch {
        let over = Arc::new(AtomicBool::new(false));
        let (tell, sightings) = channel();
        for node in nodes {
            let (over, tell) = (Arc::clone(&over), tell.clone());
            let (number, client) = (node.number, node.client.clone());
            // The thread ends with the watch, or when a node that hangs has responded.
            thread::spawn(move || ask(number, &client, &over, &tell));
        }
        Watch { over, sightings }
    }

    /// What was seen since the last call, in order of time.
    pub fn take(&self) -> Vec<Sighting> {
        let mut all: Vec<Sighting> = self.sightings.try_iter().collect();
        all.sort_by_key(|sighting| sighting.at);
        all
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn ask(node: u16, client: &Client, over: &AtomicBool, tell: &Sender<Sighting>) {
    let mut last = None;
    while !over.load(Ordering::Relaxed) {
        let seen = client.volume(VOLUME).ok().map(Seen::of);
        let sighting = Sighting { at: now(), node, seen };
        if last.as_ref() != Some(&sighting.seen) {
            last = Some(sighting.seen.clone());
            if tell.send(sighting).is_err() {
                return;
            }
        }
        thread::sleep(ASK_EVERY);
    }
}

impl Seen {
    fn of(volume: Volume) -> Seen {
        Seen {
            epoch: volume.epoch.unwrap_or(0),
            reason: volume.reason.unwrap_or_default(),
            serving: volume.serving,
            copies: volume.copies.iter().map(|copy| (copy.node, copy.state)).collect(),
        }
    }
}
