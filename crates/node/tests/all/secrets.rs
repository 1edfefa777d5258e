//! Which LUNs a session sees of host groups that ask for a secret.

use initiator::{Chap, Credentials, Lun, Options, Session};
use node::access::{ChapSecret, HostGroup};
use node::control::MapSpec;

use crate::rig::{Rig, Shape, TARGET, log_in, named};
use crate::seeds::each_seed;

const USER: &str = "keeper";
const SECRET: &str = "a secret of 16 b";

/// Makes a host group of everybody who knows the secret, and shows it the volume "ram" as LUN 7.
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
fn who_proved_nothing_does_not_see_what_is_mapped_for_a_secret_later() {
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
