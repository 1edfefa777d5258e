//! A unit behind several controllers and portals that fail and come back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, Chain, Lba, LbaRange};
use initiator::command::AccessState;
use initiator::load::{self, Access, Until};
use initiator::multipath::{EffectKnown, Event, Failure, OpenError, PathState, What, Why};
use initiator::{Lun, Multipath, MultipathOptions, Policy, Search, UnitSelector};
use proto::scsi::AccessState as Alua;

use crate::array::{Array, BLOCK, BLOCKS};
use crate::ram_target::NAME;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// The most that a lost path may cost: two seconds until the target is pinged, five for its answer, both
/// rounded up to half a second, and a login elsewhere.
const LOSS: Duration = Duration::from_millis(8_500);

fn search(array: &Array) -> Search {
    Search {
        portals: array.all_portals(),
        target: Some(NAME.into()),
        unit: UnitSelector::Lun(Lun(0)),
        discover: false,
    }
}

fn open_with(array: &Array, options: MultipathOptions) -> Rc<Multipath> {
    let search = search(array);
    array.run(move || async move { Rc::new(Multipath::open(&search, options).await.unwrap()) })
}

fn open(array: &Array) -> Rc<Multipath> {
    open_with(array, MultipathOptions::default())
}

/// A block filled with a number.
fn block(number: u64) -> Chain {
    Chain::copy_of(&number.to_le_bytes().repeat(BLOCK.bytes() as usize / 8))
}

fn number_of(block: &[u8]) -> u64 {
    assert!(block.chunks(8).all(|chunk| chunk == &block[..8]), "a torn block");
    u64::from_le_bytes(*block.first_chunk().unwrap())
}

async fn read(unit: &Multipath, lba: u64) -> u64 {
    number_of(&unit.read(Lba(lba), BlockCount(1)).await.unwrap())
}

/// Does something, and returns how long it took.
fn timed<T: 'static, F: Future<Output = T> + 'static>(
    array: &Array,
    unit: &Rc<Multipath>,
    function: impl FnOnce(Rc<Multipath>) -> F + 'static,
) -> (T, Duration) {
    let unit = Rc::clone(unit);
    array.run(move || async move {
        let began = rt::now();
        let result = function(unit).await;
        (result, rt::now() - began)
    })
}

fn states(unit: &Multipath) -> Vec<PathState> {
    unit.paths().iter().map(|path| path.state).collect()
}

fn in_use(unit: &Multipath) -> Vec<bool> {
    unit.paths().iter().map(|path| path.in_use).collect()
}

fn happened(events: &[Event], wanted: impl Fn(&What) -> bool) -> usize {
    events.iter().filter(|event| wanted(&event.what)).count()
}

#[test]
fn paths_are_found_from_one_portal() {
    let array = Array::new(1, &[2, 1]);
    let first = array.portal(0, 0);
    let unit = array.run(move || async move {
        let by_number = Search {
            portals: vec![first],
            target: Some(NAME.into()),
            unit: UnitSelector::Lun(Lun(0)),
            discover: true,
        };
        let unit = Multipath::open(&by_number, MultipathOptions::default()).await.unwrap();
        assert_eq!(unit.capacity().blocks, BlockCount(BLOCKS));
        assert_eq!(unit.name().to_string(), "naa.60111111111111111111111111111111");
        let name = unit.name().clone();
        unit.close().await;
        let by_name = Search { target: None, unit: UnitSelector::Name(name), ..by_number };
        let options = MultipathOptions { sessions: 2, ..MultipathOptions::default() };
        let unit = Multipath::open(&by_name, options).await.unwrap();
        unit.write(Lba(3), block(7)).await.unwrap();
        unit.flush().await.unwrap();
        assert_eq!(read(&unit, 3).await, 7);
        let range = LbaRange::new(Lba(3), BlockCount(1)).unwrap();
        unit.unmap(&[range]).await.unwrap();
        assert_eq!(read(&unit, 3).await, 0);
        unit
    });
    let portals: Vec<_> = unit.paths().iter().map(|path| path.name.portal).collect();
    let all = array.all_portals();
    assert_eq!(portals, [all[0], all[0], all[1], all[1], all[2], all[2]]);
    assert_eq!(states(&unit), [PathState::Up; 6]);
    assert_eq!(in_use(&unit), [true; 6]);
}

