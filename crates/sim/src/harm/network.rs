//! Links that carry nothing, in one direction or both, and connections that are reset.

use std::time::Duration;

use base::Rng;
use rt::sim::{NetProfile, NodeId};

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
    let is_calm = harms.is_calm();
    let (world, machine) = (&harms.cluster.world, harms.machine(victim.index));
    let host = harms.hosts[rng.below(harms.hosts.len() as u64) as usize];
    let (is_sending_cut, are_both) = (rng.one_in(2), rng.one_in(2));
    let cut = |host: NodeId| {
        if is_sending_cut || are_both {
            world.cut_one_way(host, machine);
        }
        if !is_sending_cut || are_both {
            world.cut_one_way(machine, host);
        }
    };
    cut(host);
    if is_calm {
        // A host that has other paths must not notice either.
        harms.read_past_cut(&harms.cluster.volumes[0], victim.index, cut);
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
pub const BREAK: Harm = Harm::new("reset of links", 4, |harms, victim, _| match harms.is_calm_with_room() {
    true => harms.see_reset(victim),
    false => harms.reset(victim),
});

/// How long no packet is late before links are reset, so that all nodes have just been heard.
const BEFORE_RESET: Duration = Duration::from_millis(300);
/// How long hosts hurry before: some of their writes are under way then.
const HURRY: Duration = Duration::from_millis(20);
/// How long to look for what a reset costs: longer than a member may owe acknowledgements.
const COSTS_NOTHING_FOR: Duration = Duration::from_secs(3);

impl Harms<'_> {
    fn reset(&self, victim: Victim) -> bool {
        self.cluster.world.break_connections(self.machine(victim.index), self.machine(victim.other)) > 0
    }

    /// Resets the links of two nodes while hosts write, and checks that this costs no copy: what was on its
    /// way is sent again.
    fn see_reset(&self, victim: Victim) -> bool {
        let (world, cluster) = (&self.cluster.world, self.cluster);
        // A late packet may take as long as a heartbeat timeout.
        world.set_net_profile(NetProfile { spike_one_in: 0, ..self.plan.net_profile() });
        self.inside.run_for(BEFORE_RESET);
        self.hurry.begin(victim.index);
        self.inside.run_for(HURRY);
        let epochs =
            || -> Vec<u64> { cluster.volumes.iter().map(|volume| cluster.entry_of(volume).epoch).collect() };
        let (before, are_reset) = (epochs(), self.reset(victim));
        self.hurry.end();
        self.inside.run_for(COSTS_NOTHING_FOR);
        assert_eq!(
            epochs(),
            before,
            "members have changed because links of nodes {} and {} were reset",
            victim.index + 1,
            victim.other + 1
        );
        world.set_net_profile(self.plan.net_profile());
        self.counts.count("reset of links that costs no copy");
        are_reset
    }

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
