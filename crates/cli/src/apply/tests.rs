use api::{
    AddressState, ChosenPolicy, Compression, CopyState, FloatingAddress, Host, SplitBrainPolicy, Target,
    TargetMap, Volume, VolumeChange, VolumeCopy, VolumeKind, WhenFull,
};
use terms::samples::{self, node};

use super::declared::Declared;
use super::plan::{self, Plan};
use super::step::Step;
use super::{Present, export};
use crate::error::CliError;

fn volume(name: &str, on: &[u16]) -> Volume {
    let copies = on.iter().enumerate().map(|(slot, node)| samples::copy(slot, *node, CopyState::InSync));
    samples::volume(name, copies.collect())
}

fn map(lun: u16, volume: Option<&str>, host: &str) -> TargetMap {
    TargetMap { lun, volume: volume.map(str::to_owned), volume_id: "1".into(), host: host.into() }
}

fn host(name: &str, initiators: &[&str], built_in: bool) -> Host {
    Host {
        name: name.into(),
        initiators: initiators.iter().map(|name| (*name).to_owned()).collect(),
        addresses: Vec::new(),
        chap_user: None,
        built_in,
    }
}

/// A cluster of three nodes, with a volume on two of them that is mapped to a host.
fn present() -> Present {
    let target = Target {
        name: "iqn.x:t".into(),
        alias: None,
        chap_user: None,
        maps: vec![map(0, Some("db"), "esx")],
    };
    Present {
        hosts: vec![
            host("any", &[], true),
            host("local", &[], true),
            host("esx", &["iqn.e:1", "iqn.e:2"], false),
        ],
        targets: vec![target],
        volumes: vec![volume("db", &[1, 2])],
        nodes: vec![node(1), node(2), node(3)],
        addresses: Vec::new(),
    }
}

fn floating(address: &str, nodes: &[u16], prefer: Option<u16>) -> FloatingAddress {
    FloatingAddress {
        address: address.into(),
        device: None,
        nodes: nodes.to_vec(),
        prefer,
        portal_group: Some(65280),
        holder: Some(1),
        holder_name: None,
        since: None,
        waits: false,
        state: AddressState::Held,
        troubles: Vec::new(),
    }
}

const FILE: &str = r#"
[[host]]
name = "esx"
initiators = ["iqn.e:2", "iqn.e:1"]

[[target]]
name = "iqn.x:t"

[[volume]]
name = "db"
size = "10G"
on = [2, 1]

[[map]]
target = "iqn.x:t"
volume = "db"
host = "esx"
"#;

fn planned(file: &str, present: &Present, prune: bool) -> Result<Plan, CliError> {
    Plan::new(&Declared::parse(file).unwrap(), present, prune)
}

#[track_caller]
fn changes(file: &str, present: &Present, prune: bool, expected: &[&str]) -> Plan {
    let plan = planned(file, present, prune).unwrap_or_else(|error| panic!("{error}"));
    let lines: Vec<String> = plan.steps.iter().map(|step| step.line()).collect();
    assert_eq!(lines, expected);
    plan
}