/// A disk that accepts no more writes can still be read.
#[test]
fn a_unit_that_needs_help_is_found() {
    let array = Array::new(1, &[1]);
    array.shared.needs_help.set(true);
    let wanted = search(&array);
    array.run(move || async move {
        let unit = Multipath::open(&wanted, MultipathOptions::default()).await.unwrap();
        assert_eq!(read(&unit, 3).await, 0);
    });
}

#[test]
fn paths_that_cannot_be_opened_are_reported_with_reasons() {
    let array = Array::new(1, &[1]);
    let mut wrong_port = array.portal(0, 0);
    wrong_port.set_port(1);
    let wanted = search(&array);
    array.run(move || async move {
        let open =
            async |search: Search| Multipath::open(&search, MultipathOptions::default()).await.err().unwrap();
        let nobody = Search { portals: vec![wrong_port], target: None, ..wanted.clone() };
        let error = open(nobody).await;
        assert!(matches!(&error, OpenError::NoTarget(failed) if failed.len() == 1), "{error}");
        assert!(error.to_string().contains(":1: cannot connect"), "{error}");
        let no_such_unit = Search { unit: UnitSelector::Lun(Lun(5)), ..wanted.clone() };
        let error = open(no_such_unit).await;
        assert!(matches!(error, OpenError::NoUnit(_)), "{error}");
        let no_such_target = Search { target: Some("iqn.2026-01.org.ursa:no".into()), ..wanted };
        let error = open(no_such_target).await;
        assert!(error.to_string().contains("NotFound"), "{error}");
    });
}

#[test]
fn policies_spread_commands() {
    let spread = |policy| {
        let array = Array::new(1, &[1, 1]);
        let unit = open_with(&array, MultipathOptions { policy, ..MultipathOptions::default() });
        timed(&array, &unit, |unit| async move {
            for lba in 0..40 {
                unit.read(Lba(lba), BlockCount(1)).await.unwrap();
            }
        });
        unit.paths().iter().map(|path| path.commands).collect::<Vec<_>>()
    };
    assert_eq!(spread(Policy::RoundRobin(1)), [20, 20]);
    assert_eq!(spread(Policy::LeastQueueDepth), [20, 20]);
    assert_eq!(spread(Policy::Fixed(1)), [0, 40]);
    assert_eq!(spread(Policy::MostRecentlyUsed), [40, 0]);
    let by_time = spread(Policy::ServiceTime);
    assert_eq!(by_time.iter().sum::<u64>(), 40);
}

#[test]
fn a_lost_path_costs_a_short_stall_and_is_used_again() {
    for seed in 0..6 {
        let array = Array::new(seed, &[1, 1]);
        let unit = open(&array);
        array.run({
            let unit = Rc::clone(&unit);
            move || async move { unit.write(Lba(0), block(1)).await.unwrap() }
        });
        array.cut(seed as usize % 2, 0);
        // Until the loss is detected, some commands use the lost path.
        for number in 2..12 {
            let ((), took) = timed(&array, &unit, move |unit| async move {
                assert_eq!(read(&unit, 0).await, number - 1);
            });
            assert!(took < LOSS, "seed {seed}: a read took {took:?}");
            let (result, took) =
                timed(&array, &unit, move |unit| async move { unit.write(Lba(0), block(number)).await });
            result.unwrap();
            // No node can be asked about this controller, so the unit waits for `quiesce`.
            assert!(took < LOSS + 30 * SECOND, "seed {seed}: a write took {took:?}");
        }
        array.heal(seed as usize % 2, 0);
        array.world.run_for(20 * SECOND);
        assert_eq!(in_use(&unit), [true, true], "seed {seed}");
        let events = unit.events();
        assert_eq!(happened(&events, |what| matches!(what, What::Lost(..))), 1, "{events:?}");
        assert_eq!(happened(&events, |what| matches!(what, What::Up(..))), 3, "{events:?}");
        assert_eq!(happened(&events, |what| matches!(what, What::NoPath)), 0, "{events:?}");
    }
}

