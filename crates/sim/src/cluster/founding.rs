//! How the nodes become a cluster: its record, its members and their votes, its target and its volumes.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use node::Control;
use node::control::{MapSpec, Member, NewVolume, Place, Placement, PoolSpec, RecordPlace, TargetSpec};
use node::copies::{NodeEntry, SplitBrainPolicy, node_key};
use node::member::{RECORD_DEADLINE, Reconciler, json};
use rt::sim::NodeId;

use super::{CLUSTER, Cluster, Server, TARGET, Volume, pool, wait};
use crate::plan::Plan;
use crate::record::Record;

const LINK_PORT: u16 = 3270;

/// Longest time until nodes find each other in a world without faults.
const MEETING_MAX: Duration = Duration::from_secs(30);

/// Number of votes in the end. Of two nodes without a witness, only the first has one.
fn voters(nodes: usize, witness: bool) -> usize {
    if nodes == 2 && !witness { 1 } else { nodes + usize::from(witness) }
}

impl Cluster {
    pub(super) fn found(&mut self, plan: &Plan) {
        let nodes = self.servers.len();
        for index in 0..nodes {
            let place = self.place(index, false);
            self.servers[index].take(place);
            self.start(index);
            let there = self.world.run_until(|| self.is_started(index), MEETING_MAX);
            assert!(there, "node {} starts", index + 1);
            let pools: Vec<PoolSpec> = self.pools.iter().map(|it| pool(*it)).collect();
            self.control(index, move |control| async move {
                for pool in pools {
                    control.create_pool(pool).await?;
                }
                Ok::<_, node::control::ControlError>(())
            })
            .expect("nothing has failed yet");
            if index == 0 && matches!(*self.record, Record::Raft(_)) {
                self.let_in_others();
            }
        }
        if let Record::Raft(_) = *self.record {
            self.witness.iter().for_each(|witness| self.start_witness(*witness));
            self.wait_for_voters();
        }
        let all_there = || {
            let heard = |control: Rc<Control>| async move {
                let heard = control.reconciler().ok().map(|reconciler| reconciler.nodes());
                heard.map_or(0, |nodes| nodes.iter().filter(|(node, up)| *up && !node.witness).count())
            };
            (0..nodes).all(|index| self.control(index, heard) == nodes)
        };
        assert!(wait(&self.world, MEETING_MAX, all_there), "the nodes find each other");
        self.control(0, |control| async move {
            let target = TargetSpec { name: TARGET.to_owned(), alias: None, chap: None };
            control.create_target(target).await
        })
        .expect("nothing has failed yet");
        for at in 0..self.volumes.len() {
            self.volumes[at].key = self.make_volume(&self.volumes[at], plan);
            self.volumes[at].number = self.entry_of(&self.volumes[at]).number;
        }
        let all_serve = || (0..nodes).all(|index| self.serves(index));
        assert!(wait(&self.world, MEETING_MAX, all_serve), "all nodes serve");
        if self.forks {
            self.agree_to_forks();
        }
    }

    /// Waits until as many members have votes in the record as should have one.
    fn wait_for_voters(&self) {
        let voters = voters(self.servers.len(), self.witness.is_some());
        let all_vote = || {
            let status = |control: Rc<Control>| async move {
                let reconciler = control.reconciler().ok()?;
                reconciler.store().status(RECORD_DEADLINE).await.ok()
            };
            self.control(0, status).is_some_and(|status| status.voters.len() == voters)
        };
        assert!(wait(&self.world, MEETING_MAX, all_vote), "so many have a vote: {voters}");
    }

    /// Lets the second node continue alone with each volume, as an administrator would, and waits until both
    /// nodes know.
    fn agree_to_forks(&self) {
        self.wait_for_voters();
        for volume in &self.volumes {
            let name = volume.name;
            let agree = move |control: Rc<Control>| async move {
                control.set_split_brain_policy(name, SplitBrainPolicy::Heartbeat, "sim").await
            };
            self.control(0, agree).expect("nothing has failed yet");
        }
        let all_know = || {
            (0..self.servers.len()).all(|index| {
                self.control(index, |control| async move {
                    let volumes = control.reconciler().expect("it has entered").volumes();
                    volumes.iter().all(|volume| volume.policy.is_some())
                })
            })
        };
        assert!(wait(&self.world, MEETING_MAX, all_know), "both nodes know what was agreed to");
    }

    /// Creates a volume and maps it for all hosts; returns its key in the record.
    fn make_volume(&self, volume: &Volume, plan: &Plan) -> String {
        let Volume { name, pool, lun, kind, checksums, layout, .. } = *volume;
        let (block_size, copies) = (plan.block, self.servers.len() as u8);
        let made = self.control(0, move |control| async move {
            let new = NewVolume {
                name: name.into(),
                pool: Some(pool.name.into()),
                kind,
                size: layout.capacity,
                block_size,
                native_512: false,
                slices: None,
                created: 1_700_000_000,
                map: None,
                copies: Some(Placement::Count(copies)),
                space: store::SpacePolicy::default(),
                compression: store::Compression::default(),
                checksums,
            };
            let made = control.create_volume(new).await?;
            let everybody = MapSpec { target: TARGET.into(), host: "any".into(), lun: Some(lun.0) };
            control.map(name, everybody).await?;
            Ok::<_, node::control::ControlError>(made)
        });
        node::copies::volume_key(made.expect("nothing has failed yet"))
    }

    /// The place of the node at `index`, or of the witness, whose number follows those of the nodes.
    fn place(&self, index: usize, witness: bool) -> Place {
        let machines = self.servers.iter().map(|server| server.machine).chain(self.witness);
        let address = |machine| SocketAddr::new(self.world.address(machine), LINK_PORT);
        let members: Vec<Member> = (1..)
            .zip(machines)
            .map(|(node, machine)| Member { node, addresses: vec![address(machine)] })
            .collect();
        Place {
            cluster: format!("{CLUSTER:032x}"),
            node: index as u16 + 1,
            listen: members[index].addresses.clone(),
            witness,
            record: RecordPlace::Nodes,
            force_new: false,
            leave: false,
            incarnation: 0,
            members,
        }
    }

    /// Adds all other members to the first node's record, as it does when a node joins: until then it accepts
    /// nothing from them.
    fn let_in_others(&self) {
        let members = self.place(0, false).members.into_iter();
        let entries: Vec<NodeEntry> = members
            .skip(1)
            .map(|Member { node, addresses }| NodeEntry {
                id: node,
                name: format!("server-{node}"),
                addresses,
                portals: Vec::new(),
                portal_group: node,
                identity: String::new(),
                witness: usize::from(node) > self.servers.len(),
                incarnation: 0,
                version: None,
                authority: false,
                cores: None,
                started: None,
                start: 0,
            })
            .collect();
        self.control(0, move |control| async move {
            let put = |transaction: cluster::Transaction, entry: &NodeEntry| {
                transaction.put(&node_key(replica::NodeId(entry.id)), json(entry))
            };
            let transaction = entries.iter().fold(Reconciler::transaction(), put);
            control.reconciler().expect("it has entered").commit(transaction).await
        })
        .expect("nothing has failed yet");
    }

    /// Starts the witness. It votes and has no volumes. Its only faults are cuts of its network.
    fn start_witness(&self, machine: NodeId) {
        self.world.kill(machine);
        let mut server = Server::new(&self.world, machine, &self.record, false);
        server.take(self.place(self.servers.len(), true));
        self.start_server(&server);
        let started = || server.is_started(&self.world);
        assert!(self.world.run_until(started, MEETING_MAX), "the witness starts");
    }
}
