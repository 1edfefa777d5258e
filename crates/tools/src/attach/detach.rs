//! The end of an attachment: by a signal, or because the mount or device was removed from outside.
//!
//! A file or device in use is not removed: a loop device on it would fail, and a file system on that would be
//! damaged. The signal is remembered instead, and the file or device is removed when its last user has closed
//! it. A second signal removes it at once.

use std::io;
use std::time::Duration;

use terms::notify;
use terms::signals::{self, Signals};
use tokio::runtime::Runtime;
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::RecvError;

use super::AttachError;

/// How often the removal of a file or device that was in use is retried.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// What presents the unit to this host: a file, or a block device.
pub(super) trait Presentation {
    /// Removes it, or starts to; `false` if it is in use.
    fn take_away(&self) -> Result<bool, AttachError>;

    /// Removes it even if it is in use.
    fn give_up(&self);

    /// Reports that it stays because it is in use, and how to find its users.
    fn tell_in_use(&self);

    /// How long to wait for the kernel to confirm the removal; after that it counts as done.
    ///
    /// `None`: no limit, because the kernel still writes cached data; only another signal ends the wait.
    fn goodbye_limit(&self) -> Option<Duration>;
}

/// Receives signals, and remembers one that arrives between [`Watch::start`] and [`Watch::wait`].
pub(super) struct Watch {
    signals: Signals,
    runtime: Runtime,
}

impl Watch {
    /// Takes over SIGTERM and SIGINT, which no longer kill the process.
    pub(super) fn start() -> Result<Watch, AttachError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AttachError::Signals)?;
        let signals = {
            let _inside = runtime.enter();
            Signals::new(signals::END).map_err(AttachError::Signals)?
        };
        Ok(Watch { signals, runtime })
    }

    /// Calls `ready`, waits for the end of the attachment, and removes what is shown.
    ///
    /// `over` receives the result when the kernel has ended its side.
    pub(super) fn wait(
        self,
        shown: &impl Presentation,
        over: Receiver<io::Result<()>>,
        ready: impl FnOnce(),
    ) -> Result<(), AttachError> {
        let Watch { mut signals, runtime } = self;
        runtime.block_on(watch(shown, &mut signals, over, ready))
    }
}

async fn watch(
    shown: &impl Presentation,
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

/// Waits until the removal, which has begun, is complete.
async fn say_goodbye(
    shown: &impl Presentation,
    over: Receiver<io::Result<()>>,
    signals: &mut Signals,
) -> Result<(), AttachError> {
    match shown.goodbye_limit() {
        Some(limit) => match tokio::time::timeout(limit, over).await {
            Ok(Ok(result)) => result.map_err(AttachError::Kernel),
            // A missing confirmation does not matter: the removal was asked for.
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

/// The result of the serving thread; if it sent none, it has panicked.
fn told(ended: Result<io::Result<()>, RecvError>) -> Result<(), AttachError> {
    match ended {
        Ok(result) => result.map_err(AttachError::Kernel),
        Err(_) => Err(AttachError::Crashed),
    }
}
