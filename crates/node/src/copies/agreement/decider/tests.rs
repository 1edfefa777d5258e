use proto::scsi::{Affected, LuState, Notice, UnitAttention};

use super::super::rig::{agreed, assert_noticed, members, offer, saved, version};
use super::*;

/// The node that decides.
const ME: NodeId = NodeId(2);

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

/// A decision that is answered by this number of bytes, which tells it from others.
fn decision(state: Option<LuState>, transfer: u64) -> Decision {
    Decision {
        state,
        durable: false,
        flush: false,
        abort: Abort::NONE,
        notices: Vec::new(),
        outcome: Outcome::good_out(transfer),
    }
}

fn told(agreed: Agreed) -> Reply {
    Reply::MemberReport(Box::new(MemberReport { agreed, known: true, stored: true }))
}

fn tell(number: u64, to: u16, epoch: u64) -> Query {
    Query { number, to: NodeId(to), question: Question::Tell(Epoch(epoch)) }
}

fn take(number: u64, to: u16, offer: Offer) -> Query {
    Query { number, to: NodeId(to), question: Question::Take(Box::new(offer)) }
}

fn asked(decider: &mut Decider) -> Vec<Query> {
    match decider.poll() {
        Some(Next::Ask(queries)) => queries,
        next => panic!("it asks: {next:?}"),
    }
}

fn assert_tries_again(decider: &mut Decider) {
    let next = decider.poll();
    assert!(matches!(next, Some(Next::TryAgain)), "{next:?}");
}

fn assert_decides(decider: &mut Decider) {
    let next = decider.poll();
    assert!(matches!(next, Some(Next::Decide)), "{next:?}");
}

fn assert_done(decider: &mut Decider, transfer: u64) {
    match decider.poll() {
        Some(Next::Done(outcome)) => assert_eq!(outcome.transfer, transfer),
        next => panic!("it is done: {next:?}"),
    }
}

/// An attempt in which all members have what is agreed, up to the decision.
fn begin(decider: &mut Decider, now: Instant, members: Members, agreed: &Agreed) {
    decider.begin(now, Some(members));
    for query in asked(decider) {
        decider.handle_reply(query.number, told(agreed.clone()));
    }
}

/// The state before the changes of these tests: node 3 has decided it in epoch 7.
fn before() -> Agreed {
    agreed(version(7, 4, 3), 1, &[])
}

/// A change of epoch 7 that this node has decided and offered to node 1.
fn offered(abort: Abort) -> Decider {
    let mut decider = Decider::new(ME, at(0), 0);
    begin(&mut decider, at(0), members(7, &[1, 2, 3]), &before());
    assert_decides(&mut decider);
    let decision = Decision { abort, ..decision(Some(saved(5)), 9) };
    decider.handle_decision(at(1), Some(version(7, 4, 3)), decision);
    assert_eq!(asked(&mut decider).len(), 1);
    decider
}

/// The number of the question in [`offered`].
const OFFER: u64 = 4;

#[test]
fn a_change_goes_to_the_first_member_then_to_the_others_and_is_then_answered() {
    let mut decider = Decider::new(ME, at(0), 0);
    decider.begin(at(0), Some(members(7, &[1, 2, 3])));
    assert_eq!(asked(&mut decider), [tell(1, 1, 7), tell(2, 2, 7), tell(3, 3, 7)]);
    for number in [3, 1, 2] {
        assert!(decider.poll().is_none(), "all must answer");
        decider.handle_reply(number, told(before()));
    }
    assert_decides(&mut decider);
    let notices = vec![Notice { to: Affected::All, attention: UnitAttention::ReservationsPreempted }];
    let decision = Decision { notices: notices.clone(), abort: Abort::All, ..decision(Some(saved(5)), 9) };
    decider.handle_decision(at(1), Some(version(7, 4, 3)), decision);
    let change = Agreed { notices, abort: Abort::All, ..agreed(version(7, 5, 2), 5, &[version(7, 4, 3)]) };
    assert_eq!(asked(&mut decider), [take(4, 1, offer(7, Some(version(7, 4, 3)), change.clone()))]);
    decider.handle_reply(4, Reply::Taken(true));
    let rest = offer(7, None, change);
    assert_eq!(asked(&mut decider), [take(5, 2, rest.clone()), take(6, 3, rest)]);
    decider.handle_reply(6, Reply::Taken(true));
    assert!(decider.poll().is_none(), "not all members have it");
    decider.handle_reply(5, Reply::Taken(true));
    assert_done(&mut decider, 9);
}

