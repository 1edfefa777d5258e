//! `ursa node`.

use std::time::Duration;

use api::{
    Client, ClusterInit, ClusterJoin, ClusterNode, ClusterRecord, HypervisorSign, LinkFor, LinkRole,
    MapMemory, Node, ReadConfirm, RecordPlace, Since, SyncLimit, TokenCreate, VerifySchedule,
};
use clap::{Subcommand, ValueEnum};
use terms::clock::unix_now;
use terms::size::{InvalidSize, Size};

use super::confirm::{Confirm, show_would};
use super::error::CliError;
use super::links;
use super::output::Output;
use super::table::{Table, age, fields, lasting, list, size};
use crate::duration::{InvalidDuration, parse_duration};

/// What to do with nodes.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Let other nodes join this one: it listens for them
    ///
    /// Until then, it is the only node of its cluster. The nodes keep the cluster's record, or a site's etcd
    /// does if the node's settings name one (`ursa serve --etcd`).
    Init {
        /// Addresses to listen on for other nodes, which must be able to reach them; the default port is 3270
        #[arg(long, value_name = "ADDR[:PORT]", value_delimiter = ',', required = true)]
        listen: Vec<String>,
    },
    /// Create a single-use join token
    ///
    /// You can run this on any node; the node that created the cluster issues the token.
    Token {
        /// Lifetime: 30m, 1h, 2d
        #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1h")]
        valid: Duration,
    },
    /// Join this node to a cluster
    Join {
        /// Token, from `ursa node token`
        token: String,
        /// Addresses to listen on for other nodes, which must be able to reach them; the default port is 3270
        #[arg(long, value_name = "ADDR[:PORT]", value_delimiter = ',', required = true)]
        listen: Vec<String>,
        /// Join as a witness: vote only, store no volumes; a small third machine is enough
        #[arg(long)]
        witness: bool,
    },
    /// List the nodes of the cluster
    List,
    /// Show this node: version, cores, portals, memory of block maps, and whether its reads are confirmed
    Show,
    /// List the links between nodes as each node sees them: up or down, addresses, and since when
    Links {
        /// Node, by number, or all
        #[arg(long, value_name = "NUMBER|all", default_value = "all")]
        node: String,
    },
    /// Start or end maintenance of a node: its copies leave the in-sync set, so that you can stop it without
    /// interrupting host I/O to volumes with other copies
    Maintenance {
        /// Node number
        node: u16,
        /// Start or end maintenance
        #[arg(value_enum)]
        switch: Switch,
        /// Show what the command would do, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Dedicate an address of a node to replication, or to heartbeats and the cluster's record
    Link {
        /// Node number
        node: u16,
        /// Address, as in `ursa node list`; the default port is 3270
        address: String,
        /// Kind of links
        #[arg(long = "for", value_enum, value_name = "ROLE")]
        role: KeptFor,
    },
    /// Set the preferred node: of two nodes, the one that continues when the link between them is lost; with
    /// three voters, a majority does
    Prefer {
        /// Node number, or none
        #[arg(value_parser = parse_preferred, value_name = "NODE|none")]
        node: Preferred,
    },
    /// Limit the resync rate of all nodes together, or show the limit
    ResyncLimit {
        /// Bytes per second, such as 500M, or none: only each node's own setting applies
        #[arg(value_parser = parse_sync_limit, value_name = "SIZE|none")]
        limit: Option<Limit>,
    },
    /// Set how often volumes are verified on schedule, or show it
    ///
    /// `ursa volume verify` verifies a volume now.
    VerifyInterval {
        /// Interval: 30d, 12h; or never
        #[arg(value_parser = parse_interval, value_name = "TIME|never")]
        interval: Option<Interval>,
    },
    /// Force this node, the last survivor of a disaster, into a new cluster
    ///
    /// Use it only if a majority of the voters is lost for good, so that nothing can be changed. The other
    /// nodes are abandoned: data that only they have is lost. Never start them again with their old data: IF
    /// ONE OF THEM STILL RUNS SOMEWHERE, BOTH SIDES CONTINUE (SPLIT BRAIN), AND HOSTS WRITE TO TWO DIVERGING
    /// COPIES OF ONE VOLUME. Volumes whose copy here was out of sync are not served. Refused while a majority
    /// or any other node can be reached. Takes effect when this node is next started. Then remove the
    /// abandoned copies and nodes (`ursa volume copy remove`, `ursa node remove`), let machines that return
    /// leave the old cluster (`ursa node leave --forget`), and let them join as new nodes.
    ForceNewCluster {
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Make this node leave its cluster at its next start
    ///
    /// For a node that was removed or abandoned, or whose copy of the cluster's record is damaged; refused if
    /// it takes part in its cluster. Pools stay. The node serves volumes that have never had a copy on
    /// another node; other copies stay in their pools and are not served. The certificates and the record
    /// stay in the data directory, unused. Afterwards the node can join a cluster as a new node. The other
    /// nodes are not notified: remove it there with `ursa node remove`.
    Leave {
        /// Confirm that this node forgets its cluster
        #[arg(long, required = true)]
        forget: bool,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Remove another node from the cluster for good; it must have no copies of volumes
    Remove {
        /// Node number
        node: u16,
        #[command(flatten)]
        confirm: Confirm,
    },
}

/// On or off.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Switch {
    /// Start maintenance
    On,
    /// End maintenance
    Off,
}

/// Links of a kind.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum KeptFor {
    /// Volume data
    Replication,
    /// Heartbeats, leases and the cluster's record
    Heartbeat,
    /// All links
    All,
}

