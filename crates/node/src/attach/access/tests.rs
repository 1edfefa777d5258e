use base::Rng;

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn volume(n: u8) -> VolumeId {
    VolumeId([n; 16])
}

fn host(name: &str, initiators: &[&str], addresses: &[&str], chap: bool) -> HostGroup {
    HostGroup {
        name: name.parse().unwrap(),
        initiators: initiators.iter().map(|name| (*name).to_owned()).collect(),
        addresses: addresses.iter().map(|range| range.parse().unwrap()).collect(),
        chap: chap.then(|| ChapSecret { user: "user".into(), secret: "a secret of 16 b".into() }),
    }
}

fn access(maps: &[(u16, u8, &str)], hosts: Vec<HostGroup>) -> Access {
    let maps = maps.iter().map(|(lun, n, host)| LunMap {
        lun: *lun,
        volume: volume(*n),
        host: host.parse().unwrap(),
    });
    let target = Target {
        name: T.parse().unwrap(),
        port: 1,
        alias: None,
        chap: None,
        maps: maps.collect(),
        made_with: None,
    };
    Access::new([target], hosts)
}

fn claim(from: &str, proven: Option<&ChapSecret>) -> Claim {
    Claim { address: address(from), proven: proven.cloned() }
}

const T: &str = "iqn.2026-11.io.ursa:t";
const A: &str = "iqn.2026-11.com.example:a";
const B: &str = "iqn.2026-11.com.example:b";

#[test]
fn the_default_is_to_deny() {
    let empty = access(&[], vec![]);
    assert_eq!(empty.admit(T, A, address("127.0.0.1")), Err(Denied::NotMapped));
    assert_eq!(empty.admit("iqn.2026-11.io.ursa:x", A, address("127.0.0.1")), Err(Denied::NoSuchTarget));
    let unknown_group = access(&[(0, 1, "gone")], vec![]);
    assert_eq!(unknown_group.admit(T, A, address("127.0.0.1")), Err(Denied::NotMapped));
}

#[test]
fn local_is_this_machine_and_any_is_everybody() {
    let local = access(&[(0, 1, "local")], vec![]);
    assert!(local.admit(T, A, address("127.0.0.9")).is_ok());
    assert!(local.admit(T, A, address("::ffff:127.0.0.1")).is_ok());
    assert!(local.admit(T, A, address("10.0.0.1")).is_err());
    assert!(access(&[(0, 1, "any")], vec![]).admit(T, A, address("10.0.0.1")).is_ok());
}

#[test]
fn name_and_address_must_both_fit() {
    let groups = vec![host("db", &[A], &["10.1.0.0/16"], false)];
    let access = access(&[(0, 1, "db")], groups);
    assert!(access.admit(T, A, address("10.1.255.1")).is_ok());
    assert!(access.admit(T, A, address("10.2.0.1")).is_err());
    assert!(access.admit(T, B, address("10.1.0.1")).is_err());
    assert_eq!(access.visible(B, address("10.1.0.1")).count(), 0);
    assert_eq!(access.visible(A, address("10.1.0.1")).count(), 1);
}

#[test]
fn groups_share_members_if_names_and_addresses_meet() {
    let shares = |one: &HostGroup, other: &HostGroup| {
        let shares = one.may_share_members(other);
        assert_eq!(other.may_share_members(one), shares);
        shares
    };
    let [any, local] = HostGroup::built_in();
    let a = host("a", &[A], &["10.1.0.0/16", "fd00::/8"], false);
    assert!(shares(&any, &local) && shares(&any, &a) && !shares(&local, &a));
    assert!(shares(&a, &host("b", &[A, B], &["10.1.2.3"], true)));
    assert!(shares(&a, &host("b", &[], &["fd00::1"], true)));
    assert!(!shares(&a, &host("b", &[B], &["10.1.2.3"], true)), "another name");
    assert!(!shares(&a, &host("b", &[A], &["10.2.0.0/16", "fe80::/10"], true)), "other addresses");
}

#[test]
fn each_host_sees_its_own_luns() {
    let groups = vec![host("a", &[A], &[], false), host("b", &[B], &[], true)];
    let access = access(&[(0, 1, "a"), (0, 2, "b"), (1, 3, "b"), (1, 4, "any")], groups);
    let secret = access.host("b").unwrap().chap.clone();
    assert_eq!(luns(&access, A, None), [(0, volume(1)), (1, volume(4))]);
    assert_eq!(
        luns(&access, B, secret.as_ref()),
        [(0, volume(2)), (1, volume(4))],
        "\"any\" comes before \"b\""
    );
    assert!(access.admit(T, A, address("10.0.0.1")).unwrap().chap.is_empty());
    assert_eq!(access.admit(T, B, address("10.0.0.1")).unwrap().chap.len(), 1);
}