/// A joiner may have a lower slot. It must not be what two concurrent changes are decided by: the members
/// continue without it at once.
#[test]
fn the_first_member_is_one_that_is_in_sync() {
    let mut decider = Decider::new(ME, at(0), 0);
    let joining = Members { in_sync: vec![NodeId(2), NodeId(3)], ..members(7, &[1, 2, 3]) };
    begin(&mut decider, at(0), joining, &before());
    assert_decides(&mut decider);
    decider.handle_decision(at(1), Some(version(7, 4, 3)), decision(Some(saved(5)), 9));
    let asked = asked(&mut decider);
    assert_eq!(asked.iter().map(|query| query.to).collect::<Vec<_>>(), [NodeId(2)]);
}

#[test]
fn the_newest_state_is_brought_to_those_that_lack_it() {
    let mut decider = Decider::new(ME, at(0), 0);
    decider.begin(at(0), Some(members(7, &[1, 2, 3, 4])));
    assert_eq!(asked(&mut decider).len(), 4);
    let newest = agreed(version(7, 4, 3), 5, &[]);
    decider.handle_reply(1, told(agreed(version(7, 3, 3), 1, &[])));
    decider.handle_reply(2, told(newest.clone()));
    // A joiner, which knew more recent changes when it was a member, and lacks others.
    let unknown = MemberReport { agreed: agreed(version(7, 9, 1), 3, &[]), known: false, stored: true };
    decider.handle_reply(3, Reply::MemberReport(Box::new(unknown)));
    let unlearned = MemberReport { agreed: newest.clone(), known: false, stored: true };
    decider.handle_reply(4, Reply::MemberReport(Box::new(unlearned)));
    let newest = offer(7, None, newest);
    let lacking = [take(5, 1, newest.clone()), take(6, 3, newest.clone()), take(7, 4, newest)];
    assert_eq!(asked(&mut decider), lacking);
    decider.handle_reply(7, Reply::Taken(true));
    decider.handle_reply(5, Reply::Taken(true));
    assert!(decider.poll().is_none());
    decider.handle_reply(6, Reply::Taken(true));
    assert_decides(&mut decider);
}

#[test]
fn if_no_member_knows_what_copies_in_sync_have_on_their_disks_counts() {
    let mut learner = Decider::to_learn(ME);
    learner.begin(at(0), Some(Members { in_sync: vec![NodeId(1)], ..members(8, &[1, 2]) }));
    assert_eq!(asked(&mut learner).len(), 2);
    let unknown = |agreed| Reply::MemberReport(Box::new(MemberReport { agreed, known: false, stored: true }));
    let on_disk = agreed(version(0, 0, 0), 5, &[]);
    learner.handle_reply(1, unknown(on_disk.clone()));
    // The joiner's process knew more recent changes than the disk of the joiner's node, and has missed later
    // ones. The other process has just started.
    learner.handle_reply(2, unknown(agreed(version(7, 9, 2), 1, &[])));
    let newest = offer(8, None, on_disk);
    assert_eq!(asked(&mut learner), [take(3, 1, newest.clone()), take(4, 2, newest)]);
}

#[test]
fn a_member_that_does_not_answer_or_take_ends_the_attempt_when_all_others_have_answered() {
    for refusal in [Reply::Nothing, Reply::Taken(true)] {
        let mut decider = Decider::new(ME, at(0), 0);
        decider.begin(at(0), Some(members(7, &[1, 2])));
        assert_eq!(asked(&mut decider).len(), 2);
        decider.handle_reply(1, refusal);
        assert!(decider.poll().is_none());
        decider.handle_reply(2, told(before()));
        assert_tries_again(&mut decider);
    }
    for refusal in [Reply::Nothing, Reply::Taken(false), told(before())] {
        let mut decider = Decider::new(ME, at(0), 0);
        decider.begin(at(0), Some(members(7, &[1, 2])));
        assert_eq!(asked(&mut decider).len(), 2);
        decider.handle_reply(1, told(before()));
        decider.handle_reply(2, told(agreed(version(7, 3, 3), 1, &[])));
        assert_eq!(asked(&mut decider).len(), 1);
        decider.handle_reply(3, refusal.clone());
        assert_tries_again(&mut decider);

        let mut decider = offered(Abort::NONE);
        decider.handle_reply(OFFER, Reply::Taken(true));
        assert_eq!(asked(&mut decider).len(), 2);
        decider.handle_reply(5, refusal);
        decider.handle_reply(6, Reply::Taken(true));
        assert_tries_again(&mut decider);
    }
}

