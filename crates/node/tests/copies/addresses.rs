//! Floating IPs: one node at a time has each, whatever happens to nodes, links and the record.

use std::net::IpAddr;
use std::sync::Mutex;

use cluster::memory::Fault;
use initiator::discover;
use node::control::{AddressSpec, ControlError, FaultKind};
use node::floating::{AddressWork, Devices};

use super::*;

/// Every simulated machine can listen at it.
const FLOATING: &str = "127.9.9.9";
/// The first portal group of floating addresses.
const GROUP: u16 = 0xff00;

/// How often to check which node has it.
const STEP: Duration = Duration::from_millis(20);
/// How late a machine may be to remove an address automatically.
const KERNEL_LATE: Duration = Duration::from_millis(900);
/// Until another node has the address of a silent one: two seconds of silence, and the wait for the previous
/// holder.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// Until another node has the address after the holder gave it up.
const HANDED_WITHIN: Duration = Duration::from_secs(3);

/// What nodes requested of their machines, in order: to set the address for this long, or to remove it.
type Asked = Arc<Mutex<Vec<(u16, Option<Duration>)>>>;

/// A cluster, and which machines have the address.
struct Machines {
    cluster: Cluster,
    asked: Asked,
    /// How long a machine has the address, unless its node renews it.
    on: RefCell<BTreeMap<u16, Duration>>,
}

impl Machines {
    fn new(seed: u64, nodes: usize, prefer: Option<u16>) -> Machines {
        Machines::with(seed, nodes, AddressSpec { prefer, ..spec() })
    }

    fn with(seed: u64, nodes: usize, spec: AddressSpec) -> Machines {
        let asked = Asked::default();
        let told = Arc::clone(&asked);
        let devices = Devices::new(move |work| {
            let node = Control::current().number();
            let lasts = match work {
                AddressWork::PutOn { lasts, .. } => Some(lasts),
                AddressWork::TakeOff(_) => None,
            };
            told.lock().unwrap().push((node, lasts));
            Box::pin(std::future::ready(Ok(())))
        });
        let cluster = Cluster::with_config(seed, nodes, 2, &Config { devices, ..Config::default() });
        let machines = Machines { cluster, asked, on: RefCell::default() };
        machines.cluster.control(0, |control| async move {
            let added = control.add_address(spec).await.unwrap();
            assert_eq!(added.group, GROUP);
        });
        machines
    }

    /// Lets a moment pass, and checks that at most one machine has it.
    fn step(&self) {
        self.cluster.world.run_for(STEP);
        let now = self.cluster.world.now();
        let mut on = self.on.borrow_mut();
        on.retain(|_, until| *until > now);
        for (node, lasts) in self.asked.lock().unwrap().drain(..) {
            match lasts {
                Some(lasts) => on.insert(node, now + lasts + KERNEL_LATE),
                None => on.remove(&node),
            };
            assert!(on.len() <= 1, "seed {}: several machines have it: {on:?}", self.cluster.world.seed());
        }
    }

    fn run_for(&self, duration: Duration) {
        let until = self.cluster.world.now() + duration;
        while self.cluster.world.now() < until {
            self.step();
        }
    }

    fn holder(&self) -> Option<u16> {
        self.on.borrow().keys().next().copied()
    }

    /// Lets time pass, and checks that this node has it at every moment.
    fn stays(&self, holder: u16, duration: Duration) {
        let until = self.cluster.world.now() + duration;
        while self.cluster.world.now() < until {
            self.step();
            assert_eq!(self.holder(), Some(holder), "seed {}", self.cluster.world.seed());
        }
    }

    /// Waits until a wanted node has it; returns that node.
    fn wait(&self, limit: Duration, is_wanted: impl Fn(u16) -> bool) -> u16 {
        let until = self.cluster.world.now() + limit;
        while self.cluster.world.now() < until {
            self.step();
            if let Some(holder) = self.holder().filter(|holder| is_wanted(*holder)) {
                return holder;
            }
        }
        panic!("seed {}: after {limit:?} {:?} has it", self.cluster.world.seed(), self.holder());
    }

    fn crash(&self, node: u16) {
        self.cluster.world.crash(self.cluster.servers[usize::from(node) - 1]);
        self.on.borrow_mut().remove(&node);
    }

