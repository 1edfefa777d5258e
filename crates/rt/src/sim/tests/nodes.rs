//! Nodes, cores, time; and the same seed gives the same run.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, SendBatch};

use super::one_node;
use crate::sim::{Fault, NodeStatus, World};
use crate::{
    CoreId, Disk, Durability, Elapsed, Listener, Stream, call, now, sleep, sleep_until, spawn, timeout_at,
    yield_now,
};

const MS: Duration = Duration::from_millis(1);

#[test]
fn time_passes_without_waiting() {
    let (world, node) = one_node(1);
    let slept = world.block_on(node, CoreId(0), || async {
        let start = now();
        sleep(Duration::from_secs(600)).await;
        now() - start
    });
    assert!((Duration::from_secs(600)..Duration::from_secs(601)).contains(&slept), "{slept:?}");
    assert!(world.run_until_idle());
}

#[test]
fn what_waits_for_beats_wakes_together_whenever_it_began() {
    let (world, node) = one_node(1);
    world.block_on(node, CoreId(0), || async {
        sleep_until(now().beat_after(50 * MS)).await;
        let beat = now().beat_after(50 * MS);
        let wait = |after: u32| async move {
            sleep(after * MS).await;
            let never = timeout_at(now().beat_after(50 * MS), pending::<()>()).await;
            assert_eq!(never, Err(Elapsed));
            now()
        };
        let tasks: Vec<_> = [0, 7, 23].map(|after| spawn(wait(after))).into();
        for task in tasks {
            let woke = task.await;
            assert!((beat..beat + 5 * MS).contains(&woke), "at {woke}, not at {beat}");
        }
    });
}

#[test]
fn run_for_ends_on_time_and_run_until_when_it_is_so() {
    let (world, node) = one_node(1);
    let ticks = Rc::new(Cell::new(0));
    let counted = Rc::clone(&ticks);
    drop(world.spawn_on(node, CoreId(0), || async move {
        loop {
            sleep(MS).await;
            counted.set(counted.get() + 1);
        }
    }));
    world.run_for(100 * MS + MS / 2);
    assert_eq!(world.now(), 100 * MS + MS / 2);
    assert!((90..=100).contains(&ticks.get()), "{}", ticks.get());
    assert!(world.run_until(|| ticks.get() >= 200, 200 * MS));
    assert!(!world.run_until(|| ticks.get() >= 2_000, 100 * MS));
}

#[test]
fn cores_call_each_other_and_a_busy_task_does_not_stop_the_world() {
    let (world, node) = one_node(1);
    let turns = world.block_on(node, CoreId(0), || async {
        let there = call(CoreId(1), || async {
            sleep(MS).await;
            crate::core()
        });
        let there = spawn(there);
        let mut turns = 0;
        while !there.is_finished() {
            yield_now().await;
            turns += 1;
        }
        assert_eq!(there.await, CoreId(1));
        turns
    });
    assert!(turns > 100, "{turns}");
}

#[test]
fn a_handle_reaches_the_cores() {
    let (world, node) = one_node(1);
    let handle = world.handle(node);
    assert_eq!(world.wait_for(handle.call(CoreId(1), || async { crate::core() })), Some(CoreId(1)));
    let never = handle.call(CoreId(1), || async { pending::<u8>().await });
    world.run_for(MS);
    world.kill(node);
    assert_eq!(world.wait_for(never), None);
    assert_eq!(world.wait_for(handle.call(CoreId(1), || async { 1 })), None);
}

#[test]
fn clocks_drift() {
    let (world, node) = one_node(1);
    let fast = world.add_node("fast", 1, |_| pending());
    world.set_clock_drift(fast, 100_000);
    let read = |node| world.block_on(node, CoreId(0), || async { now() });
    let (start, start_fast) = (read(node), read(fast));
    assert_ne!(start, start_fast, "clocks start anywhere");
    world.run_for(Duration::from_secs(10));
    let (passed, passed_fast) = ((read(node) - start).as_millis(), (read(fast) - start_fast).as_millis());
    assert_eq!((passed, passed_fast), (10_000, 11_000));
}

#[test]
fn a_paused_node_stops_and_resumes() {
    let (world, node) = one_node(1);
    let ticks = Rc::new(Cell::new(0));
    let counted = Rc::clone(&ticks);
    drop(world.spawn_on(node, CoreId(1), || async move {
        loop {
            sleep(MS).await;
            counted.set(counted.get() + 1);
        }
    }));
    world.run_for(10 * MS);
    let before = ticks.get();
    world.pause(node);
    assert_eq!(world.status(node), NodeStatus::Paused);
    world.run_for(100 * MS);
    assert_eq!(ticks.get(), before);
    world.resume(node);
    world.run_for(10 * MS);
    assert!(ticks.get() > before);
    assert_eq!(world.fault_counts().of(Fault::NodePause), 1);
}

