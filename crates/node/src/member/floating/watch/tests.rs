use super::*;

/// This node, and two others, in the lives of these tests.
const ME: Life = Life { node: 1, incarnation: 7 };
const OTHER: Life = Life { node: 2, incarnation: 4 };
const THIRD: Life = Life { node: 3, incarnation: 9 };

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A watch that began at 0.
fn new() -> Watch {
    Watch::new(ME, at(0))
}

/// A holder that was heard just now.
fn held_by(life: Life) -> Known {
    Known {
        life,
        unsure: false,
        asked_by: None,
        silence: None,
        reached_by_others: false,
        heard_in: Some(life.incarnation),
        dead: false,
    }
}

fn silent_for(silence: u64) -> Known {
    Known { silence: Some(ms(silence)), ..held_by(OTHER) }
}

const SCENE: Scene = Scene {
    unreadable: false,
    wanted: true,
    may: true,
    device: Device::Off,
    quiet: true,
    preferred: false,
    prefers_another: false,
    asked_for: false,
};

/// A watch that has reached the record from `since` to `until` while this holder was in doubt.
fn reaching(watch: &mut Watch, holder: &Known, since: u64, until: u64) {
    for now in (since..=until).step_by(500) {
        assert!(watch.looks_at_record(at(now), Some(holder)), "at {now} ms");
        watch.handle_record(at(now), true);
    }
}

#[test]
fn the_record_confirms_the_holder_once_a_second_and_for_four() {
    let (mut watch, mine) = (new(), held_by(ME));
    assert_eq!(watch.confirms(at(1000), Some(&mine), Device::Off), Some(ms(1000)));
    assert_eq!(watch.left(at(1000)), ms(0), "it has not answered yet");
    watch.handle_confirmation(at(1000), true);
    // From the moment of the request.
    assert_eq!([1000, 1100, 4999, 5000].map(|now| watch.left(at(now))), [4000, 3900, 1, 0].map(ms));
    assert_eq!(watch.confirms(at(1999), Some(&mine), Device::On), None);
    assert_eq!(watch.confirms(at(2000), Some(&mine), Device::On), Some(ms(1000)));
    // There was no answer.
    assert_eq!(watch.confirms(at(4800), Some(&mine), Device::On), Some(ms(200)), "then it is removed");
    assert_eq!(watch.confirms(at(5000), Some(&mine), Device::On), None, "it is removed first");
    assert!(!watch.look(at(5000), Some(&mine), &SCENE).confirmed);
    assert_eq!(watch.confirms(at(5100), Some(&mine), Device::Off), Some(ms(1000)));
    watch.handle_confirmation(at(5100), true);
    assert!(watch.look(at(5200), Some(&mine), &SCENE).confirmed);
    watch.handle_confirmation(at(6100), false);
    assert!(!watch.look(at(6200), Some(&mine), &SCENE).confirmed);
}

#[test]
fn a_confirmation_does_not_survive_another_holder() {
    for other in [None, Some(held_by(OTHER)), Some(held_by(Life { incarnation: 6, ..ME }))] {
        let mut watch = new();
        watch.handle_confirmation(at(1000), true);
        assert_eq!(watch.confirms(at(1100), other.as_ref(), Device::On), None);
        assert_eq!(watch.left(at(1100)), ms(0), "{other:?}");
    }
}

#[test]
fn the_holder_in_the_record_is_one_of_these() {
    let mut watch = new();
    let mut standing = |holder: Option<Known>, unreadable: bool| {
        watch.look(at(100), holder.as_ref(), &Scene { unreadable, ..SCENE }).holder
    };
    assert_eq!(standing(None, false), Holder::Nobody);
    assert_eq!(standing(None, true), Holder::Unreadable);
    assert_eq!(standing(Some(held_by(ME)), false), Holder::Me);
    assert_eq!(standing(Some(held_by(Life { incarnation: 6, ..ME })), false), Holder::Former);
    assert_eq!(standing(Some(held_by(OTHER)), false), Holder::Heard);
    assert_eq!(standing(Some(Known { dead: true, ..held_by(OTHER) }), false), Holder::Over);
}