    /// New events of a node: no node has the address, or one has it again.
    fn told(&self, by: u16) -> Vec<(&'static str, Option<&'static str>, Option<u16>)> {
        let taken = self.cluster.control(usize::from(by) - 1, |control| control.next_events());
        let events =
            taken.events.into_iter().map(|(_, event)| (event.code.as_str(), event.cause, event.node));
        events.filter(|(code, ..)| ["floating_ip_lost", "floating_ip_restored"].contains(code)).collect()
    }

    /// The addresses that a node reports as lost.
    fn lost(&self, by: u16) -> Vec<String> {
        let faults = self.cluster.control(usize::from(by) - 1, |control| async move { control.faults() });
        let lost = faults.into_iter().filter_map(|fault| match fault.kind {
            FaultKind::FloatingIpLost { address, .. } => Some(address.to_string()),
            _ => None,
        });
        lost.collect()
    }

    /// The holder according to the record.
    fn holder_by(&self, asked: u16) -> Option<u16> {
        let address: IpAddr = FLOATING.parse().unwrap();
        let status = self
            .cluster
            .control(usize::from(asked) - 1, move |control| async move { control.address(address).unwrap() });
        status.holder.map(|(node, _)| node)
    }
}

fn spec() -> AddressSpec {
    let address = FLOATING.parse().unwrap();
    AddressSpec { address, prefix: 8, device: None, nodes: Vec::new(), prefer: None }
}

#[test]
fn another_node_takes_the_address_of_one_that_is_lost_or_stops() {
    each_seed(4, |seed| {
        let machines = Machines::new(seed, 3, None);
        let first = machines.wait(TAKEN_WITHIN, |_| true);
        assert_eq!(machines.holder_by(first), Some(first));
        machines.run_for(Duration::from_secs(20));
        assert_eq!(machines.holder(), Some(first), "it stays where it is");

        machines.crash(first);
        let second = machines.wait(TAKEN_WITHIN, |node| node != first);
        machines.cluster.start(usize::from(first) - 1);
        machines.run_for(Duration::from_secs(10));
        assert_eq!(machines.holder(), Some(second), "nobody takes it from who has it");

        // It gives the address up before all else: no node has to wait for it.
        machines.cluster.stop(&[usize::from(second) - 1]);
        machines.wait(HANDED_WITHIN, |node| node != second);
    });
}

#[test]
fn an_announced_death_moves_the_address_at_once() {
    each_seed(2, |seed| {
        let machines = Machines::new(seed, 3, None);
        let first = machines.wait(TAKEN_WITHIN, |_| true);
        let index = usize::from(first) - 1;
        let handoff = machines.cluster.control(index, |control| async move { control.handoff() });
        let handoff = handoff.expect("it is in a cluster");
        assert_eq!(handoff.addresses().len(), 1, "its watcher takes it off");
        machines.crash(first);
        watcher(&machines.cluster, handoff);
        machines.wait(Duration::from_secs(1), |node| node != first);
    });
}

#[test]
fn a_node_that_is_cut_off_takes_it_off_before_another_one_has_it() {
    each_seed(4, |seed| {
        let machines = Machines::new(seed, 3, None);
        let first = machines.wait(TAKEN_WITHIN, |_| true);
        let servers = &machines.cluster.servers;
        let cut_off = servers[usize::from(first) - 1];
        let record = &machines.cluster.record;
        let member = cluster::NodeId::new(first).unwrap();
        record.begin(member, Fault::Unreachable);
        for other in servers.iter().filter(|other| **other != cut_off) {
            machines.cluster.world.cut(cut_off, *other);
        }
        let second = machines.wait(TAKEN_WITHIN, |node| node != first);
        machines.cluster.world.heal_all();
        record.end(member, Fault::Unreachable);
        machines.run_for(Duration::from_secs(10));
        assert_eq!(machines.holder(), Some(second), "it does not come back by itself");
        assert_eq!(machines.holder_by(first), Some(second));
    });
}

#[test]
fn an_address_stays_if_only_one_node_has_lost_its_holder() {
    each_seed(2, |seed| {
        let machines = Machines::new(seed, 3, None);
        let first = machines.wait(TAKEN_WITHIN, |_| true);
        let servers = &machines.cluster.servers;
        let index = usize::from(first) - 1;
        machines.cluster.world.cut(servers[index], servers[(index + 1) % 3]);
        machines.stays(first, Duration::from_secs(30));
    });
}