#[test]
fn what_changes_nothing_is_answered_at_once_if_all_have_stored_what_they_know() {
    for stored in [true, false] {
        let mut decider = Decider::new(ME, at(0), 0);
        decider.begin(at(0), Some(members(7, &[1, 2])));
        assert_eq!(asked(&mut decider).len(), 2);
        decider.handle_reply(1, told(before()));
        let knows = MemberReport { agreed: before(), known: true, stored };
        decider.handle_reply(2, Reply::MemberReport(Box::new(knows)));
        assert_decides(&mut decider);
        decider.handle_decision(at(1), Some(version(7, 4, 3)), decision(None, 9));
        if stored {
            assert_done(&mut decider, 9);
            continue;
        }
        let same = agreed(version(7, 5, 2), 1, &[version(7, 4, 3)]);
        assert_eq!(asked(&mut decider), [take(3, 1, offer(7, Some(version(7, 4, 3)), same))]);
    }
}

#[test]
fn nothing_is_decided_while_another_change_is_being_installed_here() {
    let mut decider = Decider::new(ME, at(0), 0);
    begin(&mut decider, at(0), members(7, &[1, 2, 3]), &before());
    assert_decides(&mut decider);
    decider.handle_decision(at(1), None, decision(None, 9));
    assert_tries_again(&mut decider);
}

/// The members have said what they know, and then another node has brought its change here.
#[test]
fn nothing_is_decided_against_a_state_that_not_all_members_may_have() {
    let mut decider = Decider::new(ME, at(0), 0);
    begin(&mut decider, at(0), members(7, &[1, 2, 3]), &before());
    assert_decides(&mut decider);
    decider.handle_decision(at(1), Some(version(7, 5, 3)), decision(None, 9));
    assert_tries_again(&mut decider);
}

#[test]
fn nothing_is_decided_late() {
    let mut decider = Decider::new(ME, at(10_000), 0);
    begin(&mut decider, at(11_999), members(7, &[1, 2, 3]), &before());
    assert_decides(&mut decider);
    decider.handle_decision(at(12_001), Some(version(7, 4, 3)), decision(Some(saved(5)), 9));
    assert_tries_again(&mut decider);
    decider.begin(at(12_021), Some(members(7, &[1, 2, 3])));
    let next = decider.poll();
    assert!(matches!(next, Some(Next::Abandoned)), "{next:?}");
}

#[test]
fn a_change_that_lost_against_another_one_is_decided_again_on_top_of_it() {
    let mut decider = offered(Abort::NONE);
    decider.handle_reply(OFFER, Reply::Taken(false));
    assert_tries_again(&mut decider);
    let other = agreed(version(7, 5, 1), 3, &[version(7, 4, 3)]);
    begin(&mut decider, at(20), members(7, &[1, 2, 3]), &other);
    assert_decides(&mut decider);
    decider.handle_decision(at(20), Some(version(7, 5, 1)), decision(Some(saved(7)), 8));
    let mine = agreed(version(7, 6, 2), 7, &[version(7, 4, 3), version(7, 5, 1)]);
    assert_eq!(asked(&mut decider), [take(8, 1, offer(7, Some(version(7, 5, 1)), mine))]);
    decider.handle_reply(8, Reply::Taken(true));
    assert_eq!(asked(&mut decider).len(), 2);
    decider.handle_reply(9, Reply::Taken(true));
    decider.handle_reply(10, Reply::Taken(true));
    assert_done(&mut decider, 8);
}