/// The LUNs that a login with this proof sees.
fn luns(access: &Access, initiator: &str, proven: Option<&ChapSecret>) -> Vec<(u16, VolumeId)> {
    let from = address("10.0.0.1");
    let entered = access.enters(T, initiator, &claim("10.0.0.1", proven));
    access.luns(T, initiator, from, &entered).into_iter().collect()
}

#[test]
fn a_secret_shows_the_luns_of_its_own_groups_only() {
    let mut other = host("other", &[A], &[], true);
    other.chap = Some(ChapSecret { user: "user".into(), secret: "another of 16 by".into() });
    let own = host("own", &[A], &[], true);
    let (secret, wrong) =
        (own.chap.clone(), ChapSecret { user: "user".into(), secret: "no such secret!!".into() });
    let access = access(&[(0, 1, "own"), (1, 2, "other"), (2, 3, "any")], vec![own, other.clone()]);
    assert_eq!(access.admit(T, A, address("10.0.0.1")).unwrap().chap.len(), 2);
    assert_eq!(luns(&access, A, secret.as_ref()), [(0, volume(1)), (2, volume(3))]);
    assert_eq!(luns(&access, A, other.chap.as_ref()), [(1, volume(2)), (2, volume(3))]);
    assert_eq!(luns(&access, A, Some(&wrong)), [(2, volume(3))]);
    assert_eq!(luns(&access, A, None), [(2, volume(3))]);
}

#[test]
fn names_are_checked() {
    for good in
        ["iqn.2026-11.io.ursa:t", "iqn.1998-01.com.vmware", "eui.0123456789abcdef", "naa.0123456789abcdef"]
    {
        assert!(good.parse::<TargetName>().is_ok(), "{good}");
    }
    for bad in [
        "",
        "iqn.",
        "iqn.2026-11",
        "iqn.2026-11.",
        "iqn.26-11.io",
        "iqn.2026-11.io:A",
        "iqn.2026-11.io:a b",
        "eui.0",
        "x",
    ] {
        assert!(bad.parse::<TargetName>().is_err(), "{bad}");
    }
    assert!("db-1.x_y".parse::<VolumeName>().is_ok());
    for bad in ["", "-a", "a/b", "a b", &"a".repeat(64)] {
        assert!(bad.parse::<VolumeName>().is_err(), "{bad}");
    }
    assert!("10.0.0.0/33".parse::<AddressRange>().is_err());
    assert!("0.0.0.0/0".parse::<AddressRange>().unwrap().contains(address("1.2.3.4")));
    assert_eq!("fd00::/8".parse::<AddressRange>().unwrap().to_string(), "fd00::/8");
    let of = |text, prefix| AddressRange::new(address(text), prefix).ok();
    assert_eq!(of("10.1.2.3", 16), Some("10.1.2.3/16".parse().unwrap()));
    assert!(of("10.1.2.3", 16).unwrap().contains(address("10.1.9.9")));
    assert_eq!((of("10.1.2.3", 33), of("fd00::1", 129)), (None, None));
}

#[test]
fn secrets_are_not_shown() {
    assert!(!format!("{:?}", host("a", &[], &[], true)).contains("16 b"));
}

#[test]
fn a_volume_knows_its_targets() {
    let target = |name: &str, volumes: &[u8]| Target {
        name: name.parse().unwrap(),
        port: 1,
        alias: None,
        chap: None,
        maps: (0..)
            .zip(volumes)
            .map(|(lun, n)| LunMap { lun, volume: volume(*n), host: "any".parse().unwrap() })
            .collect(),
        made_with: None,
    };
    let access = Access::new([target(B, &[2, 1]), target(A, &[1, 1]), target(T, &[])], []);
    let names = |n| access.targets_of(volume(n)).map(|target| target.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names(1), [A, B]);
    assert_eq!(names(2), [B]);
    assert!(names(3).is_empty());
}

/// At random, creates, changes or deletes a host group or one of two targets.
fn random_change(rng: &mut Rng) -> AccessChange {
    let name: TargetName = [A, B][rng.below(2) as usize].parse().unwrap();
    let group: HostName = ["a", "b"][rng.below(2) as usize].parse().unwrap();
    let map = |rng: &mut Rng| LunMap {
        lun: rng.below(4) as u16,
        volume: volume(rng.below(4) as u8),
        host: "any".parse().unwrap(),
    };
    match rng.below(6) {
        0 => AccessChange::DeleteTarget(name),
        1 => AccessChange::DeleteHost(group),
        2 => AccessChange::SetHost(host(group.as_str(), &[], &[], rng.one_in(2))),
        _ => {
            let maps = (0..rng.below(4)).map(|_| map(rng)).collect();
            AccessChange::SetTarget(Target { name, port: 1, alias: None, chap: None, maps, made_with: None })
        }
    }
}