impl KeptFor {
    fn role(self) -> Option<LinkRole> {
        match self {
            KeptFor::Replication => Some(LinkRole::Replication),
            KeptFor::Heartbeat => Some(LinkRole::Heartbeat),
            KeptFor::All => None,
        }
    }
}

/// Bytes per second, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(Option<u64>);

/// A time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval(Option<Duration>);

fn parse_interval(text: &str) -> Result<Interval, InvalidDuration> {
    match text {
        "never" => Ok(Interval(None)),
        time => parse_duration(time).map(|time| Interval(Some(time))),
    }
}

fn compared(schedule: &VerifySchedule) -> String {
    match schedule.seconds {
        Some(seconds) => {
            format!("Each volume is verified every {}, while all of its copies are in sync.\n", age(seconds))
        }
        None => "Volumes are verified on request only: `ursa volume verify`.\n".into(),
    }
}

fn parse_sync_limit(text: &str) -> Result<Limit, InvalidSize> {
    match text {
        "none" => Ok(Limit(None)),
        size => Ok(Limit(Some(size.parse::<Size>()?.0))),
    }
}

/// A node's number, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preferred(Option<u16>);

fn parse_preferred(text: &str) -> Result<Preferred, String> {
    match text {
        "none" => Ok(Preferred(None)),
        number => match number.parse() {
            Ok(number) => Ok(Preferred(Some(number))),
            Err(_) => Err("not a node number or none".into()),
        },
    }
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Init { listen } => {
                let nodes = client.init_cluster(&ClusterInit { listen })?;
                let record = client.node()?.record;
                output.show(&nodes, |nodes| made(nodes, record.as_ref()))
            }
            Command::Token { valid } => {
                let token = client.create_token(&TokenCreate { valid_seconds: valid.as_secs() })?;
                output.show(&token, |token| format!("{}\n", token.token))
            }
            Command::Join { token, listen, witness } => {
                client.join_cluster(&ClusterJoin { token: token.trim().to_owned(), listen, witness })?;
                output.done("This node has joined the cluster: `ursa node list` shows it.")
            }
            Command::Show => output.show(&client.node()?, shown),
            Command::List => output.show(&client.cluster_nodes()?, |nodes| {
                let hint = match nodes.as_slice() {
                    [only] => format!("\nIt is the only node; {}.\n", others_join(only)),
                    _ => String::new(),
                };
                table(nodes, unix_now()) + &hint
            }),
            Command::Links { node } => output.list(&client.links_of(&node)?, links::text),
            Command::Maintenance { node, switch, dry_run: true } => {
                let (on, what) = match switch {
                    Switch::On => (true, format!("Start maintenance of node {node}")),
                    Switch::Off => (false, format!("End maintenance of node {node}")),
                };
                show_would(output, &what, &client.would(|client| client.maintain_node(node, on))?)
            }
            Command::Maintenance { node, switch: Switch::On, .. } => {
                client.maintain_node(node, true)?;
                let left = client.cluster_nodes()?.into_iter().find(|other| other.id == node);
                let left = left.map_or(0, |node| node.in_sync);
                output.done(&maintained(node, left))
            }
            Command::Maintenance { node, switch: Switch::Off, .. } => {
                client.maintain_node(node, false)?;
                output.done(&format!(
                    "Maintenance of node {node} ended: its copies are resyncing (`ursa node list`)."
                ))
            }
            Command::ForceNewCluster { confirm } => {
                let what = "Force this node into a new cluster";
                if confirm.go_on_if(output, what, true, || client.would(Client::force_new_cluster))? {
                    let nodes = client.cluster_nodes();
                    client.force_new_cluster()?;
                    let has_key =
                        nodes.is_ok_and(|nodes| nodes.iter().any(|node| node.here && node.authority));
                    output.done(if has_key { FORCED } else { FORCED_WITHOUT_KEY })?;
                }
                Ok(())
            }
            Command::Prefer { node: Preferred(node) } => {
                client.prefer_node(node)?;
                output.done(&match node {
                    Some(node) => format!(
                        "Node {node} is preferred: while the cluster has two nodes and no witness, it continues when the other is lost, and the other waits for it."
                    ),
                    None => "No node is preferred.".to_owned(),
                })
            }
            Command::Link { node, address, role } => {
                let role = role.role();
                client.keep_link_for(node, &LinkFor { address: address.clone(), role })?;
                let kind = role.map_or("all links".to_owned(), |role| format!("{role} links only"));
                output.done(&format!(
                    "{address} of node {node} now carries {kind}. Links from nodes with higher numbers move one by one, within half a minute."
                ))
            }
            Command::ResyncLimit { limit: None } => {
                output.show(&client.sync_limit()?, |limit| limited(limit.bytes_per_second))
            }
            Command::ResyncLimit { limit: Some(Limit(bytes_per_second)) } => {
                client.limit_syncs(&SyncLimit { bytes_per_second })?;
                output.done(limited(bytes_per_second).trim_end())
            }
            Command::Leave { confirm, .. } => {
                let what = "Make this node leave its cluster";
                let done = "Restart ursa on this node. It is then the only node of a new cluster, and can join another one with `ursa node join`.";
                confirm.done(client, output, what, done, Client::leave_cluster)
            }
            Command::VerifyInterval { interval: None } => output.show(&client.verify_schedule()?, compared),
            Command::VerifyInterval { interval: Some(Interval(every)) } => {
                let schedule = VerifySchedule { seconds: every.map(|every| every.as_secs()) };
                client.set_verify_schedule(&schedule)?;
                output.done(compared(&schedule).trim_end())
            }
            Command::Remove { node, confirm } => {
                let what = format!("Remove node {node} from the cluster");
                let done = format!("Node {node} removed from the cluster.");
                confirm.done(client, output, &what, &done, |client| client.remove_node(node))
            }
        }
    }
}

