//! The nodes of a cluster: let in by a token, listed, removed; and whose word counts in its record.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cluster::{Candidate, MemberChange, voters_for};
use link::{ClusterAuthority, JoinAnswer, JoinRequest, Limits, OpenToken, Token, UnixSeconds};
use replica::NodeId;
use serde::{Deserialize, Serialize};

use super::cluster::{EnterError, Member, Place, try_to_listen};
use super::record_place::RecordPlace;
use super::{Control, ControlError};
use crate::copies::{
    ClusterError, CopyEntry, Keeper, Lasting, LinkRole, LinkRoles, NodeEntry, SYNC_LIMIT_MIN, StandingEntry,
    VolumeEntry, json, link_roles_key, maintenance_key, node_key,
};
use crate::shard::Shard;

/// More is no limit: it is a mistake in the unit.
const SYNC_LIMIT_MAX: u64 = 1 << 40;

/// The key of the number that the next node gets. No number is given twice.
pub(super) const NEXT_NODE: &str = "next-node-number";
/// The key of the node whose word alone counts in a cluster of two without a witness.
const PREFERRED: &str = "preferred-node";

/// What stands instead of nodes' votes.
pub(super) const ETCD_VOTES: &str =
    "whichever of two nodes is lost, the other one goes on as long as etcd answers";

/// How often the leader of the record looks whether the right nodes vote.
const VOTERS_EVERY: Duration = Duration::from_secs(2);

/// How long it is waited for the copies of a node to leave; then it goes on by itself.
const OUT_DEADLINE: Duration = Duration::from_secs(10);

/// How long a change of the record's members may take.
const MEMBERS_DEADLINE: Duration = Duration::from_secs(10);

/// What a node that wants to join says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Newcomer {
    name: String,
    listen: Vec<SocketAddr>,
    portals: Vec<SocketAddr>,
    witness: bool,
    /// Where it is set to find the cluster's record.
    #[serde(default)]
    record: RecordPlace,
}

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    /// The generation of the cluster's record.
    generation: u64,
    members: Vec<Member>,
}

/// A node of the cluster as administrators see it.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// As the record has it.
    pub entry: NodeEntry,
    /// This is the one that was asked.
    pub here: bool,
    /// It was heard of just now.
    pub up: bool,
    /// If it was not: the nodes that are heard and say that they reach it.
    pub reached_by: Vec<u16>,
    /// Its word counts in the cluster's record.
    pub votes: bool,
    /// It leads the record.
    pub leads: bool,
    /// How many copies of volumes it has.
    pub copies: usize,
    /// How many of them are in sync.
    pub in_sync: usize,
    /// How long nothing has been heard of it, if it is not up.
    pub silent: Option<Lasting>,
    /// It is to be stopped, and has no copy in sync.
    pub maintenance: bool,
    /// Since when, in seconds since 1970, if that was noted.
    pub maintenance_since: Option<u64>,
    /// It decides alone where two nodes are a cluster.
    pub preferred: bool,
    /// What its addresses are kept for.
    pub link_roles: LinkRoles,
}

/// What taking a node out of the cluster would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its name.
    pub name: String,
    /// It votes: so many others do.
    pub voters_left: Option<usize>,
}