#[test]
fn writes_of_a_lost_path_continue_at_once_if_its_controller_can_be_asked() {
    for seed in 0..6 {
        let array = Array::new(seed, &[2]);
        let unit = open(&array);
        array.cut(0, 0);
        for number in 1..12 {
            let (result, took) =
                timed(&array, &unit, move |unit| async move { unit.write(Lba(0), block(number)).await });
            result.unwrap();
            assert!(took < LOSS, "seed {seed}: a write took {took:?}");
        }
        assert_eq!(number_of(&array.content(0)), 11);
        assert!(unit.repeated() > 0);
    }
}

#[test]
fn a_silent_path_is_avoided_before_it_is_abandoned() {
    let array = Array::new(1, &[2]);
    let unit =
        open_with(&array, MultipathOptions { policy: Policy::Fixed(0), ..MultipathOptions::default() });
    array.cut(0, 0);
    // No command is under way over it; after three seconds no command would be sent there.
    array.world.run_for(4 * SECOND);
    assert_eq!((states(&unit), in_use(&unit)), (vec![PathState::Up; 2], vec![false, true]));
    let ((), took) = timed(&array, &unit, |unit| async move {
        unit.write(Lba(0), block(1)).await.unwrap();
    });
    assert!(took < 10 * MS, "{took:?}");
    array.heal(0, 0);
    array.world.run_for(2 * SECOND);
    assert_eq!(in_use(&unit), [true, true], "it was not given up");
}

#[test]
fn optimized_paths_are_used_and_others_only_without_them() {
    let array = Array::new(2, &[1, 1, 1]);
    let unit = open(&array);
    let read_one = |unit: Rc<Multipath>| async move { read(&unit, 0).await };
    for (states, expected) in [
        ([Alua::ActiveOptimized, Alua::ActiveNonOptimized, Alua::ActiveOptimized], [true, false, true]),
        ([Alua::Standby, Alua::ActiveNonOptimized, Alua::Unavailable], [false, true, false]),
        ([Alua::ActiveOptimized, Alua::ActiveOptimized, Alua::Transitioning], [true, true, false]),
        ([Alua::Transitioning, Alua::Standby, Alua::ActiveNonOptimized], [false, false, true]),
        ([Alua::ActiveOptimized; 3], [true; 3]),
    ] {
        states.into_iter().enumerate().for_each(|(number, state)| array.set_access(number, state));
        // The next command gets the unit attention, on whatever path it is sent.
        let (_, took) = timed(&array, &unit, read_one);
        assert!(took < 6 * SECOND, "{took:?}");
        array.world.run_for(SECOND);
        assert_eq!(in_use(&unit), expected, "{states:?}");
    }
    assert!(happened(&unit.events(), |what| matches!(what, What::Access(..))) >= 10);
    assert_eq!(unit.paths()[0].access, AccessState::ActiveOptimized);
}

#[test]
fn a_transition_is_waited_for() {
    let array = Array::new(3, &[1, 1]);
    let unit = open(&array);
    [0, 1].into_iter().for_each(|number| array.set_access(number, Alua::Transitioning));
    let waiting = array.world.spawn_on(array.client, rt::CoreId(0), {
        let unit = Rc::clone(&unit);
        move || async move {
            unit.write(Lba(0), block(5)).await.unwrap();
            rt::now()
        }
    });
    array.world.run_for(7 * SECOND);
    assert_eq!(in_use(&unit), [false, false]);
    array.set_access(1, Alua::ActiveNonOptimized);
    let before = array.run(|| async { rt::now() });
    let answered = array.world.wait_for(waiting).unwrap();
    assert!(answered - before < 2 * SECOND);
    assert_eq!(number_of(&array.content(0)), 5);
}

