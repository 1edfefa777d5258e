//! Nodes that join: with a token, which is valid once, on the node that created it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cluster::MemberChange;
use link::{ABOUT_MAX, ClusterAuthority, JoinAnswer, JoinRequest, Limits, OpenToken, Token, UnixSeconds};
use replica::NodeId;
use serde::{Deserialize, Serialize};

use super::super::cluster::{Admitted, EnterError, Member, Place, cluster_path, try_to_listen};
use super::super::record_place::RecordPlace;
use super::super::{Control, ControlError, NeedsVotes, Result};
use super::merging::{self, Belongings, Joiner};
use super::{JoinRefusal, MEMBERS_DEADLINE, NEXT_NODE, node_entry, reachable, told_portals};
use crate::attach::port_numbers::{NodeNumber, free_portal_group};
use crate::copies::{NodeEntry, node_key};
use crate::member::{ClusterError, Reconciler, json};
use crate::shard::Shard;

/// What a node that wants to join sends about itself.
#[derive(Debug, Serialize, Deserialize)]
struct Newcomer {
    name: String,
    listen: Vec<SocketAddr>,
    portals: Vec<SocketAddr>,
    /// The portal group by which hosts know its portals.
    portal_group: u16,
    /// See [`NodeEntry::identity`].
    identity: String,
    witness: bool,
    /// Where its settings say that the cluster's record is.
    record: RecordPlace,
    /// What it has already.
    has: Belongings,
}

/// What the joining node receives.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    /// The generation of the cluster's record.
    generation: u64,
    members: Vec<Member>,
    /// The portal group that the node has from now on.
    portal_group: u16,
    /// A revision of the record that has the node's targets and host groups.
    revision: u64,
}

/// Whether nodes may join through this one: not once it leaves its cluster for another one.
#[derive(Default)]
pub(in crate::control) struct Door {
    /// How many nodes are being let in.
    passing: Cell<usize>,
    closed: Cell<bool>,
}

impl Door {
    /// Lets no node in from now on, unless one is being let in: it would be alone in a cluster. Returns
    /// whether the door is closed.
    pub(in crate::control) fn close(&self) -> bool {
        self.closed.set(self.passing.get() == 0);
        self.closed.get()
    }

    /// Lets nodes in again.
    pub(in crate::control) fn open(&self) {
        self.closed.set(false);
    }
}

/// A token while its node is let in: nobody else can use it meanwhile.
///
/// Dropping this gives it back. Without a certificate no node has joined with it, also if the member did not
/// decide in time.
struct TakenToken<'a> {
    tokens: &'a RefCell<Vec<OpenToken>>,
    /// `None`: it is used up.
    token: Option<OpenToken>,
    door: &'a Door,
}

impl<'a> TakenToken<'a> {
    fn new(tokens: &'a RefCell<Vec<OpenToken>>, token: Option<OpenToken>, door: &'a Door) -> TakenToken<'a> {
        door.passing.set(door.passing.get() + 1);
        TakenToken { tokens, token, door }
    }
}

impl Drop for TakenToken<'_> {
    fn drop(&mut self) {
        self.tokens.borrow_mut().extend(self.token);
        self.door.passing.set(self.door.passing.get() - 1);
    }
}

impl Control {
    /// Creates the text of a token with which one more node can join. `now` is the time, in seconds since
    /// 1970.
    ///
    /// # Errors
    /// The node listens at no address, or does not have the authority's key.
    pub fn make_token(&self, now: u64, validity: Duration) -> Result<String> {
        let reconciler = self.reconciler()?;
        let authority = self.authority(&reconciler)?;
        let addresses = reachable(&reconciler.addresses());
        if addresses.is_empty() {
            // Nobody can join it until `ursa node init`.
            return Err(ControlError::NotListening);
        }
        let (token, open) =
            authority.token(reconciler.me(), addresses, UnixSeconds(now + validity.as_secs()));
        self.tokens.borrow_mut().push(open);
        Ok(token.text())
    }