impl Control {
    /// The text that lets one more node in, once. `now` is the time, in seconds since 1970.
    ///
    /// # Errors
    /// Without a cluster, or on a node that does not have the authority's key.
    pub fn make_token(&self, now: u64, validity: Duration) -> Result<String, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let authority = self.authority(&keeper)?;
        let addresses = reachable(&keeper.addresses());
        let (token, open) = authority.token(keeper.me(), addresses, UnixSeconds(now + validity.as_secs()));
        self.tokens.borrow_mut().push(open);
        Ok(token.text())
    }

    /// What signs for nodes that join: on the node that made the cluster.
    fn authority(&self, keeper: &Keeper) -> Result<ClusterAuthority, ControlError> {
        let directory = self.cluster_directory()?;
        ClusterAuthority::load(&directory, keeper.cluster()).map_err(|_| ControlError::NoAuthority)
    }

    /// Joins the cluster that the token is of.
    ///
    /// # Errors
    /// A token that is none, a member that refuses or is not reached; a node that has targets or hosts of its own.
    pub async fn join_cluster(
        self: &Rc<Control>,
        token: &str,
        listen: Vec<SocketAddr>,
        witness: bool,
        now: u64,
    ) -> Result<(), ControlError> {
        if self.place().is_some() {
            return Err(EnterError::Already.into());
        }
        let access = self.access();
        if access.targets().next().is_some() || access.hosts().any(|host| !host.is_built_in()) {
            return Err(ControlError::OwnAccess);
        }
        try_to_listen(&listen).await?;
        let token = Token::parse(token).map_err(link::JoinError::from)?;
        let portals = told_portals(&Shard::current().portals(), &listen);
        let record = RecordPlace::configured();
        if witness && record == RecordPlace::Etcd {
            return Err(ControlError::RecordInEtcd {
                what: "there is nothing for a witness to vote on",
                instead: ETCD_VOTES,
            });
        }
        let about =
            Newcomer { name: self.host.name.clone(), listen: listen.clone(), portals, witness, record };
        let joined = link::join(&token, json(&about), UnixSeconds(now), &Limits::default()).await?;
        // First of all: the token is used up, and the key is nowhere else.
        let directory = self.cluster_directory()?;
        joined.credentials.save(&directory).map_err(EnterError::from)?;
        let welcome: Welcome = serde_json::from_slice(&joined.about)
            .map_err(|_| ControlError::Internal("the member's welcome cannot be read"))?;
        let place = Place {
            cluster: token.cluster.to_string(),
            node: joined.credentials.node().0,
            listen,
            witness,
            record,
            force_new: false,
            incarnation: 0,
            members: welcome.members,
        };
        self.enter_cluster(place, welcome.generation).await
    }

    /// From now on nodes with tokens of this one are let in.
    pub(super) fn let_nodes_join(
        self: &Rc<Control>,
        keeper: &Rc<Keeper>,
        unix_now: impl Fn() -> u64 + Copy + 'static,
    ) {
        // The links keep the closure, and the keeper keeps the links.
        let control = Rc::downgrade(self);
        keeper.links().let_join(move |request| {
            let control = control.upgrade();
            async move {
                let control = control.ok_or("the node stops: ask another one")?;
                let admitted = async {
                    let keeper = control.keeper_or_why_not()?;
                    control.admit(&keeper, request, unix_now()).await
                };
                admitted.await.map_err(|error| error.to_string())
            }
        });
    }

    async fn admit(
        &self,
        keeper: &Rc<Keeper>,
        request: JoinRequest,
        now: u64,
    ) -> Result<JoinAnswer, ControlError> {
        let mut left = self.tokens.borrow().clone();
        OpenToken::redeem(&mut left, &request.secret, UnixSeconds(now)).map_err(|_| {
            ControlError::Invalid {
                field: "token",
                reason: "it was used, has expired, or the node that made it was restarted: make a new one",
            }
        })?;
        let newcomer: Newcomer = serde_json::from_slice(&request.about)
            .map_err(|_| ControlError::Invalid { field: "node", reason: "it runs another version" })?;
        // The token stays good for when that has been mended.
        match (newcomer.record, keeper.nodes_vote()) {
            (RecordPlace::Nodes, false) => return Err(ControlError::JoinsWithoutEtcd),
            (RecordPlace::Etcd, true) => return Err(ControlError::JoinsWithEtcd),
            _ => {}
        }
        *self.tokens.borrow_mut() = left;
        let authority = self.authority(keeper)?;
        let record = keeper.store().status(MEMBERS_DEADLINE).await.map_err(ClusterError::from)?;
        let next = keeper.get::<u16>(NEXT_NODE);
        // The first node made itself number 1.
        let number = next.as_ref().map_or(2, |(number, _)| *number);
        let entry = NodeEntry {
            id: number,
            name: newcomer.name,
            addresses: newcomer.listen,
            portals: newcomer.portals,
            witness: newcomer.witness,
            incarnation: 0,
        };
        let key = node_key(NodeId(number));
        let transaction = Keeper::transaction()
            .expect(NEXT_NODE, next.map(|(_, revision)| revision))
            .expect(&key, None)
            .put(NEXT_NODE, json(&(number + 1)))
            .put(&key, json(&entry));
        keeper.commit(transaction).await?;
        let id = cluster::NodeId::new(number).ok_or(ControlError::Internal("node number 0"))?;
        keeper.change_members(MemberChange::Add(id), MEMBERS_DEADLINE).await?;
        let certificate = authority.sign(NodeId(number), &request).map_err(EnterError::from)?;
        let members = keeper.nodes().into_iter().map(|(node, _)| node).filter(|node| node.id != number);
        let members = members.map(|node| Member { node: node.id, addresses: node.addresses }).collect();
        tracing::info!(node = number, name = entry.name, "a node has joined the cluster");
        Ok(JoinAnswer {
            node: NodeId(number),
            certificate,
            about: json(&Welcome { generation: record.generation, members }),
        })
    }

    /// The nodes of the cluster.
    ///
    /// # Errors
    /// [`ControlError::NoCluster`].
    pub async fn nodes(&self) -> Result<Vec<NodeStatus>, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let status = keeper.store().status(MEMBERS_DEADLINE).await.ok();
        let mut copies = Vec::new();
        keeper.for_each_entry(|entry| copies.extend(entry.copies)).await;
        let preferred = keeper.get::<u16>(PREFERRED).map(|(node, _)| node);
        let copies = |id: u16| copies.iter().filter(move |copy| copy.node == id);
        let node = |(entry, up): (NodeEntry, bool)| NodeStatus {
            here: NodeId(entry.id) == keeper.me(),
            up,
            reached_by: match up {
                true => Vec::new(),
                false => keeper.reached_by(NodeId(entry.id)).into_iter().map(|node| node.0).collect(),
            },
            votes: status.as_ref().is_some_and(|status| status.voters.contains(&u64::from(entry.id))),
            leads: status.as_ref().is_some_and(|status| status.leader == Some(u64::from(entry.id))),
            copies: copies(entry.id).count(),
            in_sync: copies(entry.id)
                .filter(|copy| copy.standing == crate::copies::StandingEntry::InSync)
                .count(),
            silent: if up { None } else { keeper.silence_of(NodeId(entry.id)) },
            maintenance: keeper.is_in_maintenance(NodeId(entry.id)),
            maintenance_since: keeper.maintenance_since(NodeId(entry.id)),
            preferred: preferred == Some(entry.id),
            link_roles: keeper.link_roles(NodeId(entry.id)),
            entry,
        };
        Ok(keeper.nodes().into_iter().map(node).collect())
    }

    /// The names of the cluster's nodes, by number; empty without a cluster.
    pub fn node_names(&self) -> BTreeMap<u16, String> {
        let nodes = self.keeper().map(|keeper| keeper.nodes()).unwrap_or_default();
        nodes.into_iter().map(|(node, _)| (node.id, node.name)).collect()
    }

    /// This node's number in its cluster, if it is in one.
    pub fn number(&self) -> Option<u16> {
        self.keeper().map(|keeper| keeper.me().0)
    }

    /// This node's number and name in its cluster, if it is in one.
    pub fn number_and_name(&self) -> (Option<u16>, Option<String>) {
        match self.keeper() {
            Some(keeper) => (Some(keeper.me().0), Some(self.host.name.clone())),
            None => (None, None),
        }
    }

    /// Says which node decides alone while two nodes are the cluster; `None`: the one that does.
    ///
    /// # Errors
    /// A node that is none, or a witness.
    pub async fn prefer_node(&self, node: Option<u16>) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        if node.is_some() && !keeper.nodes_vote() {
            return Err(ControlError::RecordInEtcd {
                what: "no node needs to be preferred",
                instead: ETCD_VOTES,
            });
        }
        let revision = keeper.revision_of(PREFERRED);
        let transaction = Keeper::transaction().expect(PREFERRED, revision);
        let transaction = match node {
            Some(number) => {
                let entry = node_entry(&keeper, number)?;
                if entry.witness {
                    return Err(ControlError::Invalid {
                        field: "node",
                        reason: "a witness has no volumes: prefer a node that has",
                    });
                }
                transaction.put(PREFERRED, json(&number))
            }
            None if revision.is_none() => return Ok(()),
            None => transaction.delete(PREFERRED),
        };
        Ok(keeper.commit(transaction).await?)
    }

    /// Limits what all nodes together give to bring copies up to date, in bytes a second; `None`: each as much as its own settings say.
    ///
    /// # Errors
    /// Less than [`SYNC_LIMIT_MIN`], more than [`SYNC_LIMIT_MAX`].
    pub async fn limit_syncs(&self, bytes_per_second: Option<u64>) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        if bytes_per_second.is_some_and(|limit| limit < SYNC_LIMIT_MIN) {
            return Err(ControlError::Invalid {
                field: "bytes_per_second",
                reason: "at least 1 MiB a second: a copy that never comes in sync is none when the next fault comes",
            });
        }
        if bytes_per_second.is_some_and(|limit| limit > SYNC_LIMIT_MAX) {
            let reason = "at most 1 TiB a second: take the limit away instead";
            return Err(ControlError::Invalid { field: "bytes_per_second", reason });
        }
        Ok(keeper.set_sync_limit(bytes_per_second).await?)
    }

    /// What it is limited to.
    ///
    /// # Errors
    /// [`ControlError::NoCluster`].
    pub fn sync_limit(&self) -> Result<Option<u64>, ControlError> {
        Ok(self.keeper_or_why_not()?.sync_limit())
    }

    /// Keeps an address of a node for one kind of links; `None`: for all. Links move to it within half a minute.
    ///
    /// # Errors
    /// A node that is none, an address that it does not have, or none would be left for data.
    pub async fn keep_link_for(
        &self,
        number: u16,
        address: SocketAddr,
        role: Option<LinkRole>,
    ) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let entry = node_entry(&keeper, number)?;
        let reason = "no address that the node listens at for others: `ursa node list` shows them";
        let unknown = ControlError::Invalid { field: "address", reason };
        entry.addresses.contains(&address).then_some(()).ok_or(unknown)?;
        let key = link_roles_key(NodeId(number));
        let revision = keeper.revision_of(&key);
        let mut roles = keeper.link_roles(NodeId(number));
        match role {
            Some(role) => drop(roles.insert(address, role)),
            None => drop(roles.remove(&address)),
        }
        // Where it no longer listens nobody finds it.
        roles.retain(|kept, _| entry.addresses.contains(kept));
        // Heartbeats may go where data goes; not the other way round.
        if entry.addresses.iter().all(|address| roles.get(address) == Some(&LinkRole::Heartbeat)) {
            let reason = "no address of the node would be left for the data of volumes: have it listen at another one, too";
            return Err(ControlError::Invalid { field: "role", reason });
        }
        let transaction = Keeper::transaction().expect(&key, revision).put(&key, json(&roles));
        Ok(keeper.commit(transaction).await?)
    }

    /// Begins or ends a node's maintenance. When it has begun, its copies leave the ones in sync, so that it can be stopped without a stall; when it
    /// has ended they are brought up to date. `Ok(false)`: that it has no copy in sync takes longer.
    ///
    /// # Errors
    /// [`ControlError::OnlyInSync`]: a volume would not be served.
    pub async fn maintain_node(&self, number: u16, on: bool) -> Result<bool, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let node = NodeId(number);
        node_entry(&keeper, number)?;
        let key = maintenance_key(node);
        let revision = keeper.revision_of(&key);
        let in_sync = |entry: &VolumeEntry| {
            let all = entry.copies.iter().filter(|copy| copy.standing == StandingEntry::InSync);
            all.map(|copy| copy.node).collect::<Vec<_>>()
        };
        if on {
            self.check_maintenance(number)?;
        }
        let transaction = Keeper::transaction().expect(&key, revision);
        match (on, revision) {
            (true, None) => {
                let began = (Shard::current().config().unix_now)();
                keeper.commit(transaction.put(&key, json(&began))).await?;
            }
            (false, Some(_)) => keeper.commit(transaction.delete(&key)).await?,
            _ => {}
        }
        let out = || keeper.volumes().iter().all(|volume| !in_sync(&volume.entry).contains(&number));
        Ok(!on || keeper.until(OUT_DEADLINE, out).await)
    }

    /// Whether a node could begin its maintenance now: what would become of volumes whose copies there are in sync, by name, with how many copies in sync
    /// are left of each.
    ///
    /// # Errors
    /// As [`Control::maintain_node`].
    pub fn check_maintenance(&self, number: u16) -> Result<Vec<(String, usize)>, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        node_entry(&keeper, number)?;
        let mut left = Vec::new();
        for VolumeEntry { name, copies, .. } in keeper.volumes().into_iter().map(|volume| volume.entry) {
            let in_sync = || copies.iter().filter(|copy| copy.standing == StandingEntry::InSync);
            let stays =
                |copy: &&CopyEntry| copy.node != number && !keeper.is_in_maintenance(NodeId(copy.node));
            if !in_sync().any(|copy| copy.node == number) {
                continue;
            }
            match in_sync().filter(stays).count() {
                0 => return Err(ControlError::OnlyInSync { volume: name, node: number }),
                count => left.push((name, count)),
            }
        }
        Ok(left)
    }

    /// Takes a node out of the cluster for good. It must have no copies.
    ///
    /// # Errors
    /// A node that is none, or has copies, or is the one that is asked.
    pub async fn remove_node(&self, number: u16) -> Result<(), ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let key = node_key(NodeId(number));
        // From before it is looked at: what changes meanwhile is found.
        let revision = keeper.revision_of(&key);
        self.check_removal(number).await?;
        let id = cluster::NodeId::new(number).ok_or(ControlError::Internal("node number 0"))?;
        keeper.change_members(MemberChange::Remove(id), MEMBERS_DEADLINE).await?;
        let mut transaction = Keeper::transaction().expect(&key, revision).delete(&key);
        for noted in [maintenance_key(NodeId(number)), link_roles_key(NodeId(number))] {
            if let Some(revision) = keeper.revision_of(&noted) {
                transaction = transaction.expect(&noted, Some(revision)).delete(&noted);
            }
        }
        Ok(keeper.commit(transaction).await?)
    }

    /// Whether a node could be taken out of the cluster now, and what would go with it.
    ///
    /// # Errors
    /// As [`Control::remove_node`], but for what the record says.
    pub async fn check_removal(&self, number: u16) -> Result<Removal, ControlError> {
        let keeper = self.keeper_or_why_not()?;
        let name = node_entry(&keeper, number)?.name;
        if NodeId(number) == keeper.me() {
            return Err(ControlError::Invalid {
                field: "node",
                reason: "a node does not remove itself: ask another one",
            });
        }
        let has_copy = |entry: &VolumeEntry| entry.copies.iter().any(|copy| copy.node == number);
        if let Some(volume) = keeper.volumes().into_iter().find(|volume| has_copy(&volume.entry)) {
            return Err(ControlError::NodeHasCopies { node: number, volume: volume.entry.name });
        }
        let voters = self.nodes().await?.into_iter().filter(|node| node.votes);
        let voters: Vec<(u16, bool)> = voters.map(|node| (node.entry.id, node.up)).collect();
        if keeper.nodes_vote() && !decides_without(number, &voters) {
            return Err(ControlError::NodeNeeded(number));
        }
        let votes = voters.iter().any(|(id, _)| *id == number);
        Ok(Removal { name, voters_left: votes.then(|| voters.len() - 1) })
    }

    /// Sees to it that the right nodes vote, where this one leads the record.
    pub(super) async fn keep_voters(self: Rc<Control>, keeper: Rc<Keeper>) {
        while !keeper.is_stopping() {
            rt::sleep(VOTERS_EVERY).await;
            if let Err(error) = self.correct_voters(&keeper).await {
                tracing::debug!(%error, "who votes in the cluster's record could not be changed");
            }
        }
    }

    async fn correct_voters(&self, keeper: &Keeper) -> Result<(), ControlError> {
        let status = keeper.store().status(MEMBERS_DEADLINE).await.map_err(ClusterError::from)?;
        if status.leader != Some(u64::from(keeper.me().0)) {
            return Ok(());
        }
        let follows: BTreeSet<u64> = status.voters.iter().chain(&status.learners).copied().collect();
        let candidates: Vec<Candidate> = keeper
            .nodes()
            .iter()
            // Who was never there has nothing to say.
            .filter(|(node, _)| node.incarnation > 0)
            // Of a cluster that was given up: its number is never used again.
            .filter(|(node, _)| follows.contains(&u64::from(node.id)))
            .filter_map(|(node, _)| {
                let votes = status.voters.contains(&u64::from(node.id));
                Some(Candidate { node: cluster::NodeId::new(node.id)?, witness: node.witness, votes })
            })
            .collect();
        let wanted: BTreeSet<u64> = wanted_voters(keeper, &candidates);
        let now: BTreeSet<u64> = status.voters.iter().copied().collect();
        let id = |number: &u64| u16::try_from(*number).ok().and_then(cluster::NodeId::new);
        // More before fewer: a quorum is never of nobody.
        let promote = wanted.difference(&now).find_map(id).map(MemberChange::Promote);
        let demote = now.difference(&wanted).find_map(id).map(MemberChange::Demote);
        match promote.or(demote) {
            Some(change) => Ok(keeper.change_members(change, MEMBERS_DEADLINE).await?),
            None => Ok(()),
        }
    }
}