#[test]
fn a_busy_unit_is_asked_again() {
    let array = Array::new(4, &[1]);
    let unit = open(&array);
    array.shared.busy.set(3);
    let (result, took) = timed(&array, &unit, |unit| async move { unit.write(Lba(0), block(5)).await });
    result.unwrap();
    assert!(took > 300 * MS && took < SECOND, "{took:?}");
    let (failure, took) = timed(&array, &unit, {
        array.shared.busy.set(u32::MAX);
        |unit| async move { unit.write(Lba(0), block(6)).await.unwrap_err() }
    });
    assert!(matches!(failure.why(), Why::GivenUp(_)), "{failure}");
    assert_eq!(failure.effect(), EffectKnown::None);
    assert!(took > 59 * SECOND && took < 61 * SECOND, "{took:?}");
}

#[test]
fn another_unit_in_the_place_of_ours_gets_nothing() {
    let array = Array::new(5, &[1, 1]);
    let unit = open_with(&array, MultipathOptions { queue_for: 20 * SECOND, ..MultipathOptions::default() });
    timed(&array, &unit, |unit| async move { unit.write(Lba(0), block(5)).await.unwrap() });
    array.replace_unit();
    let before = array.shared.writes.get();
    let (failure, _) =
        timed(&array, &unit, |unit| async move { unit.write(Lba(0), block(6)).await.unwrap_err() });
    assert!(matches!(failure.why(), Why::NoPath(..)), "{failure}");
    assert!(failure.to_string().contains("no LUN of this target has the name naa.6011"), "{failure}");
    assert_eq!(array.shared.writes.get(), before);
    assert_eq!(number_of(&array.content(0)), 5);
}

#[test]
fn a_unit_that_grows_is_noticed() {
    let array = Array::new(6, &[1, 1]);
    let unit = open(&array);
    array.grow();
    timed(&array, &unit, |unit| async move {
        assert_eq!(read(&unit, 0).await, 0);
        assert_eq!(unit.capacity().blocks, BlockCount(2 * BLOCKS));
        unit.write(Lba(BLOCKS + 1), block(1)).await.unwrap();
    });
    assert_eq!(happened(&unit.events(), |what| matches!(what, What::Resized(_))), 1);
}

#[test]
fn without_a_path_commands_wait_and_then_fail_with_reasons() {
    let array = Array::new(7, &[1, 1]);
    let unit = open(&array);
    array.controllers.iter().for_each(|controller| array.world.kill(*controller));
    let (failures, took) = timed(&array, &unit, |unit| async move {
        let commands = (0..8).map(|lba| {
            let unit = Rc::clone(&unit);
            rt::spawn(async move { unit.write(Lba(lba), block(1)).await.unwrap_err() })
        });
        rt::join_all(commands).await
    });
    assert!(took > 59 * SECOND && took < 62 * SECOND, "{took:?}");
    for failure in failures {
        assert!(matches!(failure.why(), Why::NoPath(_, paths) if paths.len() == 2), "{failure}");
        assert!(failure.to_string().contains("cannot connect to portal"), "{failure}");
    }
    // From now on there is nothing to wait for.
    let (failure, took) =
        timed(&array, &unit, |unit| async move { unit.read(Lba(0), BlockCount(1)).await.unwrap_err() });
    assert!(matches!(failure.why(), Why::NoPath(..)) && took < MS, "{failure} after {took:?}");
    array.start(1);
    array.world.run_for(10 * SECOND);
    timed(&array, &unit, |unit| async move { unit.write(Lba(0), block(9)).await.unwrap() });
    assert_eq!(number_of(&array.content(0)), 9);
    let events = unit.events();
    assert_eq!(happened(&events, |what| matches!(what, What::NoPath)), 1);
    assert_eq!(happened(&events, |what| matches!(what, What::Resumed)), 2, "at the beginning, and now");
}