    /// A node that can create tokens, if one is known: preferably this one, then one that is up.
    pub fn token_maker(&self) -> Option<u16> {
        let reconciler = self.reconciler().ok()?;
        let makers = reconciler.nodes().into_iter().filter(|(node, _)| node.authority);
        let maker = makers.min_by_key(|(node, up)| (NodeId(node.id) != reconciler.me(), !up, node.id));
        maker.map(|(node, _)| node.id)
    }

    /// The authority that signs certificates for nodes that join. Only the node that created the cluster has
    /// it.
    fn authority(&self, reconciler: &Reconciler) -> Result<ClusterAuthority> {
        let place = self.own_place()?;
        ClusterAuthority::load(&cluster_path(&place), reconciler.cluster())
            .map_err(|_| ControlError::NoAuthority)
    }

    /// Joins the cluster that the token belongs to. What the node has becomes the cluster's. If the node is
    /// in a cluster that has never had another node, it leaves that one.
    ///
    /// # Errors
    /// The node is in a cluster that it cannot leave for another one. The token is invalid; a member refuses,
    /// or cannot be reached. [`ControlError::TooMuchToMerge`], [`ControlError::ChangedWhileJoining`].
    pub async fn join_cluster(
        self: &Rc<Control>,
        token: &str,
        listen: Vec<SocketAddr>,
        witness: bool,
        now: u64,
    ) -> Result<()> {
        let token = Token::parse(token).map_err(link::JoinError::from)?;
        let cluster = token.cluster.to_string();
        let place = self.own_place()?;
        // The access rules of a cluster whose files are missing must not get into another one. A node that
        // runs without them takes part in its cluster: it would have a second life beside this one.
        let own = match self.has_lost_files() && self.reconciler().is_err() {
            true if place.cluster == cluster => Vec::new(),
            true => return Err(EnterError::Already.into()),
            false => self.check_leaving_for(&cluster).await?,
        };
        try_to_listen(&listen, &own).await?;
        let portals = told_portals(&Shard::current().portals(), &listen);
        let record = RecordPlace::configured();
        if witness && record == RecordPlace::Etcd {
            return Err(ControlError::RecordInEtcd(NeedsVotes::Witness));
        }
        let mut about = Newcomer {
            name: self.host.name.clone(),
            listen: listen.clone(),
            portals,
            portal_group: self.portal_group(),
            identity: self.host.id.to_string(),
            witness,
            record,
            has: self.belongings(&cluster),
        };
        if json(&about).len() > ABOUT_MAX {
            about.has.omit_names();
        }
        let sent = json(&about);
        if sent.len() > ABOUT_MAX {
            return Err(ControlError::TooMuchToMerge);
        }
        let joined = link::join(&token, sent, UnixSeconds(now), &Limits::default()).await;
        let joined = joined.map_err(not_joined)?;
        let welcome: Welcome = serde_json::from_slice(&joined.about)
            .map_err(|_| ControlError::Internal("the member's welcome cannot be read"))?;
        let place = Place {
            cluster,
            node: joined.credentials.node().0,
            listen,
            witness,
            record,
            force_new: false,
            leave: false,
            incarnation: 0,
            members: welcome.members,
        };
        let admitted = Admitted {
            credentials: joined.credentials,
            entries: about.has.entries,
            revision: welcome.revision,
            portal_group: welcome.portal_group,
        };
        self.enter_with(place, welcome.generation, Some(admitted)).await
    }

    /// Lets nodes join with tokens of this node from now on.
    pub(in crate::control) fn let_nodes_join(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        unix_now: impl Fn() -> u64 + Copy + 'static,
    ) {
        // A weak reference: the links keep the closure, and the reconciler keeps the links.
        let control = Rc::downgrade(self);
        reconciler.links().let_join(move |request| {
            let control = control.upgrade();
            async move {
                let admitted = async {
                    let control = control.ok_or(JoinRefusal::Stopping)?;
                    let reconciler = control.reconciler()?;
                    control.admit(&reconciler, request, unix_now()).await
                };
                admitted.await.map_err(|refusal| json(&refusal))
            }
        });
    }

