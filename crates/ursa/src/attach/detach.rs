//! The end of an attachment: a signal, or somebody who unmounts.
//!
//! A file that is in use is not taken away: a loop device on it would fail, and a file system there be damaged. The signal is
//! remembered instead, and the file goes when its last user has gone; a second signal takes it away at once.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot::Receiver;

use super::AttachError;
use super::mount::Place;
use crate::serve::notify;

/// How often it is tried again to take away a file that was in use.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// How long the kernel may take to say that the file is gone.
const GOODBYE_LIMIT: Duration = Duration::from_secs(10);

/// Says that it is ready, then waits for the end and brings it about.
pub(super) fn wait(
    place: &Place,
    over: Receiver<io::Result<()>>,
    ready: impl FnOnce(),
) -> Result<(), AttachError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(AttachError::Signals)?.block_on(watch(place, over, ready))
}

async fn watch(
    place: &Place,
    mut over: Receiver<io::Result<()>>,
    ready: impl FnOnce(),
) -> Result<(), AttachError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(AttachError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(AttachError::Signals)?;
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
                return ended.unwrap_or(Ok(())).map_err(AttachError::Kernel);
            }
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = again => {
                if place.unmount()? {
                    break;
                }
                continue;
            }
        }
        notify::stopping();
        if asked {
            place.give_up();
            return Err(AttachError::GivenUp);
        }
        asked = true;
        if place.unmount()? {
            break;
        }
        tracing::warn!(
            path = %place.path().display(),
            "the file is in use (`losetup -a`, `fuser -m` tell by whom): it goes when it is not used any more; a second signal takes it away at once"
        );
    }
    match tokio::time::timeout(GOODBYE_LIMIT, over).await {
        Ok(Ok(result)) => result.map_err(AttachError::Kernel),
        // The mount is gone, and that is what was to be done.
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}