fn shown(node: &Node) -> String {
    fields([
        ("Name", node.name.clone()),
        ("Version", node.version.clone()),
        ("Cores", node.cores.to_string()),
        ("Portals", node.portals.join(", ")),
        ("Block maps", map_memory(node.map_memory)),
        ("Machine", machine(&node.read_confirm)),
        ("Confirmed reads", confirmed_reads(&node.read_confirm)),
    ])
}

/// The memory that the block maps of log volumes use, and its limit.
fn map_memory(MapMemory { used, limit }: MapMemory) -> String {
    format!("{} of {} (map-max)", size(used), size(limit))
}

/// Whether the machine is virtual, and the sign of that.
fn machine(confirm: &ReadConfirm) -> String {
    let product = confirm.machine.as_ref().map_or(String::new(), |name| format!(" ({name})"));
    match confirm.hypervisor {
        Some(HypervisorSign::Cpu) => format!("virtual{product}: the processor reports a hypervisor"),
        Some(HypervisorSign::Firmware) => format!("virtual{product}: the firmware names a hypervisor"),
        Some(HypervisorSign::Device) => format!("virtual{product}: it has a device of a hypervisor"),
        None => format!("no hypervisor detected{product}"),
    }
}

/// The setting, its effect here, its cost, and the risk without it.
fn confirmed_reads(confirm: &ReadConfirm) -> String {
    let (on, meaning) = match (confirm.on, confirm.hypervisor) {
        (true, _) => ("on", CONFIRMED),
        (false, None) => ("off", BY_LEASES),
        (false, Some(_)) => ("off", RISK),
    };
    format!("{on} (read-confirm = \"{}\")\n{meaning}", confirm.setting)
}

