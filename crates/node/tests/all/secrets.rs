//! Which LUNs a session sees if host groups require a secret.

use initiator::{Chap, Credentials, Lun, Options, Session, discover};
use node::Config;
use node::access::{ChapSecret, HostGroup, HostName};
use node::control::{MapSpec, TargetChange, TargetSpec};
use proto::iscsi::target_role::TargetRecord;

use crate::rig::{Rig, Shape, TARGET, log_in, named};
use crate::seeds::each_seed;

const USER: &str = "keeper";
const SECRET: &str = "a secret of 16 b";

/// Creates a group of all hosts that know the secret, and maps the volume "ram" to it as LUN 7.
fn add_vault(rig: &Rig) {
    rig.control(|control| async move {
        let chap = Some(ChapSecret { user: USER.into(), secret: SECRET.into() });
        let addresses = vec!["0.0.0.0/0".parse().unwrap()];
        let vault = HostGroup { name: "vault".parse().unwrap(), initiators: Vec::new(), addresses, chap };
        control.set_host(vault, true).await.unwrap();
        let spec = MapSpec { target: TARGET.into(), host: "vault".into(), lun: Some(7) };
        control.map("ram", spec).await.unwrap();
    });
}

fn with_secret(name: &str, secret: &str) -> Options {
    let initiator = Credentials { name: USER.into(), secret: secret.into() };
    Options { chap: Some(Chap { initiator, target: None }), ..named(name) }
}

#[test]
fn an_unauthenticated_session_does_not_see_luns_that_need_a_secret() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add(Shape { lun: 1, ..Shape::ram() });
        let client = rig.client("client");
        let early = client.run(|portal| async move { log_in(portal, "early", 0).await });
        add_vault(&rig);
        client.run(|portal| async move {
            early.make_ready(Lun(0)).await.unwrap();
            assert_eq!(early.report_luns().await.unwrap(), [Lun(0), Lun(1)]);
            assert!(early.identify(Lun(7)).await.is_err());
            let without = Session::connect(portal, TARGET, &named("without")).await;
            assert!(without.is_err(), "whoever belongs to the group has to prove itself");
            let wrong = Session::connect(portal, TARGET, &with_secret("wrong", "not the secret!!")).await;
            assert!(wrong.is_err());
            let keeper = Session::connect(portal, TARGET, &with_secret("keeper", SECRET)).await.unwrap();
            keeper.make_ready(Lun(7)).await.unwrap();
            assert_eq!(keeper.report_luns().await.unwrap(), [Lun(0), Lun(1), Lun(7)]);
        });
    });
}

#[test]
fn sessions_continue_when_a_targets_secret_changes() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let client = rig.client("client");
        let session = client.run(|portal| async move { log_in(portal, "early", 0).await });
        let sessions = || {
            rig.control(|control| async move {
                let sessions = control.sessions().await.unwrap();
                sessions.iter().map(|session| session.tsih).collect::<Vec<u16>>()
            })
        };
        let before = sessions();
        rig.control(|control| async move {
            let chap = Some(Some(ChapSecret { user: "target".into(), secret: SECRET.into() }));
            let change = TargetChange { alias: Some(Some("disks".into())), chap };
            control.change_target(TARGET, change).await.unwrap();
            let access = control.access();
            let target = access.target(TARGET).unwrap();
            assert_eq!((target.alias.as_deref(), target.maps.len()), (Some("disks"), 1));
            assert_eq!(target.chap.as_ref().map(|chap| chap.secret.as_str()), Some(SECRET));
            let short = Some(Some(ChapSecret { user: "target".into(), secret: "short".into() }));
            let refused =
                control.change_target(TARGET, TargetChange { chap: short, ..TargetChange::default() });
            assert!(refused.await.is_err());
        });
        assert_eq!((before.len(), sessions()), (1, before));
        client.run(|_| async move { assert_eq!(session.report_luns().await.unwrap(), [Lun(0)]) });
    });
}