#[track_caller]
fn conflicts(file: &str, present: &Present, expected: &str) {
    match planned(file, present, false) {
        Err(CliError::Conflict(conflicts)) => {
            assert!(conflicts.iter().any(|conflict| conflict.contains(expected)), "{conflicts:?}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn objects_that_match_the_file_are_not_changed() {
    let plan = changes(FILE, &present(), true, &[]);
    assert_eq!(plan::text(&plan.shown()), "Nothing to do: the configuration matches the file.\n");
}

#[test]
fn where_copies_are_is_compared_if_the_file_says_it() {
    for copies in ["", "copies = 2"] {
        changes(&FILE.replace("on = [2, 1]", copies), &present(), true, &[]);
    }
    let new = FILE.replace("\"db\"", "\"new\"");
    for (on, line) in [
        ("", "+ volume new: 10G"),
        ("copies = 3", "+ volume new: 10G, 3 copies"),
        ("copies = 1", "+ volume new: 10G, a single copy"),
        ("on = [2]", "+ volume new: 10G, a single copy on node 2"),
    ] {
        let plan = planned(&new.replace("on = [2, 1]", on), &present(), false).unwrap();
        assert_eq!(plan.steps[0].line(), line);
    }
}

#[test]
fn an_exported_file_changes_nothing() {
    let mut present = present();
    let policy = ChosenPolicy { policy: SplitBrainPolicy::Heartbeat, by: "me".into(), at: 9 };
    present.volumes[0].split_brain_policy = Some(policy);
    present.volumes.push(volume("alone", &[]));
    present.targets[0].alias = Some("shared \"disks\"".into());
    present.targets[0].chap_user = Some("t".into());
    present.hosts[2].chap_user = Some("alice".into());
    present.addresses = vec![floating("192.0.2.10/24", &[1, 2], Some(1)), floating("fd00::10/64", &[], None)];
    let file = export::text(&export::declared(&present));
    assert!(file.contains("chap-secret-file") && file.contains("size = \"10G\"\n"), "{file}");
    changes(&file, &present, true, &[]);
    // In an empty cluster all of it is created, except secrets, which are not exported.
    let nothing =
        Present { hosts: vec![host("local", &[], true)], nodes: present.nodes, ..Present::default() };
    let error = planned(&file, &nothing, true).unwrap_err();
    assert!(error.to_string().contains("chap-secret-file is missing"), "{error}");
    let without: String = file
        .lines()
        .filter(|line| !line.starts_with("chap-user"))
        .map(|line| line.to_owned() + "\n")
        .collect();
    changes(
        &without,
        &nothing,
        true,
        &[
            "+ host esx",
            "+ target iqn.x:t",
            "+ volume db: 10G on nodes 1, 2",
            "~ volume db: split-brain policy heartbeat",
            "+ volume alone: 10G",
            "+ map of volume db: LUN 0 of iqn.x:t for host esx",
            "+ address 192.0.2.10/24",
            "+ address fd00::10/64",
        ],
    );
}

#[test]
fn the_settings_of_a_log_volume_are_part_of_the_file() {
    let mut present = present();
    let (kind, when_full) = (VolumeKind::Log, Some(WhenFull::Fail));
    let compression = Some(Compression::Lz4);
    present.volumes[0] = Volume { kind, when_full, compression, reserved: 1 << 30, ..volume("db", &[1, 2]) };
    let exported = export::text(&export::declared(&present));
    assert!(exported.contains("when-full = \"fail\"\nreserve = \"1G\"\n"), "{exported}");
    changes(&exported, &present, true, &[]);
    changes(FILE, &present, true, &[]);

    let named = |space: &str| FILE.replace("\"10G\"", &format!("\"20G\"\n{space}"));
    let resized = "~ volume db: from 10G to 20G";
    let file = named("when-full = \"pause\"\nreserve = \"20G\"");
    let changed = "~ volume db: when-full from fail to pause, reserve from 1G to 20G";
    let plan = changes(&file, &present, false, &[resized, changed]);
    let [_, Step::ChangeVolume { change, .. }] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    let both =
        VolumeChange { when_full: Some(WhenFull::Pause), reserve: Some(20 << 30), ..VolumeChange::default() };
    assert_eq!(*change, both);
    let none = named("when-full = \"fail\"\nreserve = 0");
    changes(&none, &present, false, &[resized, "~ volume db: reserve from 1G to 0"]);

    let stored_as_they_are = named("compression = \"off\"");
    let plan =
        changes(&stored_as_they_are, &present, false, &[resized, "~ volume db: compression from lz4 to off"]);
    let [_, Step::ChangeVolume { change, .. }] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    assert_eq!(*change, VolumeChange { compression: Some(Compression::Off), ..VolumeChange::default() });

    let new = file.replace("\"db\"", "\"new\"");
    conflicts(
        &new,
        &present,
        "volume \"new\": only volumes of kind log have `when-full`, `reserve` and `compression`",
    );
    let plan =
        planned(&new.replace("\"20G\"\nwhen", "\"20G\"\nkind = \"log\"\nwhen"), &present, false).unwrap();
    let Step::CreateVolume(create) = &plan.steps[0] else { panic!("{:?}", plan.steps) };
    assert_eq!((create.when_full, create.reserve), (Some(WhenFull::Pause), Some(20 << 30)));
    conflicts(&file, &self::present(), "volume \"db\": only volumes of kind log");
}

/// A node reports the pool of its own copy: here node 1 and node 2 report the same volume.
#[test]
fn any_node_takes_the_file_though_copies_lie_in_pools_of_different_names() {
    let told_by = |pool: &str| {
        let mut present = present();
        present.volumes[0].pool = pool.into();
        present
    };
    let (first, second) = (told_by("default"), told_by("new"));
    let [file, other] = [&first, &second].map(|present| export::text(&export::declared(present)));
    assert_eq!(file, other);
    let named = file.replace("name = \"db\"", "name = \"db\"\npool = \"default\"");
    assert_ne!(named, file);
    for file in [&file, &named] {
        changes(file, &first, true, &[]);
        changes(file, &second, true, &[]);
    }
}

#[test]
fn a_copy_is_added_in_the_pool_of_the_file() {
    let file = FILE.replace("[2, 1]", "[2, 1, 3]\npool = \"fast\"");
    let plan = changes(&file, &present(), false, &["+ copy of volume db on node 3"]);
    let [Step::AddCopy { copy, .. }] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    assert_eq!((copy.node, copy.pool.as_deref()), (3, Some("fast")));
}

#[test]
fn differences_are_changed() {
    let file = FILE
        .replace("\"10G\"", "\"20G\"\nsplit-brain-policy = \"heartbeat\"\naccept-split-brain = true")
        .replace("[2, 1]", "[1, 2, 3]")
        .replace(", \"iqn.e:1\"", "");
    let plan = changes(
        &file,
        &present(),
        false,
        &[
            "~ host esx: initiators from iqn.e:1 iqn.e:2 to iqn.e:2",
            "~ volume db: from 10G to 20G",
            "+ copy of volume db on node 3",
            "~ volume db: split-brain policy heartbeat",
        ],
    );
    assert!(plan.destroyed().is_empty());
}

#[test]
fn objects_not_in_the_file_stay_unless_pruned() {
    let mut present = present();
    present.volumes.push(volume("old", &[]));
    present.hosts.push(host("web", &[], false));
    present.targets[0].maps.push(map(1, Some("old"), "esx"));
    present.targets.push(Target { name: "iqn.x:u".into(), alias: None, chap_user: None, maps: Vec::new() });
    // The pool of its volume is not open, so its name is unknown.
    present.targets.push(Target {
        name: "iqn.x:away".into(),
        alias: None,
        chap_user: None,
        maps: vec![map(0, None, "lost")],
    });
    present.hosts.push(host("lost", &[], false));
    let file = FILE.replace("[2, 1]", "[1, 3]");
    let plan = changes(&file, &present, false, &["+ copy of volume db on node 3"]);
    assert!(plan.destroyed().is_empty(), "{:?}", plan.destroyed());
    assert_eq!(
        plan.kept,
        [
            "the copy of volume db on node 2",
            "map of volume old: LUN 1 of iqn.x:t for host esx",
            "volume old: 10G",
            "target iqn.x:u",
            "host web",
        ]
    );
    let plan = changes(
        &file,
        &present,
        true,
        &[
            "~ copy of volume db: from node 2 to node 3",
            "- map of volume old: LUN 1 of iqn.x:t for host esx",
            "- volume old: 10G with all its data",
            "- target iqn.x:u",
            "- host web",
        ],
    );
    assert!(plan.destroyed().contains(&"DELETE VOLUME old (10G) WITH ALL ITS DATA".to_owned()));
    assert_eq!(plan.destroyed().len(), 5);
    // A surplus copy is removed; this is not a move.
    changes(
        &FILE.replace("[2, 1]", "[1]"),
        &present,
        true,
        &[
            "- map of volume old: LUN 1 of iqn.x:t for host esx",
            "- copy of volume db on node 2",
            "- volume old: 10G with all its data",
            "- target iqn.x:u",
            "- host web",
        ],
    );
    // Two copies that belong elsewhere move one by one, and so does the only one in sync.
    let both = FILE.replace("[2, 1]", "[3]");
    let mut cluster = self::present();
    let plan = changes(&both, &cluster, true, &["~ copy of volume db: from node 2 to node 3"]);
    let later = "- copy of volume db on node 1: when all copies named in the file are in sync";
    assert_eq!(plan.waiting, [later]);
    let copies = &mut cluster.volumes[0].copies;
    (copies[1].node, copies[1].state) = (3, CopyState::CatchingUp);
    let plan = changes(&both, &cluster, true, &[]);
    let expected = format!("Nothing to do now.\n\nTo be done later; apply the file again then:\n  {later}\n");
    assert_eq!(plan::text(&plan.shown()), expected);
    cluster.volumes[0].copies[1].state = CopyState::InSync;
    changes(&both, &cluster, true, &["- copy of volume db on node 1"]);
    cluster.volumes[0].copies[0].state = CopyState::OutOfSync;
    changes(&both, &cluster, true, &["- copy of volume db on node 1"]);

    // A move in progress is not started again.
    let copies = &mut present.volumes[0].copies;
    let new = VolumeCopy { node: 3, slot: 2, ..copies[1].clone() };
    copies[1].leaves = true;
    copies.push(new);
    changes(&file, &present, false, &[]);
}

#[test]
fn addresses_come_last_and_go_first() {
    let mut present = present();
    present.addresses = vec![floating("192.0.2.10/24", &[2, 1], None), floating("fd00::10/64", &[], None)];
    let named = "\n[[address]]\naddress = \"192.0.2.10/24\"\nnodes = [1, 2]\n";
    let plan = changes(&format!("{FILE}{named}"), &present, false, &[]);
    assert_eq!(plan.kept, ["address fd00::10/64"]);
    // A file that is older than the addresses removes none.
    let plan = changes(FILE, &present, true, &[]);
    assert_eq!(plan.kept, ["address 192.0.2.10/24", "address fd00::10/64"]);

    let other = "\n[[address]]\naddress = \"192.0.2.11/24\"\nprefer = 3\n";
    let new_map = FILE.replace("volume = \"db\"\nhost = \"esx\"", "volume = \"db\"\nhost = \"local\"");
    let plan = changes(
        &format!("{new_map}{other}"),
        &present,
        true,
        &[
            "- address 192.0.2.10/24",
            "- address fd00::10/64",
            "- map of volume db: LUN 0 of iqn.x:t for host esx",
            "+ map of volume db: a LUN of iqn.x:t for host local",
            "+ address 192.0.2.11/24",
        ],
    );
    assert!(plan.destroyed()[0].contains("remove the floating IP 192.0.2.10/24"), "{:?}", plan.destroyed());

    for (from, to, expected) in [
        ("/24", "/25", "its prefix length is 24, and cannot be changed to 25"),
        ("[1, 2]", "[1, 2]\nprefer = 2", "its preferred node is none, and cannot be changed to 2"),
        ("[1, 2]", "[1, 3]", "its list of nodes is 1, 2, and cannot be changed to 1, 3"),
        (
            "nodes = [1, 2]",
            "device = \"eth1\"",
            "its device is that of its network, and cannot be changed to eth1",
        ),
        ("2.10/24\"\nnodes = [1, 2]", "2.12/24\"\nnodes = [1, 9]", "the cluster has no node 9"),
    ] {
        let changed = named.replace(from, to);
        assert_ne!(changed, named, "{from}");
        conflicts(&format!("{FILE}{changed}"), &present, expected);
    }
    let later = &mut present.addresses[0];
    (later.address, later.state, later.portal_group) = ("192.0.2.10".into(), AddressState::Unreadable, None);
    conflicts(&format!("{FILE}{named}"), &present, "address 192.0.2.10: not readable by this node");
    let expected = ["- address fd00::10/64", "+ address 192.0.2.11/24"];
    changes(&format!("{FILE}{other}"), &present, true, &expected);
    assert!(!export::text(&export::declared(&present)).contains("192.0.2.10"));
}

#[test]
fn a_removed_lun_frees_its_number() {
    let mut present = present();
    present.volumes.push(volume("new", &[]));
    let file = FILE.replace("volume = \"db\"\nhost = \"esx\"", "volume = \"new\"\nhost = \"esx\"\nlun = 0");
    conflicts(&file, &present, "LUN 0 is volume db for host esx");
    let expected = [
        "- map of volume db: LUN 0 of iqn.x:t for host esx",
        "+ map of volume new: LUN 0 of iqn.x:t for host esx",
        "- volume new: 10G with all its data",
    ];
    let plan = planned(&file, &present, true).unwrap();
    let lines: Vec<String> = plan.steps.iter().map(|step| step.line()).collect();
    assert_eq!(lines[..2], expected[..2], "the file names volume db, and maps the other one");
    assert_eq!(lines[2..], expected[2..], "which the file does not declare");
}

#[test]
fn a_target_gets_another_alias_in_place() {
    let file = FILE.replace("\"iqn.x:t\"\n\n[[vol", "\"iqn.x:t\"\nalias = \"a\"\n\n[[vol");
    assert_ne!(file, FILE);
    changes(&file, &present(), false, &["~ target iqn.x:t: alias from none to a"]);
    let mut named = present();
    named.targets[0].alias = Some("a".into());
    named.targets[0].chap_user = Some("t".into());
    let plan =
        changes(FILE, &named, false, &["~ target iqn.x:t: alias from a to none, CHAP name from t to none"]);
    assert_eq!(
        plan.destroyed().len(),
        1,
        "hosts that ask for a proof are asked about: {:?}",
        plan.destroyed()
    );
}

#[test]
fn impossible_changes_are_refused_before_anything_is_done() {
    let present = present();
    for (from, to, expected) in [
        ("\"10G\"", "\"5G\"", "its size is 10G, and volumes can only grow"),
        ("\"10G\"", "\"10G\"\nkind = \"ram\"", "its kind is thick, and cannot be changed to ram"),
        ("\"10G\"", "\"10G\"\nblock-size = 4096", "its block-size is 512"),
        ("on = [2, 1]", "copies = 3", "it has copies on nodes 1, 2: to change their number"),
        ("host = \"esx\"", "host = \"web\"", "host \"web\" not found"),
        ("name = \"esx\"\ninit", "name = \"local\"\ninit", "is built in"),
    ] {
        let file = FILE.replace(from, to);
        assert_ne!(file, FILE, "{from}");
        conflicts(&file, &present, expected);
    }
    let new = FILE.replace("name = \"db\"", "name = \"new\"");
    conflicts(&new.replace("[2, 1]", "[1, 9]"), &present, "the cluster has no node 9");
    // On nodes other than the one that is asked.
    let elsewhere = new.replace("[2, 1]", "[2, 3]").replace("volume = \"db\"", "volume = \"new\"");
    let plan = planned(&elsewhere, &present, false).unwrap();
    assert!(
        plan.steps.iter().any(|step| step.line().contains("volume new")),
        "{}",
        plan::text(&plan.shown())
    );
    let mut alone = self::present();
    alone.volumes = vec![volume("db", &[])];
    conflicts(FILE, &alone, "it is not in the cluster's record");
    conflicts(&FILE.replace("on = [2, 1]", "copies = 2"), &alone, "it is not in the cluster's record");
    conflicts(&FILE.replace("on = [2, 1]", "on = [1]"), &alone, "it is not in the cluster's record");
    changes(&FILE.replace("on = [2, 1]", "copies = 1"), &alone, false, &[]);
    let in_other_pool = FILE.replace("on = [2, 1]", "pool = \"fast\"");
    conflicts(&in_other_pool, &alone, "its pool is default");
    alone.volumes = vec![volume("db", &[1])];
    conflicts(&in_other_pool, &alone, "its pool is default");
}

#[test]
fn a_file_that_makes_no_sense_is_refused() {
    for (file, expected) in [
        ("[[volume]]\nname = \"a\"\nsize = \"1G\"\nsise = 1", "sise"),
        ("[[volume]]\nname = \"a\"", "size"),
        ("[[volume]]\nname = \"a\"\nsize = \"big\"", "is not a size"),
        (
            "[[volume]]\nname = \"a\"\nsize = 1\n[[volume]]\nname = \"a\"\nsize = 2",
            "volume a is listed twice",
        ),
        (
            "[[volume]]\nname = \"a\"\nsize = 1\non = [1, 2]\nsplit-brain-policy = \"heartbeat\"",
            "accept-split-brain = true",
        ),
        ("[[volume]]\nname = \"a\"\nsize = 1\nsplit-brain-policy = \"prefer\"", "set `on`, too"),
        ("[[volume]]\nname = \"a\"\nsize = 1\non = [1]\ncopies = 1", "use either `on` or `copies`"),
        ("[[volume]]\nname = \"a\"\nsize = 1\ncopies = 5", "one to four copies"),
        ("[[volume]]\nname = \"a\"\nsize = 1\nreserve = 2", "its reserve cannot exceed its size"),
        ("[[volume]]\nname = \"a\"\nsize = 1\nwhen-full = \"wait\"", "unknown variant"),
        ("[[volume]]\nname = \"a\"\nsize = 1\non = [1, 1]", "node of volume \"a\" 1 is listed twice"),
        (
            "[[map]]\ntarget = \"t\"\nvolume = \"a\"\n[[map]]\ntarget = \"t\"\nvolume = \"a\"",
            "is listed twice",
        ),
        (
            "[[map]]\ntarget = \"t\"\nvolume = \"a\"\nlun = 1\n[[map]]\ntarget = \"t\"\nvolume = \"b\"\nlun = 1",
            "LUN 1 of t for local is listed twice",
        ),
        ("[[address]]\naddress = \"san1\"", "\"san1\" is not an address"),
        (
            "[[address]]\naddress = \"192.0.2.10/24\"\n[[address]]\naddress = \"192.0.2.10/25\"",
            "address 192.0.2.10 is listed twice",
        ),
        (
            "[[address]]\naddress = \"192.0.2.10/24\"\nnodes = [1, 1]",
            "node of address \"192.0.2.10/24\" 1 is listed twice",
        ),
        ("volume = 3", "invalid type"),
    ] {
        let error = Declared::parse(file).unwrap_err();
        assert!(error.contains(expected), "{file}: {error}");
    }
}