const CONFIRMED: &str = "\
Each read of a volume with two or more copies waits for confirmation by the other nodes: one
round trip, shared by all reads that arrive meanwhile. A pause of this machine cannot cause
stale reads.";
const BY_LEASES: &str = "\
Reads rely on leases between nodes, which need a clock that does not stop. If this is a
virtual machine after all, set read-confirm = \"always\" and restart the node.";
const RISK: &str = "\
RISK OF STALE READS: if this machine is paused for a second or more (snapshot, live
migration), hosts may read data from it for up to a second that was overwritten through
another node. To prevent that, set read-confirm = \"auto\" and restart the node.";

const FORCED: &str = "\
Restart ursa on this node to make it a cluster of its own. Then let the other machines join as new nodes.";

const FORCED_WITHOUT_KEY: &str = "\
Restart ursa on this node to make it a cluster of its own. It did not create the old cluster, so it cannot let others join. Before the restart, copy authority-key.pem and authority.pem to cluster/CLUSTER-NODE here, from cluster/CLUSTER-NODE in the data directory of the node that created the cluster, or from a backup. Then let the other machines join as new nodes.";

fn made(nodes: &[ClusterNode], record: Option<&ClusterRecord>) -> String {
    let here = nodes.iter().find(|node| node.here);
    let (number, addresses) = here.map_or((1, String::new()), |node| (node.id, list(&node.addresses, "-")));
    let begin = format!(
        "Other nodes can join this one, node {number} of the cluster. It listens for them at {addresses}.\n\n\
         To add a node, create a token here (one per node, valid for an hour):\n  \
           ursa node token\n\
         and use it on the new node, with an address of that node:\n  \
           ursa node join TOKEN --listen ADDR\n\n"
    );
    let end = match record.filter(|record| record.place == RecordPlace::Etcd) {
        Some(etcd) => format!(
            "The cluster's record is in etcd ({}): set `etcd` on the other nodes, too, before they join. Two nodes are enough, since etcd decides. Volumes continue without etcd, but \
             then nothing can be changed, and no node can be declared lost.\n",
            list(&etcd.endpoints, "-")
        ),
        None => "Use three nodes: with only two, volumes become unavailable when the preferred node is lost. The third may be a small machine without volumes \
                 (--witness).\n"
            .to_owned(),
    };
    begin + &end
}

fn limited(bytes_per_second: Option<u64>) -> String {
    match bytes_per_second {
        Some(limit) => format!(
            "Resync is limited to {} per second for all nodes together, shared evenly among the nodes that resync others.\n",
            size(limit)
        ),
        None => "Resync has no cluster-wide limit; only each node's own setting applies (resync-bytes-per-second-max).\n".into(),
    }
}

fn maintained(node: u16, left: u64) -> String {
    match left {
        0 => format!(
            "Node {node} is in maintenance and can be stopped; hosts use the other nodes. Afterwards: `ursa node maintenance {node} off`."
        ),
        left => format!(
            "Node {node} is entering maintenance: {left} of its copies are still in sync. Do not stop it before `ursa node list` shows none."
        ),
    }
}

fn with_role(node: &ClusterNode, address: &str) -> String {
    node.link_roles.get(address).map_or(address.to_owned(), |role| format!("{address} ({role})"))
}

/// Whether the node is up and for how long, or since when it is down or in maintenance.
fn up(node: &ClusterNode, now: u64) -> String {
    let (word, since) = match (node.up, node.maintenance) {
        (true, false) => {
            return node.uptime.map_or("yes".into(), |uptime| format!("yes, for {}", age(uptime)));
        }
        (true, true) => ("maintenance", node.maintenance_since.map(Since::exactly)),
        (false, true) => ("NO (maintenance)", node.down_since),
        (false, false) if !node.reached_by.is_empty() => ("CUT OFF", node.down_since),
        (false, false) => ("NO", node.down_since),
    };
    since.map_or(word.into(), |since| format!("{word}, {}", lasting(now, since)))
}

/// Whether the node votes in the cluster's record, and what prevents it.
fn votes(node: &ClusterNode) -> String {
    let word = if node.votes { "yes" } else { "" };
    match (node.record_stalled, node.preferred) {
        (Some(stall), _) if node.votes => format!("MISSING ({stall})"),
        (_, true) => format!("{word} (preferred)"),
        _ => word.into(),
    }
}

/// How others join the only node of a cluster.
pub(super) fn others_join(only: &ClusterNode) -> String {
    let command = match only.addresses.is_empty() {
        true => "ursa node init --listen ADDRESS",
        false => "ursa node token",
    };
    format!("`{command}` lets others join")
}