/// Three targets: for all hosts, for those that know the secret, and for another host.
fn with_targets(discovery_chap: bool) -> Rig {
    let rig = Rig::with_config(1, 2, Config { discovery_chap, ..Config::default() });
    rig.add(Shape::thick());
    rig.add(Shape { lun: 1, ..Shape::ram() });
    rig.control(|control| async move {
        let chap = Some(ChapSecret { user: USER.into(), secret: SECRET.into() });
        for (name, initiator, chap) in [("vault", "keeper", chap), ("others", "other", None)] {
            let initiators = vec![format!("iqn.2026-01.org.ursa:{initiator}")];
            let name: HostName = name.parse().unwrap();
            let group = HostGroup { name: name.clone(), initiators, addresses: Vec::new(), chap };
            control.set_host(group, true).await.unwrap();
            let target = format!("iqn.2026-01.org.ursa:{name}");
            let spec = TargetSpec { name: target.clone(), alias: None, chap: None };
            control.create_target(spec).await.unwrap();
            control.map("ram", MapSpec { target, host: name.to_string(), lun: None }).await.unwrap();
        }
    });
    rig
}

fn discovered(rig: &Rig, options: Options) -> Option<Vec<String>> {
    let found = rig.client("client").run(move |portal| async move { discover(portal, &options).await });
    let name = |target: TargetRecord| target.name.rsplit_once(':').unwrap().1.to_owned();
    found.ok().map(|targets| targets.into_iter().map(name).collect())
}

#[test]
fn discovery_shows_each_initiator_what_it_may_log_in_to() {
    let rig = with_targets(false);
    assert_eq!(discovered(&rig, named("stranger")).unwrap(), ["target"]);
    assert_eq!(discovered(&rig, named("other")).unwrap(), ["others", "target"]);
    assert_eq!(discovered(&rig, named("keeper")).unwrap(), ["target", "vault"]);
}

#[test]
fn discovery_requires_the_secret_of_the_targets_if_configured() {
    let rig = with_targets(true);
    assert_eq!(discovered(&rig, named("stranger")).unwrap(), ["target"]);
    assert_eq!(discovered(&rig, named("other")).unwrap(), ["others", "target"]);
    // An initiator whose name requires a secret must know it.
    assert_eq!(discovered(&rig, named("keeper")), None);
    assert_eq!(discovered(&rig, with_secret("keeper", "not the secret!!")), None);
    assert_eq!(discovered(&rig, with_secret("keeper", SECRET)).unwrap(), ["target", "vault"]);
}

#[test]
fn no_secret_is_set_for_both_directions() {
    let rig = Rig::new(1, 2);
    rig.add(Shape::thick());
    rig.add(Shape { lun: 1, ..Shape::ram() });
    add_vault(&rig);
    rig.control(|control| async move {
        let chap = |secret: &str| Some(ChapSecret { user: "whoever".into(), secret: secret.into() });
        let prove = |secret| TargetChange { chap: Some(chap(secret)), ..TargetChange::default() };
        assert!(control.change_target(TARGET, prove(SECRET)).await.is_err(), "initiators prove it");
        assert!(control.check_changed_target(TARGET, prove(SECRET)).is_err());
        let name = "iqn.2026-01.org.ursa:second".to_owned();
        let spec = TargetSpec { name, alias: None, chap: chap(SECRET) };
        assert!(control.create_target(spec).await.is_err());
        control.change_target(TARGET, prove("the target's own")).await.unwrap();
        let group = |secret| HostGroup {
            name: "others".parse().unwrap(),
            initiators: Vec::new(),
            addresses: Vec::new(),
            chap: chap(secret),
        };
        assert!(control.set_host(group("the target's own"), true).await.is_err(), "a target proves it");
        control.set_host(group(SECRET), true).await.unwrap();
        assert!(control.set_host(group("the target's own"), false).await.is_err());
        assert!(control.check_changed_host(&group("the target's own")).is_err());
    });
}