/// For example, both reach an external record: neither can distinguish the other's loss from that of the
/// network between them.
#[test]
fn two_nodes_that_do_not_hear_each_other_do_not_take_it_from_each_other() {
    each_seed(2, |seed| {
        let machines = Machines::new(seed, 2, None);
        machines.wait(TAKEN_WITHIN, |_| true);
        let servers = &machines.cluster.servers;
        machines.cluster.world.cut(servers[0], servers[1]);
        machines.run_for(TAKEN_WITHIN);
        let holder = machines.wait(Duration::from_secs(1), |_| true);
        machines.stays(holder, Duration::from_secs(30));
    });
}

#[test]
fn without_the_record_no_node_holds_an_address_for_long() {
    each_seed(2, |seed| {
        let machines = Machines::new(seed, 2, None);
        machines.wait(TAKEN_WITHIN, |_| true);
        let nodes = || (1..=2).filter_map(cluster::NodeId::new);
        nodes().for_each(|node| machines.cluster.record.begin(node, Fault::Unreachable));
        machines.run_for(Duration::from_secs(6));
        assert_eq!(machines.holder(), None);
        machines.run_for(Duration::from_secs(20));
        nodes().for_each(|node| machines.cluster.record.end(node, Fault::Unreachable));
        machines.wait(TAKEN_WITHIN, |_| true);
        let holder = machines.holder();
        machines.run_for(Duration::from_secs(10));
        assert_eq!(machines.holder(), holder);
    });
}

/// For example, etcd does not answer a single node: the others receive its heartbeats, and ask it.
#[test]
fn a_holder_without_the_record_is_followed_by_another_node() {
    each_seed(2, |seed| {
        let machines = Machines::new(seed, 3, None);
        let first = machines.wait(TAKEN_WITHIN, |_| true);
        let member = cluster::NodeId::new(first).unwrap();
        machines.cluster.record.begin(member, Fault::Unreachable);
        let second = machines.wait(2 * TAKEN_WITHIN, |node| node != first);
        machines.cluster.record.end(member, Fault::Unreachable);
        machines.run_for(Duration::from_secs(10));
        assert_eq!(machines.holder(), Some(second));
    });
}

#[test]
fn the_loss_of_an_address_and_its_return_are_reported() {
    each_seed(2, |seed| {
        let machines = Machines::with(seed, 3, AddressSpec { nodes: vec![1], ..spec() });
        machines.wait(TAKEN_WITHIN, |node| node == 1);
        machines.run_for(Duration::from_secs(40));
        assert_eq!([machines.told(1), machines.told(2)], [vec![], vec![]]);

        machines.crash(1);
        machines.run_for(Duration::from_secs(25));
        assert_eq!(machines.told(2), [], "a moment longer, and another node would have it if it might");
        machines.run_for(Duration::from_secs(20));
        let lost = ("floating_ip_lost", Some("no_node"), None);
        assert_eq!([machines.told(2), machines.told(3)], [vec![lost], vec![lost]]);
        assert_eq!(machines.lost(2), [FLOATING]);

        machines.cluster.start(0);
        machines.wait(TAKEN_WITHIN, |node| node == 1);
        machines.run_for(Duration::from_secs(20));
        let back = ("floating_ip_restored", None, Some(1));
        assert_eq!([machines.told(2), machines.told(3)], [vec![back], vec![back]]);
        assert!(machines.lost(2).is_empty());
    });
}

