use proto::scsi::{Affected, UnitAttention};

use super::super::rig::{agreed, assert_noticed, durable, offer, saved, version};
use super::*;

/// A member in the slot that gives up first.
fn new() -> Member {
    Member::new(Slot::new(0).unwrap())
}

/// A node that acts in this epoch, with the state of these flags.
fn here(epoch: u64, flags: u8) -> Here {
    Here { epoch: Some(Epoch(epoch)), state: saved(flags), stored: true }
}

/// Does all that the member wants, successfully, in this epoch. Returns what that was.
fn work(member: &mut Member, epoch: u64) -> Vec<Work> {
    let mut all = Vec::new();
    while let Some(work) = member.poll() {
        all.push(work.clone());
        match work {
            Work::Store(_) => member.handle_stored(Stored::Done),
            Work::Answer(_) => assert!(member.poll().is_none(), "it has answered"),
            _ => member.handle_done(Some(Epoch(epoch))),
        }
    }
    all
}

/// A member of epoch 7 that has this change.
fn having(agreed: Agreed) -> Member {
    let mut member = new();
    member.handle_open(true);
    member.handle_offer(&here(7, 1), offer(7, None, agreed));
    assert_eq!(work(&mut member, 7).last(), Some(&Work::Answer(true)));
    member
}

/// The change that members of these tests have: of epoch 7, by node 3.
fn before() -> Agreed {
    agreed(version(7, 4, 3), 5, &[])
}

fn news(flags: u8) -> Work {
    Work::Install(Box::new(News { state: saved(flags), notices: Vec::new(), abort: Abort::NONE }))
}

fn told(agreed: Agreed) -> Option<MemberReport> {
    Some(MemberReport { agreed, known: true, stored: true })
}

#[test]
fn a_change_is_stored_then_installed_and_then_answered() {
    let mut member = having(before());
    let notices = vec![Notice { to: Affected::All, attention: UnitAttention::ReservationsPreempted }];
    let change = Agreed {
        notices: notices.clone(),
        abort: Abort::All,
        ..agreed(version(7, 5, 1), 7, &[version(7, 4, 3)])
    };
    member.handle_offer(&here(7, 5), offer(7, Some(version(7, 4, 3)), change.clone()));
    let news = News { state: saved(7), notices, abort: Abort::All };
    let all = [Work::Store(durable(7)), Work::Install(Box::new(news)), Work::Answer(true)];
    assert_eq!(work(&mut member, 7), all);
    assert_eq!(member.tell(&here(7, 7), Epoch(7)), told(change));
    assert_eq!(member.installed(), Some(version(7, 5, 1)));
}

#[test]
fn what_the_pool_has_is_not_stored_again_unless_it_failed_to_store_something() {
    let same = agreed(version(7, 5, 1), 5, &[version(7, 4, 3)]);
    let mut member = having(before());
    member.handle_offer(&here(7, 5), offer(7, None, same.clone()));
    assert_eq!(work(&mut member, 7), [news(5), Work::Answer(true)]);
    let mut member = having(before());
    member.handle_offer(&Here { stored: false, ..here(7, 5) }, offer(7, None, same));
    assert_eq!(work(&mut member, 7), [Work::Store(durable(5)), news(5), Work::Answer(true)]);
}

#[test]
fn nothing_is_told_or_taken_in_an_epoch_that_the_node_does_not_act_in() {
    let mut member = having(before());
    for epoch in [None, Some(Epoch(6)), Some(Epoch(8))] {
        let elsewhere = Here { epoch, ..here(7, 5) };
        assert_eq!(member.tell(&elsewhere, Epoch(7)), None);
        member.handle_offer(&elsewhere, offer(7, None, agreed(version(7, 5, 1), 7, &[])));
        assert_eq!(work(&mut member, 7), [Work::Answer(false)]);
    }
    assert_eq!(member.tell(&here(7, 5), Epoch(7)), told(before()));
}

#[test]
fn the_first_member_takes_only_what_was_decided_against_its_own_state() {
    let change = || agreed(version(7, 6, 1), 7, &[]);
    let mut member = having(before());
    for expected in [version(7, 3, 3), version(7, 5, 3), version(7, 4, 2)] {
        member.handle_offer(&here(7, 5), offer(7, Some(expected), change()));
        assert_eq!(work(&mut member, 7), [Work::Answer(false)], "{expected:?}");
    }
    member.handle_membership(false);
    member.handle_offer(&here(7, 5), offer(7, Some(version(7, 4, 3)), change()));
    assert_eq!(work(&mut member, 7), [Work::Answer(false)], "it does not know");
}