#[test]
fn what_the_first_member_has_refused_is_not_waited_for() {
    for (reply, waits) in [(Reply::Taken(false), false), (Reply::Nothing, true)] {
        let mut decider = offered(Abort::NONE);
        decider.handle_reply(OFFER, reply);
        assert_tries_again(&mut decider);
        begin(&mut decider, at(1_990), members(7, &[1, 2, 3]), &before());
        assert_decides(&mut decider);
        decider.handle_decision(at(2_010), Some(version(7, 4, 3)), decision(Some(saved(5)), 9));
        assert_tries_again(&mut decider);
        decider.begin(at(2_030), Some(members(7, &[1, 2, 3])));
        match decider.poll() {
            Some(Next::Ask(_)) => assert!(waits, "no member has it"),
            Some(Next::Abandoned) => assert!(!waits, "the first member may have it"),
            next => panic!("{next:?}"),
        }
    }
}

#[test]
fn a_change_that_a_member_has_is_found_and_not_decided_again() {
    for (answer, late) in [(Reply::Nothing, true), (Reply::Taken(true), false)] {
        let mut decider = offered(Abort::All);
        decider.handle_reply(OFFER, answer);
        if !late {
            assert_eq!(asked(&mut decider).len(), 2);
            decider.handle_reply(5, Reply::Taken(true));
            decider.handle_reply(6, Reply::Nothing);
        }
        assert_tries_again(&mut decider);
        // Another change was decided on top of it.
        let newest = agreed(version(7, 6, 1), 3, &[version(7, 4, 3), version(7, 5, 2)]);
        begin(&mut decider, at(9_999), members(7, &[1, 2, 3]), &newest);
        assert_done(&mut decider, 9);
    }
}

#[test]
fn a_change_that_may_be_somewhere_is_looked_for_during_ten_seconds() {
    let mut decider = offered(Abort::NONE);
    decider.handle_reply(OFFER, Reply::Nothing);
    assert_tries_again(&mut decider);
    decider.begin(at(9_999), None);
    assert_tries_again(&mut decider);
    decider.begin(at(10_000), Some(members(7, &[1, 2, 3])));
    let next = decider.poll();
    assert!(matches!(next, Some(Next::Abandoned)), "{next:?}");
}

/// Its first member answered nothing, and is still taking it.
#[test]
fn a_change_that_was_given_up_is_not_taken_for_the_next_one() {
    let mut given_up = offered(Abort::NONE);
    given_up.handle_reply(OFFER, Reply::Nothing);
    assert_tries_again(&mut given_up);
    assert_eq!(given_up.numbered(), 5);
    let mut decider = Decider::new(ME, at(20_000), given_up.numbered());
    begin(&mut decider, at(20_000), members(7, &[1, 2, 3]), &before());
    assert_decides(&mut decider);
    decider.handle_decision(at(20_001), Some(version(7, 4, 3)), decision(Some(saved(7)), 8));
    let mine = agreed(version(7, 6, 2), 7, &[version(7, 4, 3)]);
    assert_eq!(asked(&mut decider), [take(4, 1, offer(7, Some(version(7, 4, 3)), mine))]);
    assert_eq!(decider.numbered(), 6);
    // By now it has taken the other one.
    decider.handle_reply(4, Reply::Taken(false));
    assert_tries_again(&mut decider);
    let other = agreed(version(7, 5, 2), 5, &[version(7, 4, 3)]);
    begin(&mut decider, at(20_020), members(7, &[1, 2, 3]), &other);
    assert_decides(&mut decider);
    decider.handle_decision(at(20_021), Some(version(7, 5, 2)), decision(Some(saved(3)), 7));
    let mine = agreed(version(7, 6, 2), 3, &[version(7, 4, 3)]);
    assert_eq!(asked(&mut decider), [take(8, 1, offer(7, Some(version(7, 5, 2)), mine))]);
}

#[test]
fn what_a_change_aborts_is_waited_for_again_in_a_later_epoch() {
    let mut decider = offered(Abort::All);
    decider.handle_reply(OFFER, Reply::Taken(true));
    assert_eq!(asked(&mut decider).len(), 2);
    decider.handle_reply(5, Reply::Taken(true));
    decider.handle_reply(6, Reply::Nothing);
    assert_tries_again(&mut decider);
    // The last change aborts nothing.
    let newest = agreed(version(7, 6, 1), 3, &[version(7, 5, 2)]);
    begin(&mut decider, at(500), members(8, &[1, 2]), &newest);
    let again = offer(8, None, Agreed { abort: Abort::All, ..newest });
    assert_eq!(asked(&mut decider), [take(9, 1, again.clone()), take(10, 2, again)]);
    decider.handle_reply(9, Reply::Taken(true));
    assert!(decider.poll().is_none());
    decider.handle_reply(10, Reply::Taken(true));
    assert_done(&mut decider, 9);
}

