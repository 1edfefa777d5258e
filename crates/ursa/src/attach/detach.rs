//! The end of an attachment: a signal, or somebody who takes away what is shown.
//!
//! What is in use is not taken away: a loop device on it would fail, and a file system there be damaged. The
//! signal is remembered instead, and the file or device goes when its last user has gone; a second signal
//! takes it away at once.

use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::RecvError;

use super::AttachError;
use crate::serve::notify;

/// How often it is tried again to take away what was in use.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// What is shown of a unit: a file, or a block device.
pub(super) trait Shown {
    /// Takes it away, or begins to; `false` if somebody uses it.
    fn take_away(&self) -> Result<bool, AttachError>;

    /// Takes it away whoever uses it.
    fn give_up(&self);

    /// Tells people that it stays, and how they learn by whom it is used.
    fn tell_in_use(&self);

    /// How long the kernel may take to say that it is gone, before that is taken for granted. `None`: what
    /// was written last is written meanwhile, so that only another signal ends the wait.
    fn goodbye_limit(&self) -> Option<Duration>;
}

/// Hears signals. One that comes between [`Watch::start`] and [`Watch::wait`] is remembered.
pub(super) struct Watch {
    signals: Signals,
    runtime: Runtime,
}

impl Watch {
    /// From now on no signal ends the process as it is.
    pub(super) fn start() -> Result<Watch, AttachError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AttachError::Signals)?;
        let signals = {
            let _inside = runtime.enter();
            Signals {
                terminate: signal(SignalKind::terminate()).map_err(AttachError::Signals)?,
                interrupt: signal(SignalKind::interrupt()).map_err(AttachError::Signals)?,
            }
        };
        Ok(Watch { signals, runtime })
    }

    /// Says that it is ready, then waits for the end and brings it about. `over` comes when the kernel has
    /// taken leave.
    pub(super) fn wait(
        self,
        shown: &impl Shown,
        over: Receiver<io::Result<()>>,
        ready: impl FnOnce(),
    ) -> Result<(), AttachError> {
        let Watch { mut signals, runtime } = self;
        runtime.block_on(watch(shown, &mut signals, over, ready))
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn watch(
    shown: &impl Shown,
    signals: &mut Signals,
    mut over: Receiver<io::Result<()>>,
    ready: impl FnOnce(),
) -> Result<(), AttachError> {
    ready();
    notify::ready();
    let mut asked = false;
    loop {
        let again = async {
            match asked {
                true => tokio::time::sleep(TRY_AGAIN).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = &mut over => {
                notify::stopping();
                return told(ended);
            }
            () = signals.next() => {}
            () = again => {
                if shown.take_away()? {
                    break;
                }
                continue;
            }
        }
        notify::stopping();
        if asked {
            shown.give_up();
            return Err(AttachError::GivenUp);
        }
        asked = true;
        if shown.take_away()? {
            break;
        }
        shown.tell_in_use();
    }
    say_goodbye(shown, over, signals).await
}

/// It is being taken away.
async fn say_goodbye(
    shown: &impl Shown,
    over: Receiver<io::Result<()>>,
    signals: &mut Signals,
) -> Result<(), AttachError> {
    match shown.goodbye_limit() {
        Some(limit) => match tokio::time::timeout(limit, over).await {
            Ok(Ok(result)) => result.map_err(AttachError::Kernel),
            // It is gone, and that is what was to be done.
            Ok(Err(_)) | Err(_) => Ok(()),
        },
        None => tokio::select! {
            ended = over => told(ended),
            () = signals.next() => {
                shown.give_up();
                Err(AttachError::GivenUp)
            }
        },
    }
}

/// How it went. Who goes without a word has panicked.
fn told(ended: Result<io::Result<()>, RecvError>) -> Result<(), AttachError> {
    match ended {
        Ok(result) => result.map_err(AttachError::Kernel),
        Err(_) => Err(AttachError::Crashed),
    }
}