#[test]
fn a_holder_is_silent_only_to_a_node_that_reaches_the_record() {
    let holder = |watch: &mut Watch, now: u64, known: &Known| watch.look(at(now), Some(known), &SCENE).holder;
    let mut watch = new();
    assert!(!watch.looks_at_record(at(0), Some(&silent_for(499))));
    assert_eq!(holder(&mut watch, 9000, &silent_for(9000)), Holder::Heard, "it has not looked at the record");
    reaching(&mut watch, &silent_for(500), 10_000, 11_500);
    assert!(!watch.looks_at_record(at(11_900), Some(&silent_for(2400))), "it has looked just now");
    assert_eq!(holder(&mut watch, 11_499, &silent_for(2000)), Holder::Heard);
    assert_eq!(holder(&mut watch, 11_500, &silent_for(1999)), Holder::Heard);
    assert_eq!(holder(&mut watch, 11_500, &silent_for(2000)), Holder::Silent);
    let reached = Known { reached_by_others: true, ..silent_for(9000) };
    assert_eq!(holder(&mut watch, 11_500, &reached), Holder::Heard, "only this node is cut off from it");
    watch.handle_record(at(12_000), false);
    assert_eq!(holder(&mut watch, 12_100, &silent_for(3000)), Holder::Heard, "this node does not reach it");
    reaching(&mut watch, &silent_for(3500), 12_600, 14_100);
    assert_eq!(holder(&mut watch, 14_100, &silent_for(5000)), Holder::Silent);
    assert!(!watch.looks_at_record(at(14_200), Some(&held_by(OTHER))));
    assert_eq!(holder(&mut watch, 14_200, &silent_for(5000)), Holder::Heard, "it was heard in between");
}

#[test]
fn a_holder_that_was_heard_in_a_later_life_has_lost_the_address() {
    let mut watch = new();
    let later = Known { heard_in: Some(5), ..held_by(OTHER) };
    reaching(&mut watch, &later, 0, 1500);
    assert_eq!(watch.look(at(1500), Some(&later), &SCENE).holder, Holder::Silent);
}

#[test]
fn a_holder_that_says_three_times_that_it_does_not_have_the_address_has_let_it_go() {
    let mut watch = new();
    let holder = held_by(OTHER);
    for (now, says) in [(0, Some(false)), (2000, None), (4000, Some(false)), (6000, Some(false))] {
        assert!(watch.asks_holder(at(now), Some(&holder)));
        watch.handle_holder(says);
        assert!(!watch.asks_holder(at(now + 1999), Some(&holder)));
    }
    reaching(&mut watch, &holder, 6000, 7500);
    assert_eq!(watch.look(at(7900), Some(&holder), &SCENE).holder, Holder::Heard, "twice in a row");
    assert!(watch.asks_holder(at(8000), Some(&holder)));
    watch.handle_holder(Some(false));
    assert_eq!(watch.look(at(8000), Some(&holder), &SCENE).holder, Holder::Silent);
    // It cannot reach the record, but nor can this node.
    watch.handle_record(at(8000), false);
    reaching(&mut watch, &silent_for(600), 8500, 10_000);
    assert_eq!(watch.look(at(10_000), Some(&holder), &SCENE).holder, Holder::Heard);
}

#[test]
fn what_a_holder_says_counts_for_its_life_only() {
    let mut watch = new();
    for now in [0, 2000, 4000] {
        assert!(watch.asks_holder(at(now), Some(&held_by(OTHER))));
        watch.handle_holder(Some(false));
    }
    assert!(watch.asks_holder(at(4100), Some(&held_by(THIRD))), "it was not asked yet");
    watch.handle_holder(Some(false));
    assert_eq!(watch.let_go, 1);
    for unasked in
        [None, Some(held_by(ME)), Some(silent_for(1)), Some(Known { unsure: true, ..held_by(THIRD) })]
    {
        assert!(!watch.asks_holder(at(9000), unasked.as_ref()), "{unasked:?}");
        assert_eq!(watch.let_go, 0);
    }
}

#[test]
fn two_nodes_that_do_not_hear_each_other_do_not_take_it_from_each_other() {
    let mut watch = new();
    assert_eq!(watch.look(at(10_000), Some(&held_by(ME)), &SCENE).holder, Holder::Me);
    // The other one has taken it, because this node was silent to it.
    reaching(&mut watch, &silent_for(5000), 12_000, 14_000);
    let mut holder = |now: u64, silence: u64| watch.look(at(now), Some(&silent_for(silence)), &SCENE).holder;
    assert_eq!(holder(14_000, 5000), Holder::Heard);
    assert_eq!(holder(20_000, 5999), Holder::Silent, "it was heard since");
    assert_eq!(holder(20_000, 6000), Holder::Heard);
    assert_eq!(holder(73_999, 60_000), Holder::Heard);
    assert_eq!(holder(74_000, 60_000), Holder::Silent, "a minute has passed");
}