fn node_entry(keeper: &Keeper, number: u16) -> Result<NodeEntry, ControlError> {
    let known = keeper.get::<NodeEntry>(&node_key(NodeId(number)));
    known.map(|(entry, _)| entry).ok_or_else(|| ControlError::not_found("node", &number.to_string()))
}

/// Of two nodes without a witness one alone decides: two would both have to be there, and none could be lost.
fn wanted_voters(keeper: &Keeper, candidates: &[Candidate]) -> BTreeSet<u64> {
    let hosts: Vec<&Candidate> = candidates.iter().filter(|node| !node.witness).collect();
    let preferred = keeper.get::<u16>(PREFERRED).map(|(node, _)| node);
    let voters: BTreeSet<cluster::NodeId> = match (hosts.len(), candidates.len()) {
        (2, 2) => {
            let named = hosts.iter().find(|node| Some(node.node.get()) == preferred);
            let first = hosts.iter().min_by_key(|node| (!node.votes, node.node));
            named.or(first).map(|node| node.node).into_iter().collect()
        }
        _ => voters_for(candidates),
    };
    voters.into_iter().map(|node| u64::from(node.get())).collect()
}

/// Whether those that vote and are up are a majority when this node is none of them any more. Each voter: its number, and whether it is up.
fn decides_without(removed: u16, voters: &[(u16, bool)]) -> bool {
    let left = || voters.iter().filter(|(id, _)| *id != removed);
    2 * left().filter(|(_, up)| *up).count() > left().count()
}