#[test]
fn an_older_change_is_not_taken() {
    let mut member = having(before());
    for older in [version(7, 3, 9), version(6, 9, 9), version(7, 4, 2)] {
        member.handle_offer(&here(7, 5), offer(7, None, agreed(older, 7, &[])));
        assert_eq!(work(&mut member, 7), [Work::Answer(false)], "{older:?}");
    }
    assert_eq!(member.tell(&here(7, 5), Epoch(7)), told(before()));
}

#[test]
fn a_change_that_comes_twice_is_confirmed() {
    let mut member = having(before());
    member.handle_offer(&here(7, 5), offer(7, None, before()));
    assert_eq!(work(&mut member, 7), [Work::Answer(true)]);
    // The first offer of it. The node that decided it finds it when it asks again.
    member.handle_offer(&here(7, 5), offer(7, Some(version(7, 3, 3)), before()));
    assert_eq!(work(&mut member, 7), [Work::Answer(false)]);
}

#[test]
fn what_lost_nodes_have_left_of_aborted_commands_is_waited_for_each_time() {
    let aborting = Agreed { abort: Abort::All, ..before() };
    let mut member = having(aborting.clone());
    member.handle_offer(&here(8, 5), offer(8, None, aborting.clone()));
    assert_eq!(work(&mut member, 8), [Work::AwaitOrphans, Work::Answer(true)]);
    member.handle_offer(&here(8, 5), offer(8, None, aborting));
    assert_eq!(member.poll(), Some(Work::AwaitOrphans));
    member.handle_done(Some(Epoch(9)));
    assert_eq!(member.poll(), Some(Work::Answer(false)), "it may have forgotten what it waited for");
}

#[test]
fn half_a_change_is_not_told() {
    let mut member = having(before());
    let change = agreed(version(7, 5, 1), 7, &[version(7, 4, 3)]);
    member.handle_offer(&here(7, 5), offer(7, None, change.clone()));
    assert_eq!(member.poll(), Some(Work::Store(durable(7))));
    assert_eq!(member.tell(&here(7, 5), Epoch(7)), told(before()));
    member.handle_stored(Stored::Done);
    assert_eq!(member.poll(), Some(news(7)));
    // Core 0 has the new state already.
    assert_eq!(member.tell(&here(7, 7), Epoch(7)), told(before()));
    assert_eq!(member.installed(), None);
    member.handle_done(Some(Epoch(7)));
    assert_eq!(member.poll(), Some(Work::Answer(true)));
    assert_eq!(member.tell(&here(7, 7), Epoch(7)), told(change));
}

#[test]
fn a_change_that_the_members_change_under_is_in_force_and_not_confirmed() {
    let mut member = having(before());
    let change = agreed(version(7, 5, 1), 7, &[version(7, 4, 3)]);
    member.handle_offer(&here(7, 5), offer(7, None, change.clone()));
    assert_eq!(work(&mut member, 8), [Work::Store(durable(7)), news(7), Work::Answer(false)]);
    assert_eq!(member.tell(&here(8, 7), Epoch(8)), told(change), "the next question finds it");
}

#[test]
fn a_member_that_does_not_know_takes_whatever_the_others_have() {
    for offered in [version(8, 1, 1), version(7, 4, 3), version(7, 1, 1)] {
        let mut member = having(before());
        member.handle_membership(true);
        assert!(member.is_known());
        member.handle_membership(false);
        let notices = vec![Notice { to: Affected::All, attention: UnitAttention::ReservationsPreempted }];
        let newest = Agreed { notices, abort: Abort::All, ..agreed(offered, 7, &[]) };
        member.handle_offer(&here(8, 5), offer(8, None, newest.clone()));
        // It is no news to the initiators here. What they sent before the loss ends first.
        let all = [Work::Store(durable(7)), news(7), Work::AwaitWrites, Work::Answer(true)];
        assert_eq!(work(&mut member, 8), all);
        assert_eq!(member.tell(&here(8, 7), Epoch(8)), told(newest));
    }
}

#[test]
fn a_member_that_may_have_been_out_in_between_does_not_know() {
    let mut member = having(before());
    member.handle_activation(true);
    member.handle_membership(true);
    assert!(member.is_known());
    member.handle_activation(false);
    member.handle_membership(true);
    assert!(!member.is_known());
}

