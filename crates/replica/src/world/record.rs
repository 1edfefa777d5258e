//! The cluster's record of the volume: who reaches it, and who changes it.

use super::*;

impl World {
    pub(super) fn reaches_record(&self, index: usize) -> bool {
        self.now >= self.nodes[index].record_gone_until
    }

    /// The newest configuration, if this node acts in it and so may change the record.
    pub(super) fn newest_at(&self, index: usize) -> Option<&Config> {
        let node = &self.nodes[index];
        let newest = self.record.last().unwrap();
        let knows = self.reaches_record(index) && node.runs() && node.membership.active() == Some(newest);
        (knows && newest.standing(slot(index), node.incarnation) == Standing::InSync(node.incarnation))
            .then_some(newest)
    }

    pub(super) fn commit(&mut self, config: Config, what: &'static str) {
        let revision = Revision(self.record.len() as u64 + 1);
        self.say(|| format!("{what}: {config:?}"));
        self.record.push(config.committed_at(revision));
        self.count(what);
    }

    pub fn remove(&mut self, by: usize, whom: usize) {
        if let Some(Ok(config)) = self.newest_at(by).map(|newest| newest.remove(slot(whom))) {
            self.commit(config, "removal");
        }
    }

    pub fn admit(&mut self, by: usize, whom: usize) {
        if !self.nodes[whom].up {
            return;
        }
        let life = self.nodes[whom].incarnation;
        if let Some(Ok(config)) = self.newest_at(by).map(|newest| newest.admit(slot(whom), life)) {
            let ready = self.nodes[by].replica.caught_up().contains(slot(whom));
            self.commit(config, if ready { "admission" } else { "admission without bulk" });
        }
    }

    pub fn promote(&mut self, by: usize) {
        let promotable = self.nodes[by].replica.promotable();
        let Some(whom) = promotable.iter().next() else { return };
        if let Some(Ok(config)) = self.newest_at(by).map(|newest| newest.promote(whom)) {
            self.commit(config, "promotion");
        }
    }

    /// Removes the copy in the slot, if it is outside.
    pub fn take_away(&mut self, by: usize, whom: usize) {
        if let Some(Ok(config)) = self.newest_at(by).map(|newest| newest.drop_copy(slot(whom))) {
            self.commit(config, "copy taken away");
        }
    }

    /// Adds a blank copy on another node in a slot that has none; the node learns of it at once.
    pub fn add(&mut self, by: usize, whom: usize) {
        let id = NodeId(NEWCOMERS + self.newcomers);
        let Some(Ok(config)) = self.newest_at(by).map(|newest| newest.add(slot(whom), id)) else { return };
        self.commit(config, "copy added");
        self.newcomers += 1;
        // The last copy in the slot was outside, so nothing waits for what its node still has under way.
        self.crash(whom);
        let mut node = Node::new(whom, &mut self.rng);
        (node.id, node.up) = (id, false);
        node.disk = Disk::blank(GEOMETRY, slot(whom));
        self.nodes[whom] = node;
        self.restart(whom);
    }

    pub fn recover(&mut self, index: usize) {
        let node = &self.nodes[index];
        let newest = self.record.last().unwrap();
        let knows = self.reaches_record(index) && node.runs() && node.membership.newest() == Some(newest);
        if knows && let Ok(config) = newest.recover(slot(index), node.incarnation) {
            self.commit(config, "recovery");
        }
    }
}
