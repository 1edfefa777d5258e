use super::*;

/// The node that has the vote, and the one that continues without it.
const A: u16 = 1;
const B: u16 = 2;
const PARENT: u64 = 5;
const FORK: u64 = PARENT + (1 << 32);

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

fn record() -> ForkRecord {
    ForkRecord {
        volume: "0123456789abcdef0123456789abcdef".to_owned(),
        made: 1,
        parent: PARENT,
        epoch: FORK,
        without: A,
        life: 3,
        at: 0,
        split: false,
    }
}

/// A fork that this life acts in.
fn going() -> Fork {
    let mut fork = Fork::begun(record());
    assert!(fork.handle_written(false, true));
    fork.go();
    fork
}

/// A fork that serves no host any more.
fn frozen(split: bool) -> Fork {
    let mut fork = going();
    fork.freeze();
    if split {
        fork.handle_split_written();
    }
    fork
}

/// The record answers, and says nothing about the fork.
const ANSWERS: Look = Look { quorum: true, void: false, said: RecordedSplit::Nothing };
const SILENT: Look = Look { quorum: false, ..ANSWERS };

#[test]
fn a_node_continues_alone_only_if_all_conditions_hold() {
    let grounds =
        Grounds { gone: true, heard: at(1000), led: Some(at(1000)), well: true, may_have_left: false };
    assert!(grounds.hold(at(6000)));
    assert!(!grounds.hold(at(5999)), "it is too early");
    for missing in [
        Grounds { gone: false, ..grounds },
        Grounds { heard: at(1001), ..grounds },
        Grounds { led: Some(at(999)), ..grounds },
        Grounds { led: None, ..grounds },
        Grounds { well: false, ..grounds },
        Grounds { may_have_left: true, ..grounds },
    ] {
        assert!(!missing.hold(at(6000)), "{missing:?}");
    }
}

#[test]
fn nothing_is_done_before_it_is_known_whether_a_fork_is_written_down() {
    let fork = Fork::begun(record());
    for quorum in [false, true] {
        for void in [false, true] {
            assert_eq!(fork.look(Look { quorum, void, said: RecordedSplit::Nothing }), Step::Wait);
        }
    }
}

#[test]
fn a_fork_that_may_be_written_down_is_void_before_it_is_forgotten() {
    let mut fork = Fork::begun(record());
    fork.handle_unwritten();
    assert_eq!(fork.look(SILENT), Step::Wait);
    assert_eq!(fork.look(ANSWERS), Step::SayVoid);
    assert_eq!(fork.look(Look { void: true, ..ANSWERS }), Step::ForgetVoid);
    assert_eq!(fork.look(Look { void: true, ..SILENT }), Step::ForgetVoid);
    // A later life has found it after all.
    assert_eq!(Fork::found(record()).look(Look { void: true, ..SILENT }), Step::ForgetVoid);
}

#[test]
fn a_node_that_was_heard_meanwhile_or_is_out_by_the_record_does_not_act() {
    for (heard, named) in [(true, true), (false, false), (true, false)] {
        let mut fork = Fork::begun(record());
        assert!(!fork.handle_written(heard, named));
        assert_eq!(fork.phase(), Phase::Dormant);
        // No host was served: nothing is lost with it.
        assert_eq!(fork.judge(false, Epoch(PARENT), RecordedSplit::Nothing), Judgement::Unused);
        assert_eq!(fork.look(SILENT), Step::Resume);
    }
}

#[test]
fn an_earlier_lifes_fork_is_resumed_unless_it_is_a_split() {
    assert_eq!(Fork::found(record()).look(SILENT), Step::Resume);
    assert_eq!(Fork::found(record()).look(ANSWERS), Step::Settle);
    let split = Fork::found(ForkRecord { split: true, ..record() });
    assert_eq!(split.look(SILENT), Step::Wait);
    for fork in [going(), frozen(false), frozen(true)] {
        assert_eq!(fork.look(SILENT), Step::Wait, "it continues as it is");
    }
}

#[test]
fn the_record_is_followed_only_where_it_has_the_copy_in_sync_after_the_fork() {
    let fork = going();
    assert!(!fork.allows(Epoch(PARENT + 1), true));
    assert!(!fork.allows(Epoch(FORK), true));
    assert!(!fork.allows(Epoch(FORK + 1), false));
    assert!(fork.allows(Epoch(FORK + 1), true));
}

#[test]
fn a_node_that_the_record_has_in_sync_wins() {
    for fork in [going(), Fork::found(record()), frozen(false)] {
        for said in
            [RecordedSplit::Nothing, RecordedSplit::Undecided, RecordedSplit::Keep(A), RecordedSplit::Keep(B)]
        {
            assert_eq!(fork.settle(Newest::InSync(Epoch(PARENT)), said), Verdict::Win);
            assert_eq!(fork.settle(Newest::InSync(Epoch(PARENT + 3)), said), Verdict::Win);
            assert_eq!(fork.settle(Newest::InSync(Epoch(FORK + 1)), said), Verdict::End);
        }
    }
}

#[test]
fn a_node_that_the_record_has_out_of_sync_stops_before_anything_else() {
    for fork in [going(), Fork::found(record()), frozen(false)] {
        for said in [RecordedSplit::Nothing, RecordedSplit::Undecided, RecordedSplit::Keep(B)] {
            assert_eq!(fork.settle(Newest::Outside, said), Verdict::Freeze);
        }
    }
}

