//! Tasks, timers, starting and stopping.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use rt::uring::{Config, Running, TURN_BUCKETS, turn_bound};

use crate::{run, run_on};

#[test]
fn tasks_run_and_give_results() {
    let sum = run(|| async {
        let tasks: Vec<_> = (0..100u64).map(|n| rt::spawn(async move { n })).collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await;
        }
        sum
    });
    assert_eq!(sum, 4950);
}

#[test]
fn dropping_a_task_cancels_it() {
    run(|| async {
        let reached = Rc::new(Cell::new(false));
        let seen = Rc::clone(&reached);
        let task = rt::spawn(async move {
            rt::sleep(Duration::from_millis(20)).await;
            seen.set(true);
        });
        rt::yield_now().await;
        drop(task);
        rt::sleep(Duration::from_millis(60)).await;
        assert!(!reached.get());
    });
}

#[test]
fn timers_fire_in_order_and_not_early() {
    run(|| async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let start = rt::now();
        let tasks: Vec<_> = [30u64, 10, 20, 0]
            .map(|ms| {
                let order = Rc::clone(&order);
                rt::spawn(async move {
                    rt::sleep(Duration::from_millis(ms)).await;
                    assert!(rt::now().since(start) >= Duration::from_millis(ms));
                    order.borrow_mut().push(ms);
                })
            })
            .into();
        for task in tasks {
            task.await;
        }
        assert_eq!(*order.borrow(), [0, 10, 20, 30]);
    });
}

#[test]
fn a_timeout_drops_what_is_too_slow() {
    run(|| async {
        assert!(rt::timeout(Duration::from_millis(5), std::future::pending::<()>()).await.is_err());
        assert_eq!(rt::timeout(Duration::from_secs(60), async { 7 }).await, Ok(7));
    });
}

/// Counts itself while it exists.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn the_end_of_main_ends_all_tasks_of_all_cores() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    run_on(2, move || {
        let counted = Arc::clone(&counted);
        async move {
            for core in [rt::CoreId(0), rt::CoreId(1)] {
                let counted = Arc::clone(&counted);
                rt::call(core, move || async move {
                    for ms in 0..100 {
                        let held = Counted::new(&counted);
                        rt::spawn(async move {
                            let _held = held;
                            rt::sleep(Duration::from_secs(1000 + ms)).await;
                        })
                        .detach();
                    }
                })
                .await;
            }
            assert_eq!(counted.load(Ordering::SeqCst), 200);
        }
    });
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn a_panic_on_a_core_reaches_whoever_joins() {
    let config = Config { processors: vec![0, 1], pin: false, poll: Duration::ZERO };
    let running = Running::start(config, |core| async move {
        if core == rt::CoreId(1) {
            panic!("on purpose");
        }
        std::future::pending::<()>().await;
    });
    let running = running.unwrap();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| running.join())).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
}

#[test]
fn a_processor_that_does_not_exist_is_an_error() {
    let config = Config { processors: vec![0, 1000], pin: true, poll: Duration::ZERO };
    let error = Running::start(config, |_| std::future::pending()).err().unwrap();
    assert!(error.to_string().contains("processor 1000"), "{error}");
}

/// On a busy machine a core may start late, and the node may end before the test looks at it: the best of
/// several counts.
#[test]
fn an_idle_node_uses_no_cpu() {
    let is_idle = || {
        let config = Config { processors: vec![0, 1], pin: false, poll: Duration::from_micros(50) };
        let running = Running::start(config, |_| async { rt::sleep(Duration::from_secs(1)).await }).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let before = running.stats();
        std::thread::sleep(Duration::from_millis(500));
        let after = running.stats();
        running.join();
        before.iter().zip(&after).all(|(before, after)| {
            let (cpu, enters) = (after.cpu - before.cpu, after.enters - before.enters);
            println!("{:?} to start, then idle for 500 ms: {cpu:?}, {enters} enters", before.cpu);
            before.cpu > Duration::ZERO && cpu < Duration::from_millis(2) && enters <= 1
        })
    };
    assert!((0..10).any(|_| is_idle()), "see above");
}

#[test]
fn the_stats_survive_the_threads() {
    let config = Config { processors: vec![0], pin: false, poll: Duration::ZERO };
    let running = Running::start(config, |_| async { rt::sleep(Duration::from_millis(1)).await }).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let stats = running.stats();
    running.join();
    assert!(stats[0].cpu > Duration::ZERO && stats[0].busy_turns > 0 && stats[0].enters > 0, "{stats:?}");
}

#[test]
fn turns_are_timed_and_waits_are_none() {
    const WORK: Duration = Duration::from_millis(60);
    let config = Config { processors: vec![0], pin: false, poll: Duration::ZERO };
    let running = Running::start(config, |_| async {
        rt::sleep(Duration::from_millis(1200)).await;
        // Like work that does not end its turn.
        std::thread::sleep(WORK);
        rt::next_turn().await;
    })
    .unwrap();
    let stats = running.stats_reader();
    running.join();
    let turns = stats()[0].turns;
    let longer = |limit: Duration| {
        let above = (0..TURN_BUCKETS).filter(|bucket| turn_bound(*bucket).is_none_or(|bound| bound > limit));
        above.map(|bucket| turns.counts[bucket]).sum::<u64>()
    };
    assert!(longer(Duration::from_millis(50)) >= 1, "{turns:?}");
    assert_eq!(longer(Duration::from_secs(1)), 0, "the core slept for longer than that: {turns:?}");
    assert!(turns.longest >= WORK && turns.time >= turns.longest, "{turns:?}");
    assert!(turns.counts.iter().sum::<u64>() >= 3, "{turns:?}");
}

#[test]
fn a_core_keeps_one_value_of_each_type() {
    run(|| async {
        rt::set_local(std::rc::Rc::new(1u8));
        rt::set_local(std::rc::Rc::new("one"));
        rt::set_local(std::rc::Rc::new(2u8));
        assert_eq!(rt::local::<u8>().as_deref(), Some(&2));
        assert_eq!(rt::local::<&str>().as_deref(), Some(&"one"));
        assert_eq!(rt::local::<u16>(), None);
    });
}

#[test]
fn a_turn_may_end_in_another_task_than_it_began_in() {
    run(|| async {
        let mut ends = Box::pin(async {
            rt::next_turn().await;
            rt::next_turn().await;
        });
        let began = std::future::poll_fn(|context| Poll::Ready(ends.as_mut().poll(context).is_ready()));
        assert!(!began.await, "not in this turn");
        rt::timeout(Duration::from_secs(5), rt::spawn(ends)).await.expect("in the one after the next");
    });
}

#[test]
fn completions_go_before_work_in_parts() {
    let parts = run(|| async {
        let done = Rc::new(Cell::new(0));
        let counted = Rc::clone(&done);
        let work = rt::spawn(async move {
            // Meanwhile the waiting task's time comes.
            std::thread::sleep(Duration::from_millis(4));
            loop {
                counted.set(counted.get() + 1);
                rt::next_turn().await;
            }
        });
        rt::sleep(Duration::from_millis(2)).await;
        drop(work);
        done.get()
    });
    assert_eq!(parts, 1, "all parts after the first can wait for the next turn");
}