#[test]
fn a_changed_view_equals_a_fresh_one_and_others_see_no_change() {
    let mut rng = Rng::new(1);
    let mut access = Access::default();
    for _ in 0..2000 {
        let changes: Vec<AccessChange> = (0..1 + rng.below(2)).map(|_| random_change(&mut rng)).collect();
        let (after, concerned) = access.with(&changes);
        let drawn = Access::new(after.targets().cloned(), after.hosts().cloned());
        assert_eq!(format!("{after:?}"), format!("{drawn:?}"), "{changes:?}");
        for name in [A, B] {
            let seen = |access: &Access| {
                let entered = access.enters(name, T, &claim("10.0.0.1", None));
                access.luns(name, T, address("10.0.0.1"), &entered)
            };
            assert!(concerned.target(name) || seen(&after) == seen(&access), "{changes:?}");
        }
        for n in (0..4).map(volume) {
            let leads =
                |access: &Access| access.targets_of(n).map(|target| target.name.clone()).collect::<Vec<_>>();
            assert!(
                concerned.volumes().any(|volume| volume == n) || leads(&after) == leads(&access),
                "{changes:?}"
            );
        }
        access = after;
    }
}

#[test]
fn a_login_acts_for_a_session_only_if_it_enters_all_that_the_session_has() {
    let secret = |text: &str| ChapSecret { user: "user".into(), secret: text.into() };
    let with = |group: HostGroup, text: &str| HostGroup { chap: Some(secret(text)), ..group };
    let groups = vec![
        with(host("own", &[], &["10.1.0.0/16"], true), "the secret of own"),
        with(host("other", &[], &[], true), "the secret of another"),
        host("near", &[], &["10.1.0.0/24"], false),
    ];
    let access = access(&[(0, 1, "own"), (0, 2, "other"), (1, 3, "any")], groups);
    let (own, other) = (secret("the secret of own"), secret("the secret of another"));
    let entered = |from, proven| access.enters(T, A, &claim(from, proven));
    let acts = |session: &BTreeSet<HostName>, from, proven| access.acts_for(A, session, &claim(from, proven));
    let session = entered("10.1.0.1", Some(&own));
    assert_eq!(acts(&session, "10.1.0.1", Some(&own)), Ok(()));
    assert_eq!(acts(&session, "10.1.9.9", Some(&own)), Ok(()), "another address that the group admits");
    assert_eq!(acts(&session, "10.1.0.1", Some(&other)), Err(Barred::Secret));
    assert_eq!(acts(&session, "10.1.0.1", None), Err(Barred::Secret));
    assert_eq!(acts(&session, "10.2.0.1", Some(&own)), Err(Barred::Address));
    assert_eq!(acts(&session, "10.2.0.1", None), Err(Barred::Address));
    // A session that is only in `any` is replaced by a login that has proved more, and not the reverse.
    let open = entered("10.2.0.1", None);
    assert_eq!(acts(&open, "10.1.0.1", Some(&own)), Ok(()));
    assert_eq!(acts(&open, "192.0.2.1", None), Ok(()));
    // A deleted group excludes no login.
    let without = access.with(&[AccessChange::DeleteHost("own".parse().unwrap())]).0;
    assert_eq!(without.acts_for(A, &session, &claim("10.1.0.1", None)), Ok(()));
}

#[test]
fn a_target_proves_nothing_with_a_secret_of_initiators() {
    let secret = |text: &str| Some(ChapSecret { user: "user".into(), secret: text.into() });
    let target = |text: &str| Target {
        name: T.parse().unwrap(),
        port: 1,
        alias: None,
        chap: secret(text),
        maps: vec![LunMap { lun: 0, volume: volume(1), host: "any".parse().unwrap() }],
        made_with: None,
    };
    // The secret of another group, which has nothing to do with this target.
    let group = HostGroup { chap: secret("pasted everywhere"), ..host("else", &[B], &[], true) };
    let proves = |text| {
        let access = Access::new([target(text)], [group.clone()]);
        access.admit(T, A, address("10.0.0.1")).unwrap().target_chap
    };
    assert_eq!(proves("pasted everywhere"), None);
    assert_eq!(proves("the target's own"), secret("the target's own"));
}
