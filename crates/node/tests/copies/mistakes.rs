//! Scenarios for mistakes that are too rare in the simulation of whole nodes under any fault (`crates/sim`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use node::canary::{Canary, make};
use replica::canary::Canary as Rule;

use super::all_paths::nobody_sees_what_others_do_not;
use super::bad_blocks::{part_of_a_copy, shown_and_gone};
use super::full_disks::both_full;
use super::ghosts::{Long, left_by_a_lost_path};
use super::given_up::begun_late;
use super::partial_blocks::{bad_on_both, bad_on_one};
use super::reservations::{
    decided_beside_another, decided_on_both_sides_of_a_promotion, left_by_a_lost_node, lost_and_back,
};
use super::snapshots::one_instant;
use super::snapshots::restores::away_while_restored;
use super::syncs::hanging_disk;

/// Number of seeds within which a mistake must be detected.
const SEEDS: u64 = 200;

fn assert_noticed(canary: Canary, scenario: fn(u64)) {
    make(Some(canary));
    let noticed = one_that_fails(scenario);
    make(None);
    assert!(noticed.is_some(), "{canary:?} was not noticed in {SEEDS} seeds");
}

fn one_that_fails(scenario: fn(u64)) -> Option<u64> {
    (1..=SEEDS).find(|seed| catch_unwind(AssertUnwindSafe(|| scenario(*seed))).is_err())
}

/// Simulations of whole nodes hardly ever show this mistake: a late read detects a hanging disk, too.
#[test]
fn members_that_owe_acknowledgements_forever_are_noticed() {
    replica::canary::make(Some(Rule::NoOverdue));
    let noticed = one_that_fails(hanging_disk);
    replica::canary::make(None);
    assert!(noticed.is_some(), "it was not noticed in {SEEDS} seeds");
}

#[test]
fn a_part_that_speaks_for_its_copy_is_noticed() {
    assert_noticed(Canary::PartSpeaks, part_of_a_copy);
}

#[test]
fn a_snapshot_for_which_hosts_are_not_held_is_noticed() {
    assert_noticed(Canary::SnapshotUnheld, one_instant);
}

#[test]
fn a_restore_that_does_not_note_who_is_away_is_noticed() {
    assert_noticed(Canary::RestoreUnnoted, away_while_restored);
}

#[test]
fn a_command_that_continues_after_a_loss_is_noticed() {
    assert_noticed(Canary::GoOnAfterLoss, lost_and_back);
}

#[test]
fn a_write_that_begins_late_is_noticed() {
    assert_noticed(Canary::BeginLate, begun_late);
}

#[test]
fn a_command_whose_steps_have_separate_ages_is_noticed() {
    assert_noticed(Canary::AgeByStep, |seed| left_by_a_lost_path(seed, Long::Unmap));
    assert_noticed(Canary::AgeByStep, |seed| left_by_a_lost_path(seed, Long::Copy));
    assert_noticed(Canary::AgeByStep, |seed| left_by_a_lost_path(seed, Long::WriteSame));
}

#[test]
fn a_read_that_does_not_check_again_is_noticed() {
    assert_noticed(Canary::ReadOnce, nobody_sees_what_others_do_not);
}

#[test]
fn a_copy_that_sends_unconfirmed_data_is_noticed() {
    assert_noticed(Canary::FetchOnce, shown_and_gone);
}

#[test]
fn a_write_accepted_without_space_is_noticed() {
    assert_noticed(Canary::RoomUnasked, both_full);
}

#[test]
fn a_write_failed_for_lack_of_the_rest_is_noticed() {
    assert_noticed(Canary::MergeFails, bad_on_one);
}

#[test]
fn a_write_accepted_without_the_rest_is_noticed() {
    assert_noticed(Canary::RestUnasked, bad_on_both);
}

#[test]
fn not_waiting_for_orphans_is_noticed() {
    assert_noticed(Canary::OrphansOnce, left_by_a_lost_node);
}

#[test]
fn two_simultaneous_decisions_are_noticed() {
    assert_noticed(Canary::DecideBeside, decided_beside_another);
}

#[test]
fn a_later_change_treated_as_an_earlier_one_is_noticed() {
    assert_noticed(Canary::TakeOlder, decided_on_both_sides_of_a_promotion);
}