#[test]
fn a_node_that_gave_it_up_has_not_lost_it() {
    let mut watch = new();
    let asked = Scene { asked_for: true, ..SCENE };
    assert_eq!(watch.look(at(10_000), Some(&held_by(ME)), &asked).holder, Holder::Me);
    reaching(&mut watch, &silent_for(5000), 12_000, 14_000);
    assert_eq!(watch.look(at(14_000), Some(&silent_for(5000)), &SCENE).holder, Holder::Silent);
}

#[test]
fn a_node_that_takes_over_from_a_silent_one_waits() {
    let (mut watch, unsure) = (new(), Known { unsure: true, ..held_by(ME) });
    let mut waited = |now: u64, known: &Known| watch.look(at(now), Some(known), &SCENE).waited;
    assert!(!waited(1000, &unsure));
    assert!(!waited(6499, &unsure));
    assert!(waited(6500, &unsure));
    assert!(waited(6600, &held_by(ME)), "it has set the address, and says so");
    assert!(!waited(6700, &unsure), "it has taken over again");
}

#[test]
fn a_free_address_is_left_to_the_preferred_node_for_a_while() {
    let mut watch = new();
    let scene = Scene { prefers_another: true, ..SCENE };
    let mut leaves =
        |now: u64, holder: Option<&Known>, scene: &Scene| watch.look(at(now), holder, scene).leaves_first;
    assert!(leaves(1000, None, &scene));
    assert!(!leaves(1100, None, &SCENE), "it is not up, or there is none");
    assert!(leaves(3999, None, &scene));
    assert!(!leaves(4000, None, &scene));
    assert!(!leaves(5000, Some(&held_by(OTHER)), &scene));
    assert!(leaves(6000, None, &scene), "it is free again");
}

#[test]
fn a_node_that_could_not_set_the_address_leaves_it_to_others_for_a_minute() {
    let mut watch = new();
    let scene = Scene { preferred: true, ..SCENE };
    let sees = |watch: &mut Watch, now: u64| {
        let seen = watch.look(at(now), None, &scene);
        (seen.may, seen.settled)
    };
    assert_eq!(sees(&mut watch, 59_999), (true, false), "it has not been up for long");
    assert_eq!(sees(&mut watch, 60_000), (true, true));
    watch.handle_put_on(at(70_000), false);
    assert_eq!(sees(&mut watch, 129_999), (false, false));
    assert_eq!(sees(&mut watch, 130_000), (true, false), "nor does it ask for the address");
    watch.handle_put_on(at(131_000), true);
    assert_eq!(sees(&mut watch, 131_000), (true, true));
    assert!(!watch.look(at(131_000), None, &Scene { may: false, ..scene }).may);
}

#[test]
fn a_node_knows_where_the_address_is_only_in_part() {
    let mut watch = new();
    let seen = |holder: Holder, unsure: bool, confirmed: bool| Seen {
        holder,
        unsure,
        confirmed,
        ..new().look(at(0), None, &SCENE)
    };
    let mine = |confirmed: bool, is_reached: bool| {
        new().whereabouts(&seen(Holder::Me, false, confirmed), is_reached, true)
    };
    assert_eq!(mine(false, true), Whereabouts::Unknown, "another node may have taken over");
    assert_eq!([mine(true, true), mine(true, false)], [Whereabouts::Held, Whereabouts::Nobody]);
    let silent = |nodes_vote: bool| new().whereabouts(&seen(Holder::Silent, false, false), false, nodes_vote);
    assert_eq!([silent(true), silent(false)], [Whereabouts::Nobody, Whereabouts::Unknown]);
    let heard = seen(Holder::Heard, false, false);
    assert_eq!(watch.whereabouts(&heard, false, true), Whereabouts::Unknown, "it was not asked");
    for (says, whereabouts) in [(true, Whereabouts::Held), (false, Whereabouts::Nobody)] {
        watch.handle_holder(Some(says));
        assert_eq!(watch.whereabouts(&heard, false, true), whereabouts);
    }
    watch.handle_holder(Some(true));
    let waits = seen(Holder::Heard, true, false);
    assert_eq!(watch.whereabouts(&waits, false, true), Whereabouts::Nobody, "it waits for its predecessor");
}