/// For example, some nodes run a later version already.
#[test]
fn addresses_written_by_a_later_version_are_not_touched() {
    const LATER: &[u8] = b"{\"later\":true}";
    let machines = Machines::new(1, 2, None);
    machines.wait(TAKEN_WITHIN, |_| true);
    let write = |key: String| {
        machines.cluster.control(0, move |control| async move {
            let transaction = node::member::Reconciler::transaction().put(&key, LATER);
            control.reconciler().unwrap().commit(transaction).await.unwrap();
        });
    };
    let holder = format!("address-holder/{FLOATING}");
    write(holder.clone());
    machines.run_for(HANDED_WITHIN);
    assert_eq!(machines.holder(), None, "the record does not say any more that it has it");
    machines.run_for(Duration::from_secs(20));
    assert_eq!(machines.cluster.record.value(&holder).as_deref(), Some(LATER));
    let address: IpAddr = FLOATING.parse().unwrap();
    let status = machines.cluster.control(1, move |control| async move { control.address(address).unwrap() });
    assert!(status.is_unreadable && status.holder.is_none());

    let entry = format!("address/{FLOATING}");
    write(entry.clone());
    machines.run_for(Duration::from_secs(1));
    machines.cluster.control(1, move |control| async move {
        assert_eq!(control.unreadable_addresses().unwrap(), [FLOATING]);
        assert!(control.addresses().unwrap().is_empty());
        let is_refused = |error| matches!(error, ControlError::EntryUnreadable { kind: "address", .. });
        assert!(is_refused(control.remove_address(address).await.unwrap_err()));
        let other = AddressSpec { address: "127.9.9.8".parse().unwrap(), ..spec() };
        assert!(is_refused(control.add_address(other).await.unwrap_err()));
        let told = control.next_events().await.events;
        assert!(told.iter().all(|(_, event)| event.code.as_str() != "floating_ip_removed"), "{told:?}");
    });
    assert_eq!(machines.cluster.record.value(&entry).as_deref(), Some(LATER));
}

#[test]
fn the_preferred_node_has_it_back_when_it_has_been_up_for_a_while() {
    each_seed(2, |seed| {
        let machines = Machines::new(seed, 3, Some(2));
        assert_eq!(machines.wait(TAKEN_WITHIN, |_| true), 2);
        machines.crash(2);
        let other = machines.wait(TAKEN_WITHIN, |node| node != 2);
        machines.cluster.start(1);
        machines.run_for(Duration::from_secs(50));
        assert_eq!(machines.holder(), Some(other), "it may be lost again");
        machines.wait(Duration::from_secs(20), |node| node == 2);
        let maintain = |control: Rc<Control>| async move { control.maintain_node(2, true).await.unwrap() };
        assert!(machines.cluster.control(0, maintain));
        machines.wait(HANDED_WITHIN, |node| node != 2);
        machines.run_for(Duration::from_secs(5));
        assert_ne!(machines.holder(), Some(2));
    });
}

#[test]
fn an_address_is_a_portal_with_its_own_group() {
    let machines = Machines::new(1, 2, Some(1));
    machines.cluster.add_volume(VolumeKind::Ram, 2);
    machines.wait(TAKEN_WITHIN, |node| node == 1);
    // It listens there a moment later.
    machines.run_for(Duration::from_millis(200));
    let own = machines.cluster.portal(0);
    machines.cluster.control(0, move |control| async move {
        let own_group = control.portal_group();
        let floating = SocketAddr::new(FLOATING.parse().unwrap(), own.port());
        let session = log_in(floating, "host").await.expect("it listens there");
        assert_eq!(session.portal_group(), Some(GROUP));
        assert_eq!(log_in(own, "other").await.expect("it serves").portal_group(), Some(own_group));
        let targets = discover(floating, &named("looking")).await.unwrap();
        assert_eq!(targets[0].addresses, [format!("{floating},{GROUP}")], "no other one moves with it");
        let targets = discover(own, &named("looking")).await.unwrap();
        let addresses = &targets[0].addresses;
        assert!(addresses.contains(&format!("{own},{own_group}")), "{addresses:?}");
        assert!(!addresses.contains(&format!("{floating},{GROUP}")), "{addresses:?}");
    });
    let refused = |spec: AddressSpec| {
        let add = move |control: Rc<Control>| async move { control.add_address(spec).await.unwrap_err() };
        machines.cluster.control(0, add)
    };
    assert!(matches!(refused(spec()), ControlError::Exists { kind: "address", .. }));
    let theirs = AddressSpec { address: own.ip(), ..spec() };
    assert!(matches!(refused(theirs), ControlError::Invalid { field: "address", .. }));
    let nobody = AddressSpec { address: "127.9.9.8".parse().unwrap(), prefer: Some(7), ..spec() };
    assert!(matches!(refused(nobody), ControlError::NotFound { kind: "node", .. }));

    machines.cluster.control(1, |control| async move {
        control.remove_address(FLOATING.parse().unwrap()).await.unwrap();
    });
    machines.run_for(HANDED_WITHIN);
    assert_eq!(machines.holder(), None);
    let left = machines.cluster.control(0, |control| async move { control.addresses().unwrap().len() });
    assert_eq!(left, 0);
    assert!(machines.cluster.record.value(&format!("address-holder/{FLOATING}")).is_none());
}