/// A sleep that began before the stop lasts as long as without it, and the core notices the stop if the time
/// of day has continued.
#[test]
fn a_frozen_nodes_clock_stops_and_only_the_time_of_day_shows_it() {
    let (world, node) = one_node(1);
    let look = || world.block_on(node, CoreId(1), || async { (crate::now(), crate::clock_stops()) });
    let woken = Rc::new(Cell::new(None));
    let told = Rc::clone(&woken);
    drop(world.spawn_on(node, CoreId(1), || async move {
        sleep(20 * MS).await;
        told.set(Some(crate::now()));
    }));
    let (before, _) = look();
    for (known, stops) in [(false, 0), (true, 1)] {
        world.freeze(node);
        world.run_for(5000 * MS);
        if known {
            world.resume_with_time_of_day(node)
        } else {
            world.resume(node)
        }
        world.run_for(MS);
        let (now, seen) = look();
        assert!((now - before).as_millis() < 10, "{:?}", now - before);
        assert_eq!((seen, woken.get()), (stops, None));
    }
    world.run_for(25 * MS);
    assert_eq!((woken.get().expect("it is over") - before).as_millis(), 20);
    assert_eq!(world.fault_counts().of(Fault::ClockStop), 2);
}

/// A machine that joins later, or had no power for a while, has the same calendar as all others.
#[test]
fn all_machines_have_one_time_of_day() {
    let (world, first) = one_node(1);
    world.run_for(1500 * MS);
    let second = world.add_node("second", 1, |_| pending());
    let times = || {
        let of = |node| world.block_on(node, CoreId(0), || async { (crate::now(), crate::time_of_day()) });
        let (first, second) = (of(first), of(second));
        assert_ne!(first.0, second.0, "their clocks differ");
        let apart = second.1.abs_diff(first.1);
        assert!(apart < MS, "the calendars are {apart:?} apart");
        first.1
    };
    assert_eq!(times().as_secs(), 1_000_001);
    world.crash(first);
    world.run_for(3000 * MS);
    world.restart(first, |_| pending());
    assert_eq!(times().as_secs(), 1_000_004);
}

/// What was to happen in the time that the clock leaps over happens at once. Only setting the time of day
/// forward looks like a stopped clock.
#[test]
fn a_clock_leaps_and_a_time_of_day_is_put_forward_and_back() {
    let (world, node) = one_node(1);
    let look = || world.block_on(node, CoreId(1), || async { (crate::now(), crate::clock_stops()) });
    let woken = Rc::new(Cell::new(None));
    let told = Rc::clone(&woken);
    drop(world.spawn_on(node, CoreId(1), || async move {
        sleep(5000 * MS).await;
        told.set(Some(crate::now()));
    }));
    let (before, _) = look();
    world.leap_clock(node, 6000 * MS);
    world.run_for(MS);
    let (now, seen) = look();
    assert!((6000..6010).contains(&(now - before).as_millis()), "{:?}", now - before);
    assert!(woken.get().is_some_and(|woken| woken >= before + 6000 * MS));
    assert_eq!(seen, 0);
    world.put_time_of_day_back(node, 3_600_000 * MS);
    world.run_for(MS);
    assert_eq!(look().1, 0);
    world.put_time_of_day_forward(node, 3_600_000 * MS);
    world.run_for(MS);
    assert_eq!(look().1, 1);
    let counts = world.fault_counts();
    assert_eq!((counts.of(Fault::ClockLeap), counts.of(Fault::TimeOfDaySet)), (1, 2));
}

#[test]
fn the_end_of_main_ends_the_process() {
    let world = World::new(1);
    let node = world.add_node("a", 2, |core| async move { sleep((1 + u32::from(core.0)) * MS).await });
    world.run_for(3 * MS);
    assert_eq!(world.status(node), NodeStatus::Ended);
    world.restart(node, |_| pending());
    assert_eq!(world.block_on(node, CoreId(1), || async { 5 }), 5);
}

/// Counts its instances.
struct Sentinel(Rc<Cell<i64>>);

