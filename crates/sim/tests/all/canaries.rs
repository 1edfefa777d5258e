//! The simulation detects mistakes, each in one of the first seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use replica::canary::Canary as Rule;
use sim::{Canary, PARTS, Plan, harm, run};
use store::canary::Canary as Flaw;

/// Number of seeds within which a mistake must be detected.
const SEEDS: u64 = 250;

/// What a check of logs says when it notices a mistake.
struct InLogs {
    check: &'static str,
    says: &'static str,
    canary: Canary,
    /// The plans in which nothing but logs can make it say so.
    plans: fn(&Plan) -> bool,
    /// A seed that showed it.
    before: u64,
}

const TESTING: &str = include_str!("../../../../docs/testing.md");

const IN_LOGS: [InLogs; 3] = [
    InLogs {
        check: "A2, A8",
        says: "was in sync and lost power, and sector",
        canary: Canary::Store(Flaw::RecordCached),
        plans: |plan| plan.has("logs"),
        before: 8,
    },
    InLogs {
        check: "A3",
        says: "in one epoch, and is",
        canary: Canary::Store(Flaw::ConvertOnce),
        plans: |plan| plan.converts,
        before: 36,
    },
    InLogs {
        check: "A4",
        says: "and no bit says so",
        canary: Canary::Rule(Rule::NoIntent),
        plans: |plan| plan.logs[0] && (plan.logs[1] || plan.beside.is_none()),
        before: 7,
    },
];

fn notices(plan: &Plan, canary: Canary) -> bool {
    catch_unwind(AssertUnwindSafe(|| run(plan, Some(canary)))).is_err()
}

/// Whether the run ends with a panic that says this.
fn says(plan: &Plan, canary: Canary, text: &str) -> bool {
    let ended = catch_unwind(AssertUnwindSafe(|| run(plan, Some(canary))));
    ended.is_err_and(|panic| panic.downcast_ref::<String>().is_some_and(|said| said.contains(text)))
}

/// The seed that detected something before, which must be one of the first, and then all of these.
fn seeds(before: u64) -> impl Iterator<Item = u64> {
    assert!(before < SEEDS, "seed {before} is named, and only those below {SEEDS} count");
    std::iter::once(before).chain(0..SEEDS)
}

/// Tries the seed that detected it before, and then the others.
fn one_that_notices(canary: Canary, before: u64) -> Option<u64> {
    seeds(before).find(|seed| notices(&Plan::from_seed(*seed), canary))
}

/// A seed whose plan has the part, and which detects the mistake because of it.
fn one_that_shows(part: &str, canary: Canary, before: u64) -> Option<u64> {
    let shows = |seed: &u64| {
        let plan = Plan::from_seed(*seed);
        plan.has(part) && notices(&plan, canary) && !notices(&plan.without(part), canary)
    };
    seeds(before).find(shows)
}

/// Calls `work` for each of these, on all cores.
fn for_each<T: Sync>(all: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(one);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn mistakes_are_noticed() {
    for_each(&Canary::NOTICED, |(canary, before)| {
        let seed = one_that_notices(*canary, *before);
        println!("{canary}: {seed:?}");
        assert!(seed.is_some(), "{canary} was not noticed in {SEEDS} seeds");
    });
}

/// The checks of what is on the disks themselves, which read logs by opening images.
#[test]
fn each_check_of_logs_notices_a_mistake() {
    for_each(&IN_LOGS, |it| {
        let notices = |seed: &u64| {
            let plan = Plan::from_seed(*seed);
            (it.plans)(&plan) && says(&plan, it.canary, it.says)
        };
        let seed = seeds(it.before).find(notices);
        println!("{}: {}, {seed:?}", it.check, it.canary);
        assert!(seed.is_some(), "{} did not notice {} in logs in {SEEDS} seeds", it.check, it.canary);
    });
}

#[test]
fn faults_show_mistakes() {
    for_each(&Canary::SHOWN_BY, |(part, canary, before)| {
        let seed = one_that_shows(part, *canary, *before);
        println!("{part}: {canary}, {seed:?}");
        assert!(seed.is_some(), "{part} did not show {canary} in {SEEDS} seeds");
    });
}

/// The table of `docs/testing.md` is this list.
#[test]
fn the_documentation_says_what_shows_each_fault() {
    let rows = TESTING.lines().skip_while(|line| !line.starts_with("| fault, or part of the plan |")).skip(2);
    let rows = rows.map_while(|row| row.strip_prefix("| ")?.strip_suffix(" |"));
    let rows: Vec<String> = rows.map(shown_in).collect();
    let listed = Canary::SHOWN_BY.iter().map(|(part, canary, seed)| format!("{part}, {canary}, {seed}"));
    assert_eq!(rows, listed.collect::<Vec<_>>());
}

/// The fault, the mistake and the seed in a row of that table.
fn shown_in(row: &str) -> String {
    let cells: Vec<&str> = row.split(" | ").collect();
    let [part, shows, seed] = cells[..] else { panic!("not three columns: {row}") };
    let canary = shows.split('`').nth(1).unwrap();
    format!("{part}, {canary}, {seed}")
}

/// The lists of `docs/testing.md` are these.
#[test]
fn the_documentation_lists_what_is_noticed_and_what_is_shown_by_nothing() {
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names
    };
    let noticed = Canary::NOTICED.iter().map(|(canary, _)| canary.to_string()).collect();
    assert_eq!(sorted(listed_after("`Canary::NOTICED`")), sorted(noticed));
    let unshown = Canary::UNSHOWN.iter().map(|part| (*part).to_owned()).collect();
    assert_eq!(sorted(listed_after("must be in `Canary::UNSHOWN`")), sorted(unshown));
}

/// The names at the beginning of the items of the first list after `text`.
fn listed_after(text: &str) -> Vec<String> {
    let (_, after) = TESTING.split_once(text).unwrap();
    let lines = after.lines().skip_while(|line| !line.starts_with("- "));
    let items = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("- "));
    let names = items.flat_map(|item| {
        let (names, _) = item.split_once(": ").unwrap();
        names.split('`').skip(1).step_by(2)
    });
    names.map(str::to_owned).collect()
}

#[test]
fn each_fault_and_part_of_a_plan_shows_a_mistake_or_is_known_to_show_none() {
    for part in harm::ALL.iter().map(|harm| harm.name).chain(PARTS) {
        let shows = Canary::SHOWN_BY.iter().any(|(shown, ..)| *shown == part);
        assert!(shows != Canary::UNSHOWN.contains(&part), "{part}");
    }
}