    async fn admit(
        &self,
        reconciler: &Rc<Reconciler>,
        request: JoinRequest,
        now: u64,
    ) -> Result<JoinAnswer, JoinRefusal> {
        let mut left = self.tokens.borrow().clone();
        if self.door.closed.get() {
            return Err(JoinRefusal::Stopping);
        }
        OpenToken::redeem(&mut left, &request.secret, UnixSeconds(now)).map_err(|_| JoinRefusal::Token)?;
        let newcomer: Newcomer = serde_json::from_slice(&request.about).map_err(|_| JoinRefusal::Version)?;
        // The token remains valid, so that the node can join after its settings have been corrected.
        match (newcomer.record, reconciler.nodes_vote()) {
            (RecordPlace::Nodes, false) => return Err(JoinRefusal::RecordInEtcd),
            (RecordPlace::Etcd, true) => return Err(JoinRefusal::RecordInNodes),
            _ => {}
        }
        // Before the record changes: without its key this node cannot let anybody in.
        let authority = self.authority(reconciler)?;
        // This node's volumes may not be in the record yet.
        let here = self.sole_names();
        merging::check_pools(&self.pool_ids(), &newcomer.has)?;
        let former = former_numbers(&reconciler.nodes(), &newcomer);
        let joiner = Joiner { witness: newcomer.witness, former };
        merging::check(reconciler, &here, &newcomer.has, &joiner)?;
        let open = self.tokens.replace(left);
        let own = open.into_iter().find(|token| token.digest.is_of(&request.secret));
        let mut taken = TakenToken::new(&self.tokens, own, &self.door);
        merging::add_to_record(reconciler, &here, &newcomer.has, &joiner).await?;
        let answer = Control::let_in(reconciler, &authority, (newcomer, &joiner), &request).await?;
        taken.token = None;
        Ok(answer)
    }

    /// Adds the node to the cluster, with its floating addresses, and signs its certificate. The record has
    /// the rest of what it has.
    async fn let_in(
        reconciler: &Rc<Reconciler>,
        authority: &ClusterAuthority,
        (newcomer, joiner): (Newcomer, &Joiner),
        request: &JoinRequest,
    ) -> Result<JoinAnswer> {
        let record = reconciler.store().status(MEMBERS_DEADLINE).await.map_err(ClusterError::from)?;
        // The founder's own entry has its portal group. It cannot be added after somebody else's.
        reconciler.until_known(&node_key(reconciler.me())).await;
        node_entry(reconciler, reconciler.me().0)?;
        let next = reconciler.get::<u16>(NEXT_NODE);
        // The first node has number 1.
        let number = next.as_ref().map_or(2, |(number, _)| *number);
        if NodeNumber::new(number.into()).is_none() {
            let reason = "the cluster has given away all 255 numbers: each node that joins gets a new one";
            return Err(ControlError::Invalid { field: "node", reason });
        }
        // If another node joins at the same time, it changes the next number, and this one is not let in.
        let portal_group = portal_group_in(&reconciler.nodes(), &newcomer)
            .ok_or(ControlError::Internal("fewer nodes than portal groups have used them up"))?;
        let entry = NodeEntry {
            id: number,
            name: newcomer.name,
            addresses: newcomer.listen,
            portals: newcomer.portals,
            portal_group,
            identity: newcomer.identity,
            witness: newcomer.witness,
            incarnation: 0,
            // The node announces these itself.
            version: None,
            authority: false,
            cores: None,
            started: None,
            start: 0,
        };
        let key = node_key(NodeId(number));
        let addresses = newcomer.has.entries.addresses;
        let moved = merging::addresses::moved(reconciler, &addresses, joiner, number)?;
        let transaction = Reconciler::transaction()
            .expect(NEXT_NODE, next.map(|(_, revision)| revision))
            .expect(&key, None)
            .put(NEXT_NODE, json(&(number + 1)))
            .put(&key, json(&entry));
        reconciler.commit(moved.add_to(reconciler, transaction)).await?;
        moved.tell_groups(&addresses);
        let id = cluster::NodeId::new(number).ok_or(ControlError::Internal("node number 0"))?;
        reconciler.change_members(MemberChange::Add(id), MEMBERS_DEADLINE).await?;
        let certificate = authority.sign(NodeId(number), request).map_err(EnterError::from)?;
        let revision = reconciler.acts_by().0;
        let members = reconciler.nodes().into_iter().map(|(node, _)| node).filter(|node| node.id != number);
        let members = members.map(|node| Member { node: node.id, addresses: node.addresses }).collect();
        tracing::info!(node = number, name = entry.name, "a node joined the cluster");
        Ok(JoinAnswer {
            node: NodeId(number),
            certificate,
            about: json(&Welcome { generation: record.generation, members, portal_group, revision }),
        })
    }
}