fn table(nodes: &[ClusterNode], now: u64) -> String {
    let mut table =
        Table::new(&["NODE", "NAME", "UP", "VOTES", "LEADS", "IN SYNC", "CORES", "VERSION", "ADDRESSES"]);
    let yes = |is: bool| if is { "yes" } else { "" }.to_owned();
    for node in nodes {
        table.row([
            format!("{}{}", node.id, if node.here { " (here)" } else { "" }),
            node.name.clone(),
            up(node, now),
            votes(node),
            yes(node.leads),
            if node.witness { "witness".into() } else { format!("{} of {}", node.in_sync, node.copies) },
            node.cores.map_or("-".into(), |cores| cores.to_string()),
            node.version.clone().unwrap_or_else(|| "-".into()),
            list(node.addresses.iter().map(|address| with_role(node, address)), "-"),
        ]);
    }
    table.text("The cluster has no nodes.")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::{ReadConfirmSetting, RecordStall};

    use super::*;

    #[test]
    fn a_node_shows_what_reads_wait_for_and_what_is_risked() {
        let shown = |setting, on, hypervisor| {
            let confirm =
                ReadConfirm { setting, on, hypervisor, machine: Some("QEMU Standard PC".to_owned()) };
            (machine(&confirm), confirmed_reads(&confirm))
        };
        let (kind, reads) = shown(ReadConfirmSetting::Auto, true, Some(HypervisorSign::Cpu));
        assert_eq!(kind, "virtual (QEMU Standard PC): the processor reports a hypervisor");
        assert!(reads.starts_with("on (read-confirm = \"auto\")\nEach read "), "{reads}");
        let (_, reads) = shown(ReadConfirmSetting::Never, false, Some(HypervisorSign::Firmware));
        assert!(reads.starts_with("off (read-confirm = \"never\")\nRISK OF STALE READS"), "{reads}");
        let (kind, reads) = shown(ReadConfirmSetting::Auto, false, None);
        assert_eq!(kind, "no hypervisor detected (QEMU Standard PC)");
        assert!(reads.starts_with("off (read-confirm = \"auto\")\nReads rely on leases"), "{reads}");
    }

    #[test]
    fn a_node_that_is_down_is_obvious() {
        let node = |id, up, witness| ClusterNode {
            id,
            name: format!("server{id}"),
            here: id == 1,
            up,
            reached_by: if id == 4 { vec![3] } else { Vec::new() },
            down_since: (!up).then(|| Since::exactly(815)),
            version: (id != 4).then(|| "0.1.0".into()),
            cores: (id != 4).then_some(16),
            uptime: (id == 1).then_some(90_000),
            authority: id == 1,
            votes: true,
            record_stalled: None,
            leads: id == 1,
            witness,
            copies: 3,
            in_sync: 2,
            maintenance: false,
            maintenance_since: None,
            preferred: false,
            addresses: vec![format!("10.0.0.{id}:3270")],
            link_roles: if id == 2 {
                [("10.0.0.2:3270".into(), LinkRole::Replication)].into()
            } else {
                BTreeMap::new()
            },
            portals: Vec::new(),
        };
        assert_eq!(
            table(
                &[node(1, true, false), node(2, false, false), node(3, true, true), node(4, false, false)],
                1000
            ),
            "\
NODE      NAME     UP                  VOTES  LEADS  IN SYNC  CORES  VERSION  ADDRESSES
1 (here)  server1  yes, for 1d01h      yes    yes    2 of 3   16     0.1.0    10.0.0.1:3270
2         server2  NO, for 3m05s       yes           2 of 3   16     0.1.0    10.0.0.2:3270 (replication)
3         server3  yes                 yes           witness  16     0.1.0    10.0.0.3:3270
4         server4  CUT OFF, for 3m05s  yes           2 of 3   -      -        10.0.0.4:3270
"
        );
        let stalled = ClusterNode { record_stalled: Some(RecordStall::NoSpace), ..node(2, true, false) };
        assert_eq!(votes(&stalled), "MISSING (no space)");
        assert_eq!(votes(&ClusterNode { votes: false, ..stalled }), "");
        let maintained = |up, maintenance_since| {
            let node = ClusterNode { maintenance: true, maintenance_since, ..node(2, up, false) };
            super::up(&node, 1000)
        };
        assert_eq!(maintained(true, Some(990)), "maintenance, for 10s");
        assert_eq!(maintained(true, None), "maintenance");
        assert_eq!(maintained(false, Some(5)), "NO (maintenance), for 3m05s");
    }
}