/// What initiators are told of this node's portals by other nodes. One on all addresses (0.0.0.0) is on those, too, at which the other nodes reach
/// this one: nobody else can say more.
pub(super) fn told_portals(portals: &[SocketAddr], links: &[SocketAddr]) -> Vec<SocketAddr> {
    let told = portals.iter().flat_map(|portal| match portal.ip().is_unspecified() {
        false => vec![*portal],
        true => reachable(links).iter().map(|link| SocketAddr::new(link.ip(), portal.port())).collect(),
    });
    let mut all: Vec<SocketAddr> = told.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Addresses that another machine can connect to: not "all of mine".
fn reachable(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    addresses.iter().filter(|address| !address.ip().is_unspecified()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn nobody_is_removed_whose_vote_is_needed() {
        let all = [(1, true), (2, true), (3, true)];
        assert!(decides_without(3, &all));
        // The dead one may go; of the two that are left none may, or one alone would be half of two.
        let one_down = [(1, false), (2, true), (3, true)];
        assert!(decides_without(1, &one_down));
        assert!(!decides_without(3, &one_down));
        assert!(decides_without(4, &one_down), "it has no vote");
    }

    #[test]
    fn other_nodes_tell_of_no_portal_that_nobody_can_connect_to() {
        let links = addresses(&["10.0.0.1:3270", "10.1.0.1:3270"]);
        assert_eq!(
            told_portals(&addresses(&["0.0.0.0:3260"]), &links),
            addresses(&["10.0.0.1:3260", "10.1.0.1:3260"])
        );
        let named = addresses(&["192.168.0.1:3260", "192.168.1.1:3260"]);
        assert_eq!(told_portals(&named, &links), named);
        let twice = addresses(&["0.0.0.0:3260", "10.0.0.1:3260"]);
        assert_eq!(told_portals(&twice, &links[..1]), addresses(&["10.0.0.1:3260"]));
    }
}
