//! Signals that ask a process to end. Once they are awaited, they no longer kill it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::{io, thread};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals by which users and service managers end a process.
pub const END: &[SignalKind] = &[SignalKind::terminate(), SignalKind::interrupt()];

/// Receives signals of some kinds, and remembers one that arrives while nobody waits.
pub struct Signals(Vec<Signal>);

impl Signals {
    /// Must be called in a tokio runtime.
    pub fn new(kinds: &[SignalKind]) -> io::Result<Signals> {
        let signals: io::Result<_> = kinds.iter().map(|kind| signal(*kind)).collect();
        Ok(Signals(signals?))
    }

    /// Returns when a signal arrives.
    pub async fn next(&mut self) {
        poll_fn(|context| match self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

/// Becomes true when a signal of these kinds arrives.
pub fn flag(kinds: &[SignalKind]) -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::new(kinds)?
    };
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    // The thread ends with the process.
    thread::spawn(move || {
        runtime.block_on(signals.next());
        raised.store(true, Ordering::Relaxed);
    });
    Ok(flag)
}