#[test]
fn what_no_host_has_seen_is_discarded() {
    let fork = frozen(false);
    assert_eq!(fork.judge(false, Epoch(PARENT), RecordedSplit::Nothing), Judgement::Unused);
    assert_eq!(fork.judge(true, Epoch(PARENT), RecordedSplit::Nothing), Judgement::SaySplit);
    assert_eq!(fork.judge(false, Epoch(FORK), RecordedSplit::Nothing), Judgement::SaySplit, "a reservation");
}

#[test]
fn what_nobody_knows_counts_as_used() {
    assert_eq!(
        Fork::found(record()).judge(false, Epoch(PARENT), RecordedSplit::Nothing),
        Judgement::SaySplit
    );
    let mut fork = going();
    fork.handle_closed();
    fork.freeze();
    assert_eq!(fork.judge(false, Epoch(PARENT), RecordedSplit::Nothing), Judgement::SaySplit);
    // Not if it has not acted: there is nothing that anybody could have seen.
    let mut fork = Fork::begun(record());
    fork.handle_closed();
    fork.handle_written(true, true);
    assert_eq!(fork.judge(false, Epoch(PARENT), RecordedSplit::Nothing), Judgement::Unused);
}

#[test]
fn a_split_is_said_then_written_down_then_left_to_an_administrator() {
    let mut fork = frozen(false);
    assert_eq!(fork.look(ANSWERS), Step::Settle);
    assert_eq!(fork.judge(true, Epoch(PARENT), RecordedSplit::Nothing), Judgement::SaySplit);
    let said = Look { said: RecordedSplit::Undecided, ..ANSWERS };
    assert_eq!(fork.look(said), Step::Settle, "this node's record does not say it yet");
    assert_eq!(fork.judge(true, Epoch(PARENT), RecordedSplit::Undecided), Judgement::WriteSplit);
    assert!(!fork.rests(FORK));
    fork.handle_split_written();
    assert_eq!(fork.look(said), Step::Wait);
    assert!(fork.rests(FORK) && !fork.rests(FORK + 1));
    let decided = Look { said: RecordedSplit::Keep(A), ..ANSWERS };
    assert_eq!(fork.look(decided), Step::Settle);
    assert_eq!(fork.settle(Newest::Outside, RecordedSplit::Keep(A)), Verdict::GiveUp);
}

/// As if the node had been lost between any two steps, with whatever its own record says by then.
#[test]
fn a_later_life_comes_to_the_same_end() {
    let later = Fork::found(record());
    assert_eq!(later.settle(Newest::Outside, RecordedSplit::Undecided), Verdict::Freeze);
    let mut later = later;
    later.freeze();
    assert_eq!(later.judge(false, Epoch(PARENT), RecordedSplit::Undecided), Judgement::WriteSplit);
    let later = Fork::found(ForkRecord { split: true, ..record() });
    assert_eq!(later.settle(Newest::Outside, RecordedSplit::Keep(A)), Verdict::GiveUp);
    assert_eq!(
        later.settle(Newest::Outside, RecordedSplit::Undecided),
        Verdict::Freeze,
        "hosts are not served"
    );
}

#[test]
fn a_decision_that_came_too_early_is_revoked() {
    for fork in [going(), frozen(false), Fork::found(record())] {
        assert_eq!(fork.settle(Newest::Outside, RecordedSplit::Keep(A)), Verdict::Freeze);
        assert_eq!(fork.judge(true, Epoch(PARENT), RecordedSplit::Keep(A)), Judgement::SaySplit);
    }
}

#[test]
fn what_was_removed_or_deleted_meanwhile_is_kept() {
    let used = going();
    assert_eq!(used.settle(Newest::Removed, RecordedSplit::Nothing), Verdict::Leave);
    assert_eq!(used.settle(Newest::Removed, RecordedSplit::Keep(A)), Verdict::Leave, "that came too early");
    assert_eq!(frozen(true).settle(Newest::Removed, RecordedSplit::Keep(A)), Verdict::Drop);
    assert_eq!(used.settle(Newest::Deleted { gone: false }, RecordedSplit::Nothing), Verdict::Outlive);
    assert_eq!(used.settle(Newest::Deleted { gone: true }, RecordedSplit::Nothing), Verdict::Drop);
    let unused = Fork::begun(record());
    for newest in [Newest::Removed, Newest::Deleted { gone: false }] {
        assert_eq!(unused.settle(newest, RecordedSplit::Nothing), Verdict::Drop);
    }
    let mut left = going();
    left.leave();
    assert_eq!(left.look(Look { said: RecordedSplit::Undecided, ..ANSWERS }), Step::Wait);
    assert_eq!(left.look(Look { said: RecordedSplit::Keep(A), ..ANSWERS }), Step::Settle);
    assert_eq!(left.look(ANSWERS), Step::Settle, "the record does not say it yet");
}

#[test]
fn rules_that_are_left_out_are_noticed() {
    let rules: [(Canary, fn()); 5] = [
        (Canary::ForkUnled, a_node_continues_alone_only_if_all_conditions_hold),
        (Canary::ForkThoughHeard, a_node_that_was_heard_meanwhile_or_is_out_by_the_record_does_not_act),
        (Canary::ForkFollowsRecord, the_record_is_followed_only_where_it_has_the_copy_in_sync_after_the_fork),
        (Canary::ForkUnused, what_no_host_has_seen_is_discarded),
        (Canary::ForkWordEarly, a_decision_that_came_too_early_is_revoked),
    ];
    for (canary, test) in rules {
        crate::canary::make(Some(canary));
        let noticed = std::panic::catch_unwind(test).is_err();
        crate::canary::make(None);
        assert!(noticed, "{canary:?} was not noticed");
    }
}