#[test]
fn a_short_outage_of_all_paths_is_not_seen() {
    for seed in 0..4 {
        let array = Array::new(seed, &[2, 1]);
        let unit = open(&array);
        let writing = array.world.spawn_on(array.client, rt::CoreId(0), {
            let unit = Rc::clone(&unit);
            move || async move {
                for number in 1..=200 {
                    unit.write(Lba(number % 3), block(number)).await.unwrap();
                    rt::sleep(100 * MS).await;
                }
            }
        });
        array.world.run_for(3 * SECOND);
        array.controllers.iter().for_each(|controller| array.world.kill(*controller));
        array.world.run_for(25 * SECOND);
        [0, 1].into_iter().for_each(|number| array.start(number));
        array.world.wait_for(writing).unwrap();
        assert_eq!([198, 199, 200].map(|number| number_of(&array.content(number % 3))), [198, 199, 200]);
    }
}

/// Marks the data of another host.
const OTHERS: u64 = 1 << 63;

/// Several writers each write their own block over and over, while the paths to a slow array are cut and
/// heal. After every answer the block must keep what was written.
fn hunt_ghosts(seed: u64, portals: &[usize], prepare: impl FnOnce(&Array)) -> Result<u64, String> {
    let array = Array::new(seed, portals);
    prepare(&array);
    let options = MultipathOptions { quiesce: 10 * SECOND, queue_for: 120 * SECOND, ..Default::default() };
    let unit = open_with(&array, options);
    // Slow enough that commands are under way whenever something happens, but never for longer than
    // `quiesce`.
    array.shared.write_time.borrow_mut().iter_mut().for_each(|time| *time = 100 * MS..8 * SECOND);
    let answered: Rc<RefCell<Vec<u64>>> = Rc::new(RefCell::new(vec![0; 6]));
    let stop = Rc::new(Cell::new(false));
    let broken: Rc<RefCell<Option<String>>> = Rc::default();
    let mut writers = Vec::new();
    for writer in 0..6u64 {
        let (unit, answered) = (Rc::clone(&unit), Rc::clone(&answered));
        let (stop, broken) = (Rc::clone(&stop), Rc::clone(&broken));
        let shared = Rc::clone(&array.shared);
        writers.push(array.world.spawn_on(array.client, rt::CoreId(0), move || async move {
            let mut number = 0;
            while !stop.get() {
                number += 1;
                // Some writes are given up before they are answered.
                let write = unit.write(Lba(writer), block(number));
                match rt::random() % 8 {
                    0 => {
                        if rt::timeout(SECOND, write).await.is_err() {
                            continue;
                        }
                    }
                    _ => write.await.unwrap(),
                }
                let found = read(&unit, writer).await;
                // Another host writes the block after the answer: its data must stay, too.
                let others = number | OTHERS;
                shared.overwrite(writer, &block(others));
                answered.borrow_mut()[writer as usize] = others;
                rt::sleep(Duration::from_millis(rt::random() % 4_000)).await;
                let then = read(&unit, writer).await;
                if (found, then) != (number, others) {
                    let what = format!(
                        "block {writer}: {number:#x} was answered, {found:#x} and {then:#x} are there"
                    );
                    broken.replace(Some(what));
                    stop.set(true);
                }
            }
        }));
    }
    let mut rng = base::Rng::new(seed);
    let mut cut = None;
    for _ in 0..60 {
        let most = if rng.one_in(4) { 40_000 } else { 6_000 };
        array.world.run_for(Duration::from_millis(500 + rng.below(most)));
        // The data of the last answered write stays, unless a newer write replaces it.
        for (writer, number) in answered.borrow().iter().enumerate() {
            let found = number_of(&array.content(writer as u64));
            if found & !OTHERS < number & !OTHERS {
                return Err(format!("block {writer}: {number:#x} was answered, {found:#x} is there later"));
            }
        }
        if let Some((controller, portal)) = cut.take() {
            array.heal(controller, portal);
        } else {
            let controller = rng.below(portals.len() as u64) as usize;
            let portal = rng.below(portals[controller] as u64) as usize;
            match rng.below(3) {
                0 => array.cut_requests(controller, portal),
                1 => array.cut(controller, portal),
                _ => {
                    array.world.break_connections(array.client, array.controllers[controller]);
                    continue;
                }
            }
            cut = Some((controller, portal));
        }
    }
    array.world.heal_all();
    stop.set(true);
    writers.into_iter().for_each(|writer| array.world.wait_for(writer).unwrap());
    match broken.take() {
        Some(broken) => Err(broken),
        None => Ok(unit.repeated()),
    }
}

