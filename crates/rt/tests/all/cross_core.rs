//! Messages between cores, and from other threads.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rt::uring::{Config, Running};
use rt::{CoreId, Handle};

use crate::run_on;

const OTHER: CoreId = CoreId(1);

#[test]
fn a_call_runs_there() {
    run_on(2, || async {
        assert_eq!(rt::cores(), 2);
        assert_eq!(rt::call(OTHER, || async { rt::core() }).await, OTHER);
        assert_eq!(rt::call(CoreId(0), || async { rt::core() }).await, CoreId(0));
    });
}

#[test]
fn messages_keep_their_order() {
    let seen = run_on(2, || async {
        let (sender, receiver) = mpsc::channel();
        for n in 0..10_000 {
            let sender = sender.clone();
            rt::send(OTHER, move || sender.send(n).unwrap());
        }
        rt::call(OTHER, || async {}).await;
        receiver.try_iter().collect::<Vec<u32>>()
    });
    assert!(seen.iter().copied().eq(0..10_000));
}

#[test]
fn what_is_left_for_a_core_waits_until_something_wakes_it() {
    run_on(2, || async {
        let (sender, receiver) = mpsc::channel();
        // By then the other core sleeps.
        rt::sleep(Duration::from_millis(50)).await;
        let [left, also] = [sender.clone(), sender.clone()];
        Handle::current().leave(OTHER, move || left.send(1).unwrap());
        rt::leave(OTHER, move || also.send(2).unwrap());
        rt::sleep(Duration::from_millis(50)).await;
        assert!(receiver.try_recv().is_err(), "nothing has woken it");
        rt::send(OTHER, move || sender.send(3).unwrap());
        rt::call(OTHER, || async {}).await;
        assert_eq!(receiver.try_iter().collect::<Vec<u32>>(), [1, 2, 3]);
    });
}

/// A lost wake-up would hang this forever: at each of the 100,000 messages the target sleeps, or is about to.
#[test]
fn no_wake_up_is_lost_in_a_ping_pong() {
    for poll in [Duration::ZERO, Duration::from_micros(5)] {
        let config = Config { processors: vec![0, 1], pin: false, poll };
        let running = Running::start(config, |core| async move {
            if core == OTHER {
                return std::future::pending().await;
            }
            for n in 0..25_000u32 {
                assert_eq!(rt::call(OTHER, move || async move { n + 1 }).await, n + 1);
            }
        });
        running.unwrap().join();
    }
}

/// Sleeps of all lengths around the time that a message takes, so that messages meet every state of the
/// sleeper.
#[test]
fn no_wake_up_is_lost_around_timers() {
    run_on(2, || async {
        for n in 0..2_000u64 {
            let pause = Duration::from_nanos(n * 37 % 60_000);
            rt::call(OTHER, move || rt::sleep(pause)).await;
        }
    });
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on a plain thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn other_threads_call_until_the_node_stops() {
    let config = Config { processors: vec![0, 1], pin: false, poll: Duration::ZERO };
    let running = Running::start(config, |core| async move {
        if core == OTHER {
            return std::future::pending().await;
        }
        let stop = Rc::new(rt::sync::Notify::new());
        rt::set_local(Rc::clone(&stop));
        stop.notified().await;
    });
    let running = running.unwrap();
    let handle = running.handle();
    let threads: Vec<_> = (0..4u32)
        .map(|thread| {
            let handle = handle.clone();
            std::thread::spawn(move || {
                for n in 0..2_000 {
                    let core = CoreId((n % 2) as u16);
                    assert_eq!(
                        block_on(handle.call(core, move || async move { n + thread })),
                        Some(n + thread)
                    );
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let never = handle.call(OTHER, std::future::pending::<()>);
    let stop = || rt::local::<rt::sync::Notify>().unwrap().notify();
    assert_eq!(block_on(handle.call(CoreId(0), move || async move { stop() })), Some(()));
    running.join();
    assert_eq!(block_on(never), None);
    assert_eq!(block_on(handle.call(CoreId(0), || async {})), None);
}

#[test]
fn wakers_work_from_other_cores() {
    run_on(2, || async {
        for _ in 0..1_000 {
            let (sender, receiver) = rt::sync::oneshot();
            rt::send(OTHER, move || sender.send(5));
            assert_eq!(receiver.await, Ok(5));
        }
        let count = Rc::new(Cell::new(0));
        let counted = Rc::clone(&count);
        let handle = Handle::current();
        assert_eq!(handle.cores(), 2);
        rt::spawn(async move { counted.set(counted.get() + 1) }).await;
        assert_eq!(count.get(), 1);
    });
}