impl Sentinel {
    fn new(count: &Rc<Cell<i64>>) -> Sentinel {
        count.set(count.get() + 1);
        Sentinel(Rc::clone(count))
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[test]
fn nothing_of_a_dead_node_or_a_dropped_world_remains() {
    let alive = Rc::new(Cell::new(0));
    for seed in 0..200 {
        let world = World::new(seed);
        let counted = Rc::clone(&alive);
        let main = move |core: CoreId| {
            let counted = Rc::clone(&counted);
            async move {
                let _here = Sentinel::new(&counted);
                let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
                let address = listener.local_address();
                let inner = Rc::clone(&counted);
                let notify = Rc::new(crate::sync::Notify::new());
                let notified = Rc::clone(&notify);
                spawn(async move {
                    let _here = Sentinel::new(&inner);
                    let (stream, _) = listener.accept().await.unwrap();
                    let stream = stream.attach();
                    stream.send(SendBatch::new()).await.unwrap();
                    notified.notify();
                    let _ = stream.receive().await;
                    pending::<()>().await;
                })
                .detach();
                let _stream = Stream::connect(address, Duration::from_secs(1)).await.unwrap();
                notify.notified().await;
                let inner = Rc::clone(&counted);
                if core == CoreId(0) {
                    let _there = call(CoreId(1), || async { sleep(Duration::from_secs(9)).await });
                    _there.await;
                }
                let _late = Sentinel::new(&inner);
                pending::<()>().await;
            }
        };
        let node = world.add_node("a", 2, main.clone());
        let other = world.add_node("b", 2, main.clone());
        world.run_for(Duration::from_millis(seed));
        assert!(alive.get() >= i64::from(seed > 0));
        match seed % 4 {
            0 => {
                world.crash(node);
                world.kill(other);
                assert_eq!(alive.get(), 0, "seed {seed}");
                world.restart(node, main);
                world.run_for(MS);
            }
            1 => world.power_off_all(),
            2 => world.pause(node),
            _ => {}
        }
        drop(world);
        assert_eq!(alive.get(), 0, "seed {seed}");
    }
    assert_eq!(Rc::strong_count(&alive), 1);
}

/// Two nodes that talk over TCP and write to their disks, with a crash; returns the log's hash and what they
/// did.
fn busy_run(seed: u64) -> (u64, Vec<String>) {
    let world = World::new(seed);
    let said = Rc::new(RefCell::new(Vec::new()));
    let saying = Rc::clone(&said);
    let server = world.add_node("server", 2, |_| async {
        let listener = Listener::bind("10.0.0.1:3260".parse().unwrap()).await;
        let Ok(listener) = listener else { return pending().await };
        let disk =
            Disk::open("/d".as_ref(), crate::OpenOptions { create: Some(1 << 20), ..Default::default() });
        let disk = Rc::new(disk.await.unwrap());
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = stream.attach();
            let disk = Rc::clone(&disk);
            spawn(async move {
                let mut offset = 0;
                while let Ok(buf) = stream.receive_exact(Buf::zeroed(512), 0).await {
                    let durability =
                        if offset % 1024 == 0 { Durability::Cached } else { Durability::Durable };
                    disk.write(offset, buf.share(), durability).await.unwrap();
                    offset += 512;
                    let mut batch = SendBatch::new();
                    batch.push(&offset.to_le_bytes());
                    if stream.send(batch).await.is_err() {
                        return;
                    }
                }
            })
            .detach();
        }
    });
    world.add_node("client", 2, move |core| {
        let said = Rc::clone(&saying);
        async move {
            let stream = Stream::connect("10.0.0.1:3260".parse().unwrap(), Duration::from_secs(5)).await;
            let Ok(stream) = stream else { return pending().await };
            for round in 0..50 {
                let mut batch = SendBatch::new();
                batch.push(&[crate::random() as u8; 512]);
                let sent = stream.send(batch).await;
                let answer = stream.receive_exact(Buf::zeroed(8), 0).await;
                let said_now =
                    format!("{core} round {round} at {}: {sent:?} {answer:?}", now(), sent = sent.is_ok());
                said.borrow_mut().push(said_now);
                if answer.is_err() {
                    break;
                }
            }
            pending().await
        }
    });
    world.run_for(20 * MS);
    world.crash(server);
    world.run_for(Duration::from_secs(60));
    world.note(format!("{:?}", world.disk_image(server, "/d")));
    (world.log_hash(), said.take())
}

#[test]
fn a_seed_is_a_run_and_another_seed_is_another() {
    let mut hashes = Vec::new();
    for seed in 0..10 {
        let first = busy_run(seed);
        assert!(first.1.len() > 4, "{:?}", first.1);
        assert_eq!(first, busy_run(seed), "seed {seed}");
        hashes.push(first.0);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 10);
}