/// The numbers of a node that joins, from an earlier place in the cluster or from attempts to join that
/// failed: it will not use them again.
///
/// The identity alone does not tell its entries from those of a clone, which may be down, or may have joined
/// so recently that nobody has heard it. But a clone has other addresses.
fn former_numbers(nodes: &[(NodeEntry, bool)], newcomer: &Newcomer) -> BTreeSet<u16> {
    let is_own = |node: &NodeEntry, up: bool| {
        let mut addresses = newcomer.listen.iter().chain(&newcomer.portals);
        !up && node.identity == newcomer.identity
            && addresses.any(|address| node.addresses.contains(address) || node.portals.contains(address))
    };
    nodes.iter().filter(|(node, up)| is_own(node, *up)).map(|(node, _)| node.id).collect()
}

/// The portal group of a node that joins: the one that it has, unless that is another node's.
fn portal_group_in(nodes: &[(NodeEntry, bool)], newcomer: &Newcomer) -> Option<u16> {
    let former = former_numbers(nodes, newcomer);
    let others = nodes.iter().filter(|(node, _)| !former.contains(&node.id));
    let taken: BTreeSet<u16> = others.map(|(node, _)| node.portal_group).collect();
    free_portal_group(newcomer.portal_group, &taken)
}

fn not_joined(error: link::JoinError) -> ControlError {
    match error {
        link::JoinError::Refused { address, about } => {
            ControlError::JoinRefused { address, reason: JoinRefusal::read(&about) }
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::version_1::check;

    const IDENTITY: &str = "it";

    /// The address of the links of machine `id`, and that of its portal.
    fn addresses(id: u8) -> [SocketAddr; 2] {
        [3270, 3260].map(|port| SocketAddr::from(([10, 0, 0, id], port)))
    }

    /// The entry of node `id` on the machine of that number.
    fn node(id: u8, portal_group: u16, identity: &str, up: bool) -> (NodeEntry, bool) {
        let [link, portal] = addresses(id);
        let entry = NodeEntry {
            id: id.into(),
            name: String::new(),
            addresses: vec![link],
            portals: vec![portal],
            portal_group,
            identity: identity.to_owned(),
            witness: false,
            incarnation: 1,
            version: None,
            authority: false,
            cores: None,
            started: None,
            start: 0,
        };
        (entry, up)
    }

    /// The portal group that a node with portal group 700 gets, which listens there.
    fn group_at(listen: SocketAddr, portal: SocketAddr, nodes: &[(NodeEntry, bool)]) -> Option<u16> {
        let newcomer = Newcomer {
            name: String::new(),
            listen: vec![listen],
            portals: vec![portal],
            portal_group: 700,
            identity: IDENTITY.to_owned(),
            witness: false,
            record: RecordPlace::Nodes,
            has: Belongings::default(),
        };
        portal_group_in(nodes, &newcomer)
    }

    /// What version 1 sends. Later versions must read it: add fields, and change none.
    #[test]
    fn what_a_node_of_version_1_says_when_it_joins_is_read() {
        check::<Newcomer>(&json!({
            "name": "server2", "listen": ["10.0.0.2:3270"], "portals": ["10.1.0.2:3260"], "portal_group": 4711,
            "identity": "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "witness": true, "record": "etcd",
            "has": {
                "entries": {
                    "access": {
                        "targets": [
                            {"name": "iqn.2026-11.io.ursa:db", "port": 1, "alias": null, "chap": null, "maps": []}
                        ],
                        "hosts": [{"name": "web", "initiators": [], "addresses": ["10.1.0.0/16"], "chap": null}]
                    },
                    "people": {
                        "users": [
                            {"name": "alice", "role": "admin", "password": "a hash", "stamp": 7, "created": 1}
                        ],
                        "tokens": [{
                            "id": "5f0c", "name": "backup", "role": "viewer", "digest": "9b1d", "created": 1,
                            "expires": 2, "created_by": "alice"
                        }]
                    },
                    "addresses": [{
                        "address": "192.0.2.10", "prefix": 24, "device": "eth1", "nodes": [1], "prefer": 1,
                        "group": 65280
                    }]
                },
                "volumes": {"db": "00000000000000000000000000000001"},
                "unnamed": ["00000000000000000000000000000002"],
                "pools": {"a0a1a2a3a4a5a6a7a8a9aaabacadaeaf": "default"}
            }
        }));
        check::<Newcomer>(&json!({
            "name": "server2", "listen": [], "portals": [], "portal_group": 1, "identity": "", "witness": false,
            "record": "nodes",
            "has": {
                "entries": {
                    "access": {"targets": [], "hosts": []}, "people": {"users": [], "tokens": []}, "addresses": []
                },
                "volumes": {}
            }
        }));
        check::<Welcome>(&json!({
            "generation": 1, "members": [{"node": 1, "addresses": ["10.0.0.1:3270"]}], "portal_group": 4711,
            "revision": 42
        }));
    }

    #[test]
    fn a_node_that_joins_keeps_its_portal_group_unless_another_node_has_it() {
        let [link, portal] = addresses(9);
        let group = |nodes: &[(NodeEntry, bool)]| group_at(link, portal, nodes);
        let founder = || node(1, 900, "founder", true);
        assert_eq!(group(&[founder()]), Some(700));
        assert_eq!(group(&[founder(), node(2, 700, "other", true)]), Some(701));
        assert_eq!(group(&[founder(), node(2, 700, "other", false)]), Some(701), "it comes back");
        assert_eq!(group(&[founder(), node(9, 700, "other", false)]), Some(701), "replaced by it");
    }

    #[test]
    fn entries_of_its_own_do_not_take_the_portal_group_of_a_node() {
        let [link, portal] = addresses(2);
        let before = [node(1, 900, "founder", true), node(2, 700, IDENTITY, false)];
        assert_eq!(group_at(link, portal, &before), Some(700));
        let [other_link, other_portal] = addresses(9);
        assert_eq!(group_at(other_link, portal, &before), Some(700), "its links go by another address");
        assert_eq!(group_at(link, other_portal, &before), Some(700), "it has had no portal yet, or another");
        let before = [node(1, 700, "founder", true), node(2, 701, IDENTITY, false)];
        assert_eq!(group_at(link, portal, &before), Some(701), "an attempt to join has failed");
    }

    #[test]
    fn no_clone_gets_the_portal_group_of_another_one() {
        let [link, portal] = addresses(9);
        let group = |nodes: &[(NodeEntry, bool)]| group_at(link, portal, nodes);
        assert_eq!(group(&[node(1, 700, IDENTITY, true)]), Some(701));
        // One that is down, or was let in just now.
        let joined = |portal_group| node(2, portal_group, IDENTITY, false);
        assert_eq!(group(&[node(1, 900, "founder", true), joined(700)]), Some(701));
        assert_eq!(group(&[node(1, 700, IDENTITY, true), joined(701)]), Some(702));
        assert_eq!(group_at(addresses(2)[0], portal, &[node(2, 700, IDENTITY, true)]), Some(701));
    }
}
