//! Links that carry nothing, in one direction or both, and connections that are reset.

use base::Rng;
use rt::sim::NodeId;

use super::{Harm, Harms, Victim};

/// Two nodes do not reach each other.
pub const CUT: Harm = Harm::new("cut", 6, |harms, victim, rng| {
    let (from, to) = harms.draw_link(victim, rng);
    harms.cut(from, to);
    harms.cut(to, from);
    true
})
.may_split();

/// One node does not reach another, which reaches it.
pub const CUT_ONE_WAY: Harm = Harm::new("cut one way", 5, |harms, victim, rng| {
    let (from, to) = harms.draw_link(victim, rng);
    harms.cut(from, to);
    true
})
.may_split();

/// A node reaches no other.
pub const ISOLATE: Harm = Harm::new("isolation", 4, |harms, victim, _| {
    let (cluster, machine) = (harms.cluster, harms.machine(victim.index));
    let machines = cluster.servers.iter().map(|server| server.machine).chain(cluster.witness);
    for other in machines.filter(|other| *other != machine) {
        harms.cut(machine, other);
        harms.cut(other, machine);
    }
    true
})
.may_split();

/// A host does not reach a node.
pub const CUT_HOST: Harm = Harm::new("cut of a host", 3, |harms, victim, rng| {
    let (world, machine) = (&harms.cluster.world, harms.machine(victim.index));
    let host = harms.hosts[rng.below(harms.hosts.len() as u64) as usize];
    let (from, to) = if rng.one_in(2) { (host, machine) } else { (machine, host) };
    world.cut_one_way(from, to);
    if rng.one_in(2) {
        world.cut_one_way(to, from);
    }
    true
});

/// All cuts end.
pub const HEAL: Harm = Harm {
    heal: |harms| harms.heal_network(),
    ..Harm::new("heal", 16, |harms, _, _| {
        harms.heal_network();
        true
    })
    .always()
};

/// Connections between two nodes are reset.
pub const BREAK: Harm = Harm::new("reset of links", 4, |harms, victim, _| {
    harms.cluster.world.break_connections(harms.machine(victim.index), harms.machine(victim.other)) > 0
});

impl Harms<'_> {
    /// A link of the node, in either direction: to the other node, or to the witness.
    fn draw_link(&self, victim: Victim, rng: &mut Rng) -> (NodeId, NodeId) {
        let machine = self.machine(victim.index);
        let witness = self.cluster.witness.filter(|_| rng.one_in(3));
        let to = witness.unwrap_or_else(|| self.machine(victim.other));
        if rng.one_in(2) { (machine, to) } else { (to, machine) }
    }

    pub(super) fn is_cut(&self, one: NodeId, other: NodeId) -> bool {
        self.cut.iter().any(|link| *link == (one, other) || *link == (other, one))
    }

    fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cluster.world.cut_one_way(from, to);
        self.cut.push((from, to));
    }

    fn heal_network(&mut self) {
        self.cluster.world.heal_all();
        self.cut.clear();
    }
}