#[test]
fn a_change_of_an_earlier_epoch_that_no_member_has_is_decided_again() {
    let mut decider = offered(Abort::NONE);
    decider.handle_reply(OFFER, Reply::Nothing);
    assert_tries_again(&mut decider);
    begin(&mut decider, at(500), members(8, &[2, 3]), &before());
    assert_decides(&mut decider);
    decider.handle_decision(at(500), Some(version(7, 4, 3)), decision(Some(saved(5)), 8));
    let mine = agreed(version(8, 5, 2), 5, &[version(7, 4, 3)]);
    assert_eq!(asked(&mut decider), [take(7, 2, offer(8, Some(version(7, 4, 3)), mine))]);
}

#[test]
fn late_and_repeated_answers_count_for_nothing() {
    let mut decider = Decider::new(ME, at(0), 0);
    decider.begin(at(0), Some(members(7, &[1, 2])));
    assert_eq!(asked(&mut decider), [tell(1, 1, 7), tell(2, 2, 7)]);
    decider.handle_reply(1, told(before()));
    decider.handle_reply(1, told(before()));
    assert!(decider.poll().is_none(), "the other one has not answered");
    decider.handle_reply(2, Reply::Nothing);
    assert_tries_again(&mut decider);
    decider.begin(at(20), Some(members(8, &[1, 2])));
    assert_eq!(asked(&mut decider), [tell(3, 1, 8), tell(4, 2, 8)]);
    decider.handle_reply(2, told(agreed(version(7, 9, 9), 3, &[])));
    decider.handle_reply(3, told(before()));
    assert!(decider.poll().is_none(), "an answer of the attempt before");
    decider.handle_reply(4, told(before()));
    assert_decides(&mut decider);
    decider.handle_reply(4, Reply::Nothing);
    decider.handle_decision(at(21), Some(version(7, 4, 3)), decision(Some(saved(5)), 9));
    assert_eq!(asked(&mut decider).len(), 1);
    // As if the member that lacked something had answered after all.
    decider.handle_reply(4, Reply::Taken(true));
    assert!(decider.poll().is_none(), "the first member has not taken it");
    decider.handle_decision(at(22), Some(version(7, 4, 3)), decision(Some(saved(5)), 8));
    assert!(decider.poll().is_none(), "it is decided already");
    decider.handle_reply(5, Reply::Taken(true));
    assert_eq!(asked(&mut decider).len(), 1);
    decider.handle_reply(6, Reply::Taken(true));
    assert_done(&mut decider, 9);
}

#[test]
fn a_node_that_is_no_member_waits() {
    let mut decider = Decider::new(ME, at(0), 0);
    decider.begin(at(0), None);
    assert_tries_again(&mut decider);
    decider.begin(at(1_999), None);
    assert_tries_again(&mut decider);
    decider.begin(at(2_000), None);
    let next = decider.poll();
    assert!(matches!(next, Some(Next::Abandoned)), "{next:?}");
}

#[test]
fn a_node_that_learns_brings_the_newest_state_to_all_and_decides_nothing() {
    let mut learner = Decider::to_learn(ME);
    learner.begin(at(90_000), Some(members(7, &[1, 2])));
    assert_eq!(asked(&mut learner), [tell(1, 1, 7), tell(2, 2, 7)]);
    learner.handle_reply(1, told(before()));
    let blank = MemberReport { agreed: agreed(version(0, 0, 0), 1, &[]), known: false, stored: true };
    learner.handle_reply(2, Reply::MemberReport(Box::new(blank)));
    assert_eq!(asked(&mut learner), [take(3, 2, offer(7, None, before()))]);
    learner.handle_reply(3, Reply::Taken(true));
    let next = learner.poll();
    assert!(matches!(next, Some(Next::Settled)), "{next:?}");
}

#[test]
fn rules_that_are_left_out_are_noticed() {
    assert_noticed(Canary::DecideBeside, nothing_is_decided_while_another_change_is_being_installed_here);
}