#[test]
fn what_was_learned_in_an_epoch_that_is_over_is_not_known() {
    let mut member = new();
    member.handle_offer(&here(7, 1), offer(7, None, before()));
    assert_eq!(
        work(&mut member, 8),
        [Work::Store(durable(5)), news(5), Work::AwaitWrites, Work::Answer(false)]
    );
    assert!(!member.is_known());
    let unknown = MemberReport { agreed: before(), known: false, stored: true };
    assert_eq!(member.tell(&here(8, 5), Epoch(8)), Some(unknown));
}

#[test]
fn a_copy_that_is_opened_again_does_not_know() {
    let mut member = having(before());
    member.handle_open(false);
    assert!(!member.is_known());
}

#[test]
fn others_do_not_wait_for_a_pool_that_hangs() {
    for (slot, seconds) in [(0, 5), (3, 8)] {
        let mut member = Member::new(Slot::new(slot).unwrap());
        member.handle_offer(&here(7, 1), offer(7, None, before()));
        assert_eq!(member.poll(), Some(Work::Store(durable(5))));
        for _ in 0..seconds - 1 {
            member.handle_second(false);
            assert!(member.is_storing() && member.poll().is_none(), "slot {slot}");
        }
        // While it is the last one, it has to wait.
        member.handle_second(true);
        assert!(member.is_storing() && member.poll().is_none(), "slot {slot}");
        member.handle_second(false);
        assert!(!member.is_storing());
        assert_eq!(member.poll(), Some(Work::GiveUpDisk(DiskFault::Silent)));
        member.handle_stored(Stored::Done);
        assert_eq!(member.poll(), None, "it is too late");
        member.handle_done(Some(Epoch(7)));
        assert_eq!(member.poll(), Some(Work::Answer(false)));
        assert!(!member.take_unstored());
    }
}

#[test]
fn a_pool_that_stores_late_has_stored() {
    let mut member = new();
    member.handle_offer(&here(7, 1), offer(7, None, before()));
    assert_eq!(member.poll(), Some(Work::Store(durable(5))));
    (0..4).for_each(|_| member.handle_second(false));
    member.handle_stored(Stored::Done);
    assert_eq!(member.poll(), Some(news(5)));
    member.handle_second(false);
    assert_eq!(member.poll(), None, "nothing is being stored");
}

#[test]
fn a_copy_whose_disk_fails_leaves_and_the_only_one_says_that_it_failed() {
    for alone in [false, true] {
        let mut member = having(before());
        member.handle_offer(&here(7, 5), offer(7, None, agreed(version(7, 5, 1), 7, &[])));
        assert_eq!(member.poll(), Some(Work::Store(durable(7))));
        member.handle_stored(Stored::DiskFailed { alone });
        assert_eq!(member.poll(), Some(Work::GiveUpDisk(DiskFault::Write)));
        member.handle_done(Some(Epoch(7)));
        assert_eq!(member.poll(), Some(Work::Answer(false)));
        assert_eq!([member.take_unstored(), member.take_unstored()], [alone, false]);
        assert_eq!(member.tell(&here(7, 5), Epoch(7)), told(before()), "nothing has changed");
    }
    let mut member = having(before());
    member.handle_offer(&here(7, 5), offer(7, None, agreed(version(7, 5, 1), 7, &[])));
    assert_eq!(member.poll(), Some(Work::Store(durable(7))));
    member.handle_stored(Stored::Refused);
    assert_eq!(member.poll(), Some(Work::Answer(false)), "a full file system is not a failed disk");
}

#[test]
fn rules_that_are_left_out_are_noticed() {
    let rules: [(Canary, fn()); 6] = [
        (Canary::InstallUnexpected, the_first_member_takes_only_what_was_decided_against_its_own_state),
        (Canary::TakeOlder, an_older_change_is_not_taken),
        (Canary::OrphansOnce, what_lost_nodes_have_left_of_aborted_commands_is_waited_for_each_time),
        (Canary::NotStored, a_change_is_stored_then_installed_and_then_answered),
        (Canary::GoOnAfterLoss, a_member_that_does_not_know_takes_whatever_the_others_have),
        (Canary::InstallUnnamed, a_change_that_the_members_change_under_is_in_force_and_not_confirmed),
    ];
    for (canary, test) in rules {
        assert_noticed(canary, test);
    }
}
