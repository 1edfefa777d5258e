//! The links between nodes: what is on its way, what breaks them, and what watchers report of deaths.

use super::*;

impl World {
    pub(super) fn deliver(&mut self) {
        let ends: Vec<(usize, usize)> = self.links.keys().copied().collect();
        for (from, to) in ends {
            while let Some(packet) = self.next_packet(from, to) {
                if !self.nodes[to].up {
                    continue;
                }
                let sender = self.nodes[from].id;
                let node = &mut self.nodes[to];
                let now = node.clock(self.now);
                if let (true, Packet::Slice(envelope)) = (self.trace, &packet) {
                    println!("{} {from}>{to} epoch {} {:?}", self.now, envelope.epoch.0, envelope.message);
                }
                match packet {
                    Packet::Slice(envelope) => node.replica.handle_message(slot(from), envelope),
                    Packet::Give(grant) if grant.incarnation.0 > 0 => node.leases.handle_grant(sender, grant),
                    Packet::Give(_) => {}
                    Packet::Fetch(number, blocks) => self.serve(to, from, number, blocks),
                    Packet::Fetched(number, values) => self.handle_fetched(to, number, values),
                    Packet::Ask(request) => {
                        node.membership_policy.handle_heartbeat(now, slot(from), request.incarnation);
                        if let Some(grant) = node.leases.handle_request(now, sender, request) {
                            self.send(to, from, Packet::Give(grant));
                        }
                    }
                }
                self.drain(to);
            }
        }
    }

    pub(super) fn deliver_obituaries(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.death_notices)
            .into_iter()
            .partition(|(due, to, ..)| *due <= now && self.nodes[*to].standstill.is_none());
        self.death_notices = later;
        let due: Vec<(Instant, usize, usize, NodeId, Incarnation)> = due;
        for (_, to, of, id, life) in due {
            if !self.nodes[to].up {
                continue;
            }
            self.count("death told");
            self.say(|| format!("{to} is told that {id:?} is dead in life {}", life.0));
            let node = &mut self.nodes[to];
            node.leases.handle_death(id, life);
            let copy = node.membership.newest().and_then(|newest| newest.copy(slot(of)));
            if copy.is_some_and(|copy| copy.node == id) {
                node.membership_policy.handle_death(slot(of), life);
            }
        }
    }

    /// The process is dead, and its watcher tells the others: at once, or long after it is back.
    pub(super) fn tell_death(&mut self, of: usize) {
        if self.watchers.one_in(2) {
            return;
        }
        let (id, life) = (self.nodes[of].id, self.nodes[of].incarnation);
        for to in (0..self.nodes.len()).filter(|to| *to != of) {
            let within = if self.watchers.one_in(4) { 2000 } else { 10 };
            let delay = Duration::from_micros(self.watchers.below(within * 1000));
            self.death_notices.push((self.now + delay, to, of, id, life));
        }
    }

    pub(super) fn next_packet(&mut self, from: usize, to: usize) -> Option<Packet> {
        if self.nodes[to].standstill.is_some() {
            return None;
        }
        let wire = self.links.get_mut(&(from, to))?.as_mut()?;
        let (due, _) = wire.front()?;
        if *due > self.now {
            return None;
        }
        Some(wire.pop_front()?.1)
    }

    pub(super) fn send(&mut self, from: usize, to: usize, packet: Packet) {
        let due = self.later(self.network);
        if let Some(queue) = self.links.get_mut(&(from, to)).unwrap() {
            let due = queue.back().map_or(due, |(last, _)| due.max(*last));
            queue.push_back((due, packet));
        }
    }

    /// Breaks the link between two nodes, or one direction of it, with what is under way.
    pub fn cut(&mut self, a: usize, b: usize) {
        self.count("cut");
        self.say(|| format!("{a} and {b} are cut"));
        self.unlink(a, b);
    }

    pub(super) fn unlink(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            if self.links.get_mut(&(from, to)).unwrap().take().is_some() && self.nodes[from].up {
                self.nodes[from].replica.handle_link_down(slot(to));
                self.drain(from);
            }
        }
    }

    /// A node reaches no other for a while, and does not know why.
    pub fn isolate(&mut self, index: usize, below_ms: u64) {
        self.count("isolation");
        for other in (0..self.nodes.len()).filter(|other| *other != index) {
            self.cut(index, other);
        }
        let until = self.now + Duration::from_millis(self.rng.below(below_ms));
        self.nodes[index].record_gone_until = until;
    }

    /// A node learns of no change for a second.
    pub fn isolate_from_record(&mut self, index: usize) {
        self.nodes[index].record_gone_until = self.now + Duration::from_secs(1);
    }

    pub(super) fn is_cut(&self, a: usize, b: usize) -> bool {
        a != b && self.links[&(a, b)].is_none()
    }

    pub fn connect(&mut self, a: usize, b: usize) {
        if self.links[&(a, b)].is_some() || !self.nodes[a].up || !self.nodes[b].up {
            return;
        }
        for (from, to) in [(a, b), (b, a)] {
            *self.links.get_mut(&(from, to)).unwrap() = Some(VecDeque::new());
        }
        for (from, to) in [(a, b), (b, a)] {
            self.nodes[from].replica.handle_link_up(slot(to));
            self.drain(from);
        }
    }
}