#[test]
fn no_write_of_a_lost_path_lands_after_it_was_answered() {
    let mut repeated = 0;
    for (seeds, portals) in [(20, &[2][..]), (70, &[1, 1]), (20, &[2, 2])] {
        for seed in 0..seeds {
            let hunted = hunt_ghosts(seed, portals, |_| {});
            repeated += hunted.unwrap_or_else(|broken| panic!("seed {seed}, {portals:?}: {broken}"));
        }
    }
    assert!(repeated > 500, "{repeated}");
}

/// The hunt finds ghosts where they exist: with an array that continues the commands of a session that was
/// replaced.
#[test]
fn an_array_that_breaks_its_promise_is_found_out() {
    let forgets = |array: &Array| array.shared.forgets_to_reinstate.set(true);
    assert!((0..20).any(|seed| hunt_ghosts(seed, &[2], forgets).is_err()));
}

/// To sessions from before it joined its cluster, a node may have the portal group of another node. A login
/// there replaces nothing.
#[test]
fn a_portal_group_that_another_node_has_now_settles_nothing() {
    for seed in 0..20 {
        let hunted = hunt_ghosts(seed, &[1, 1], |array| {
            array.shared.login_groups.replace(vec![1, 1]);
        });
        hunted.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn an_overwrite_of_an_abandoned_write_waits_for_it() {
    let array = Array::new(8, &[1, 1]);
    let unit = open(&array);
    array.shared.write_time.borrow_mut()[0] = 5 * SECOND..5 * SECOND + MS;
    let (found, took) = timed(&array, &unit, |unit| async move {
        // One of the two writes uses the slow controller.
        for number in [1, 2] {
            let write = unit.write(Lba(0), block(number));
            let _ = rt::timeout(100 * MS, write).await;
        }
        unit.write(Lba(0), block(3)).await.unwrap();
        read(&unit, 0).await
    });
    assert_eq!(found, 3);
    assert!(took >= 5 * SECOND, "{took:?}");
    array.world.run_for(20 * SECOND);
    assert_eq!(number_of(&array.content(0)), 3);
}

#[test]
fn the_outcome_of_a_compare_and_write_is_never_guessed() {
    for seed in 0..4 {
        let array = Array::new(seed, &[2]);
        let unit = open(&array);
        array.shared.write_time.borrow_mut()[0] = 2 * SECOND..2 * SECOND + MS;
        let swapping = array.world.spawn_on(array.client, rt::CoreId(0), {
            let unit = Rc::clone(&unit);
            move || async move {
                // Over both paths.
                let swaps = [0, 1].map(|lba| {
                    let unit = Rc::clone(&unit);
                    rt::spawn(async move { unit.compare_and_write(Lba(lba), block(0), block(9)).await })
                });
                rt::join_all(swaps).await
            }
        });
        array.world.run_for(SECOND);
        array.cut(0, 0);
        let results = array.world.wait_for(swapping).unwrap();
        let failures: Vec<&Failure> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        assert_eq!(failures.len(), 1, "{results:?}");
        assert!(matches!(failures[0].why(), Why::Once), "{}", failures[0]);
        assert_eq!(failures[0].effect(), EffectKnown::Perhaps);
        // Whatever the blocks hold now must stay.
        let found = [array.content(0), array.content(1)];
        array.world.run_for(60 * SECOND);
        assert_eq!(found, [array.content(0), array.content(1)]);
    }
}

#[test]
fn a_compare_and_write_that_was_not_sent_is_sent() {
    let array = Array::new(1, &[1]);
    let unit = open(&array);
    array.world.kill(array.controllers[0]);
    array.world.run_for(SECOND);
    let swapping = array.world.spawn_on(array.client, rt::CoreId(0), {
        let unit = Rc::clone(&unit);
        move || async move { unit.compare_and_write(Lba(0), block(0), block(9)).await }
    });
    array.world.run_for(SECOND);
    array.start(0);
    array.world.wait_for(swapping).unwrap().unwrap();
    let (failure, _) = timed(&array, &unit, |unit| async move {
        unit.compare_and_write(Lba(0), block(0), block(1)).await.unwrap_err()
    });
    assert!(failure.answer().unwrap().is_miscompare(), "{failure}");
}

#[test]
fn commands_that_are_never_answered_are_sent_again() {
    let array = Array::new(9, &[1, 1]);
    let unit = open_with(&array, MultipathOptions { queue_for: 300 * SECOND, ..MultipathOptions::default() });
    array.shared.swallow_one_in.set(3);
    let ((), took) = timed(&array, &unit, |unit| async move {
        for number in 1..20 {
            unit.write(Lba(0), block(number)).await.unwrap();
        }
    });
    assert!(took > 60 * SECOND, "some were swallowed: {took:?}");
    assert_eq!(number_of(&array.content(0)), 19);
    assert_eq!(happened(&unit.events(), |what| matches!(what, What::Lost(..))), 0);
}

#[test]
fn a_verified_load_continues_while_portals_are_removed() {
    let run = |seed: u64| {
        let array = Array::new(seed, &[2, 2]);
        array.shared.write_time.borrow_mut().iter_mut().for_each(|time| *time = Duration::ZERO..20 * MS);
        let config = load::Config {
            portals: array.all_portals(),
            target: NAME.into(),
            lun: Lun(0),
            depth: 4,
            request_bytes: 2048,
            read_percent: 40,
            access: Access::Random,
            until: Until::Time(120 * SECOND),
            span_bytes: None,
            verify: true,
            waits_for_space: false,
            seed,
            options: MultipathOptions { quiesce: 3 * SECOND, ..MultipathOptions::default() },
        };
        let loading = array
            .world
            .spawn_on(array.client, rt::CoreId(0), move || async move { load::run(&config, || None).await });
        let mut rng = base::Rng::new(seed);
        for round in 0..8 {
            array.world.run_for(Duration::from_millis(rng.below(4_000)));
            let (controller, portal) = (round % 2, rng.below(2) as usize);
            match rng.below(3) {
                0 => {
                    array.world.kill(array.controllers[controller]);
                    array.world.run_for(Duration::from_millis(rng.below(8_000)));
                    array.start(controller);
                }
                1 => {
                    array.cut(controller, portal);
                    array.world.run_for(Duration::from_millis(rng.below(20_000)));
                    array.heal(controller, portal);
                }
                _ => {
                    array.world.break_connections(array.client, array.controllers[controller]);
                }
            }
        }
        let report = array.world.wait_for(loading).unwrap().unwrap();
        let worst = report.reads.latency(100.0).max(report.writes.latency(100.0));
        assert!(worst < LOSS + 4 * SECOND, "seed {seed}: a request took {worst:?}");
        (report.requests(), worst, array.world.log_hash())
    };
    for seed in 0..4 {
        let first = run(seed);
        assert!(first.0 > 1000, "{first:?}");
        if seed == 0 {
            assert_eq!(first, run(seed), "a seed is a run");
        }
    }
}
