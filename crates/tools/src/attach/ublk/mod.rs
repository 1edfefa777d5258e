//! A unit as a block device of this host: `/dev/ublkbN`.
//!
//! The main thread creates the device. The core that has the unit serves its requests (`slots`), which arrive
//! through the same ring as the unit's responses. The device is not stopped while it is in use (`users`).

mod slots;
mod users;

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rt::uring::ublk::{Control, ControlError, DeviceInfo, DeviceState, NewDevice, Parameters, Queue};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::AttachError;
use super::detach::Presentation;
use super::disk::{COMMAND_BYTES_MAX, Geometry};
use super::runtime::Core;

/// The largest device number: the kernel has 20 bits for it.
pub(super) const ID_MAX: i64 = (1 << 20) - 1;

/// The most requests in progress, as for the FUSE file.
///
/// Each may use [`COMMAND_BYTES_MAX`] bytes of memory meanwhile.
const SLOTS: u16 = 128;

/// The mark by which we recognize our devices after their process is gone: "ursa", in the mark's low half.
///
/// The high half is random for each device: its number may belong to another device when we delete it.
const MARK: u64 = 0x7572_7361;
const MARK_HALF: u64 = u32::MAX as u64;

/// The smallest limit on the length of a request.
///
/// A unit that takes less at once gets requests in pieces: the kernel wants to send a page, and pages have up
/// to 64 KiB.
const REQUEST_BYTES_MIN: u32 = 64 << 10;

/// How long the kernel may take to free a device whose process was killed, or its number.
const FREED_LIMIT: Duration = Duration::from_secs(5);

/// How long the device file may take to appear if udev creates it.
const NODE_LIMIT: Duration = Duration::from_secs(10);

/// The interval of polls.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long a device that is stopped in spite of its users may take.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(10);

/// Why the block device cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    #[error(
        "/dev/ublk-control not found: this kernel has no ublk, or its module is not loaded; load it (`modprobe ublk_drv`; Linux 6.5 or newer with CONFIG_BLK_DEV_UBLK), or attach the LUN as a file, without --ublk"
    )]
    NoDriver,
    #[error(
        "this kernel's ublk is too old; use Linux 6.5 or newer, or attach the LUN as a file, without --ublk"
    )]
    TooOld,
    #[error(
        "no permission for /dev/ublk-control; run this as root; a container needs CAP_SYS_ADMIN and the host's /dev"
    )]
    Denied(#[source] io::Error),
    #[error("ublk device {0} already exists; choose another number with --ublk-id, or omit it")]
    Taken(u32),
    #[error(
        "ublk device {0} was left behind by another program; choose another number with --ublk-id, or omit it"
    )]
    Foreign(u32),
    /// The device file does not appear, so that the device could not be used, nor its users be found.
    #[error(
        "{0} does not appear; run this on the host, or in a container with the host's /dev (`--volume /dev:/dev`), or mount devtmpfs at /dev"
    )]
    NoNode(PathBuf),
    #[error("cannot serve /dev/ublkc{0}")]
    Serve(u32, #[source] io::Error),
    #[error("internal error: the core that serves the device failed")]
    Core,
    /// Any other error.
    #[error(transparent)]
    Control(ControlError),
}

impl From<ControlError> for UblkError {
    fn from(error: ControlError) -> UblkError {
        match error {
            ControlError::NoDriver => UblkError::NoDriver,
            ControlError::TooOld => UblkError::TooOld,
            ControlError::Denied(source) => UblkError::Denied(source),
            ControlError::Exists(id) => UblkError::Taken(id),
            other => UblkError::Control(other),
        }
    }
}

/// The kernel's ublk driver.
pub(super) struct Ublk(Control);

impl Ublk {
    /// Opens the driver; fails if this host has none.
    pub(super) fn open() -> Result<Ublk, UblkError> {
        Ok(Ublk(Control::open()?))
    }

    /// Creates a device and returns its number. Deletes a dead device of ours that has the number.
    fn add(&mut self, id: Option<u32>, mark: u64) -> Result<u32, UblkError> {
        let new = NewDevice { id, slots: SLOTS, request_max: COMMAND_BYTES_MAX, mark };
        let taken = match self.0.add(new) {
            Err(ControlError::Exists(taken)) => taken,
            result => return Ok(result?),
        };
        self.clear_away(taken)?;
        let end = Instant::now() + FREED_LIMIT;
        loop {
            match self.0.add(new) {
                Err(ControlError::Exists(_)) if Instant::now() < end => thread::sleep(LOOK_AGAIN),
                result => return Ok(result?),
            }
        }
    }

    /// Deletes a device of ours whose process was killed.
    fn clear_away(&mut self, id: u32) -> Result<(), UblkError> {
        let found = self.0.info(id)?;
        if !is_ours(found.mark) {
            let is_dead = found.state == DeviceState::Dead;
            return Err(if is_dead { UblkError::Foreign(id) } else { UblkError::Taken(id) });
        }
        // A device that is about to be served is still dead, but its queue is open. And the kernel may not
        // have cleaned up yet after a process that was killed just now.
        let end = Instant::now() + FREED_LIMIT;
        while self.0.info(id)?.state != DeviceState::Dead || !Queue::is_free(id) {
            if Instant::now() > end {
                return Err(UblkError::Taken(id));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(delete(Control::open()?, id, found.mark)?)
    }
}

fn draw_mark() -> u64 {
    let mut half = [0; size_of::<u32>()];
    getrandom::fill(&mut half).expect("Linux gives random bytes after its start");
    u64::from(u32::from_ne_bytes(half)) << u32::BITS | MARK
}

/// Whether a process of this program created the device.
fn is_ours(mark: u64) -> bool {
    mark & MARK_HALF == MARK
}

/// The kernel's view of the device with this mark; `None`: it is gone, even if its number is in use again.
fn look(control: &mut Control, id: u32, mark: u64) -> Result<Option<DeviceInfo>, ControlError> {
    match control.info(id) {
        Ok(info) => Ok((info.mark == mark).then_some(info)),
        Err(ControlError::Command { source, .. })
            if source.raw_os_error() == Some(Errno::NODEV.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Deletes the device if it has this mark; otherwise it is gone and another device has its number.
///
/// Does not wait for programs that still have the disk open, although the kernel may.
fn delete(mut control: Control, id: u32, mark: u64) -> Result<(), ControlError> {
    let (done, deleted) = mpsc::channel();
    thread::spawn(move || {
        let result = look(&mut control, id, mark).and_then(|found| match found {
            Some(_) => control.delete(id),
            None => Ok(()),
        });
        // The caller may have stopped waiting.
        let _ = done.send(result);
    });
    deleted.recv_timeout(FREED_LIMIT).unwrap_or_else(|_| {
        tracing::warn!(
            id,
            "the ublk device is still open; its number becomes free when its last user closes it"
        );
        Ok(())
    })
}

/// A block device that presents a unit.
pub(super) struct Device {
    ublk: Ublk,
    id: u32,
    mark: u64,
    path: PathBuf,
    steering: Arc<Mutex<Steering>>,
    /// Receives a message when the device has been stopped; `None` until a stop begins.
    stopped: RefCell<Option<mpsc::Receiver<()>>>,
    /// The device was stopped in spite of its users.
    is_stopped: Cell<bool>,
}

impl Device {
    /// Creates the device of the unit that `core` has; the receiver gets the result when the device ends.
    pub(super) fn make(
        mut ublk: Ublk,
        core: &Core,
        id: Option<u32>,
        read_only: bool,
    ) -> Result<(Device, oneshot::Receiver<io::Result<()>>), UblkError> {
        // Open what is needed to stop the device before the device exists.
        let control = Control::open()?;
        let mark = draw_mark();
        let id = ublk.add(id, mark)?;
        let mut device = Device {
            ublk,
            id,
            mark,
            path: PathBuf::from(format!("/dev/ublkb{id}")),
            steering: Arc::new(Mutex::new(Steering { control, id, mark, is_over: false })),
            stopped: RefCell::default(),
            is_stopped: Cell::new(false),
        };
        match device.start(core, read_only) {
            Ok(ending) => Ok((device, ending)),
            Err(error) => {
                device.delete();
                Err(error)
            }
        }
    }

    fn start(
        &mut self,
        core: &Core,
        read_only: bool,
    ) -> Result<oneshot::Receiver<io::Result<()>>, UblkError> {
        let (id, mark, control) = (self.id, self.mark, &mut self.ublk.0);
        let (over, ending) = oneshot::channel();
        let (resized, sizes) = mpsc::channel();
        let parameters = parameters(core.geometry(), read_only);
        let size = parameters.size;
        core.ask(move |disk| async move { slots::serve(&disk, id, SLOTS, size, over, resized) })
            .ok_or(UblkError::Core)?
            .map_err(|error| UblkError::Serve(id, error))?;
        // Until its queue was open, another process may have found the device dead and created one with the
        // same number. From now on that cannot happen.
        if look(control, id, mark)?.is_none() {
            return Err(UblkError::Taken(id));
        }
        control.set_parameters(id, &parameters)?;
        control.start(id)?;
        if !appears(&self.path) {
            return Err(UblkError::NoNode(self.path.clone()));
        }
        let steering = Arc::clone(&self.steering);
        // The thread ends with the device.
        thread::spawn(move || sizes.iter().for_each(|size| lock(&steering).follow(size)));
        Ok(ending)
    }

    /// The path of the block device.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it was stopped in spite of its users.
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    /// Deletes a device that has been stopped or was never started.
    pub(super) fn delete(self) {
        let id = self.id;
        if let Err(error) = delete(self.ublk.0, id, self.mark) {
            tracing::warn!(%error, id, "cannot delete the ublk device");
        }
    }

    /// Starts to stop the device, which takes until the page cache is written.
    ///
    /// `claim` keeps other programs from mounting it until then.
    fn stop(&self, claim: Option<File>) {
        let (done, stopped) = mpsc::channel();
        let (id, steering) = (self.id, Arc::clone(&self.steering));
        thread::spawn(move || {
            let result = lock(&steering).stop();
            match result {
                Ok(()) => {
                    // The receiver may be gone.
                    let _ = done.send(());
                }
                Err(error) => tracing::error!(%error, id, "cannot stop the ublk device"),
            }
            drop(claim);
        });
        self.stopped.replace(Some(stopped));
    }

    /// Waits until the device has been stopped. `Disconnected`: no stop has begun, or it failed.
    fn wait_stopped(&self) -> Result<(), RecvTimeoutError> {
        let stopped = self.stopped.borrow();
        let stopped = stopped.as_ref().ok_or(RecvTimeoutError::Disconnected)?;
        stopped.recv_timeout(GIVE_UP_LIMIT)
    }
}

/// Waits for the device file to appear.
fn appears(path: &Path) -> bool {
    let end = Instant::now() + NODE_LIMIT;
    while !fs::metadata(path).is_ok_and(|file| file.file_type().is_block_device()) {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(LOOK_AGAIN);
    }
    true
}

/// The changes of a device while it is served: its size, then its end.
///
/// Other threads make them, one at a time.
struct Steering {
    control: Control,
    id: u32,
    mark: u64,
    /// The end has begun: from now on the size is not changed.
    is_over: bool,
}

impl Steering {
    fn look(&mut self) -> Result<Option<DeviceInfo>, ControlError> {
        look(&mut self.control, self.id, self.mark)
    }

    /// Whether the disk is gone. If that cannot be found out, it counts as served.
    fn is_gone(&mut self) -> bool {
        self.look().is_ok_and(|found| found.is_none_or(|info| info.state == DeviceState::Dead))
    }

    /// Stops the device.
    fn stop(&mut self) -> Result<(), ControlError> {
        self.is_over = true;
        match self.look()? {
            Some(_) => self.control.stop(self.id),
            None => Ok(()),
        }
    }

    /// Passes the unit's new size to the kernel.
    fn follow(&mut self, size: u64) {
        if !self.control.can_resize() {
            tracing::warn!(
                size,
                "the LUN was resized, but this kernel's ublk cannot resize a device (Linux 6.16 can); detach and attach it to use the new size"
            );
            return;
        }
        match self.resize(size) {
            Ok(false) => {}
            Ok(true) => tracing::info!(size, "device resized"),
            Err(error) => tracing::error!(%error, size, "cannot resize the device; it keeps its size"),
        }
    }

    /// Resizes the device; `false`: it is not served any more.
    fn resize(&mut self, size: u64) -> Result<bool, ControlError> {
        if self.is_over || self.look()?.is_none_or(|info| info.state != DeviceState::Live) {
            return Ok(false);
        }
        self.control.resize(self.id, size)?;
        Ok(true)
    }
}

fn lock(steering: &Mutex<Steering>) -> MutexGuard<'_, Steering> {
    steering.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Presentation for Device {
    fn take_away(&self) -> Result<bool, AttachError> {
        // Claim the device first: that is cheaper than a search through all processes, and keeps others from
        // mounting it meanwhile.
        match users::claim(&self.path) {
            Ok(Some(claim)) if users::of(&self.path).is_empty() => self.stop(Some(claim)),
            // Another program is about to delete the device. If only its file is gone, it may be in use
            // through another file.
            Err(error) if users::is_gone(&error) && lock(&self.steering).is_gone() => self.stop(None),
            // If the users are unknown, the device stays: a second signal stops it.
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn give_up(&self) {
        let mut stopped = self.wait_stopped();
        // Retry if an earlier stop failed, or none was tried.
        if stopped == Err(RecvTimeoutError::Disconnected) {
            self.stop(None);
            stopped = self.wait_stopped();
        }
        self.is_stopped.set(stopped.is_ok());
    }

    fn tell_in_use(&self) {
        let users: Vec<_> = users::mounted(&self.path).into_iter().chain(users::of(&self.path)).collect();
        tracing::warn!(
            device = %self.path.display(),
            by = %users.join(", "),
            "the device is in use (see `lsblk`, `fuser -m`) and will be removed when its last user closes it; a second signal removes it now"
        );
    }

    fn goodbye_limit(&self) -> Option<Duration> {
        None
    }
}

/// The unit's sizes in the form that the kernel takes.
fn parameters(unit: Geometry, read_only: bool) -> Parameters {
    let granularity = unit.unmap.unwrap_or(unit.block);
    Parameters {
        size: unit.size,
        block: unit.block,
        // Not `io_min`: programs expect a physical block to be written atomically, which a transfer
        // granularity does not promise.
        physical_block: unit.block,
        io_min: unit.io_min,
        io_opt: unit.io_opt,
        request_max: unit.transfer.max(REQUEST_BYTES_MIN),
        discard_granularity: granularity,
        discard_max: unit.unmap.map_or(0, |unmap| unit.write_same - unit.write_same % u64::from(unmap)),
        zeros_max: unit.write_same,
        read_only,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_gets_the_parameters_of_the_unit() {
        let unit = Geometry {
            size: 1 << 30,
            block: 512,
            io_min: 16_384,
            io_opt: 16_384,
            transfer: 8192,
            write_same: 65_535 * 512,
            unmap: Some(4096),
        };
        let expected = Parameters {
            size: 1 << 30,
            block: 512,
            physical_block: 512,
            io_min: 16_384,
            io_opt: 16_384,
            request_max: 65_536,
            discard_granularity: 4096,
            discard_max: 33_550_336,
            zeros_max: 33_553_920,
            read_only: false,
        };
        assert_eq!(parameters(unit, false), expected);
        let thick = parameters(Geometry { block: 4096, io_min: 4096, unmap: None, ..unit }, true);
        assert_eq!((thick.physical_block, thick.discard_granularity, thick.discard_max), (4096, 4096, 0));
        assert!(thick.read_only);
    }

    #[test]
    fn our_devices_are_recognized_by_their_own_mark() {
        let mark = draw_mark();
        assert_eq!(mark as u32, 0x7572_7361);
        assert!(is_ours(mark) && is_ours(0x7572_7361) && is_ours(0xffff_ffff_7572_7361));
        assert!(!is_ours(0) && !is_ours(0x7572_7361_0000_0000));
        assert!((0..4).any(|_| draw_mark() != mark));
    }

    #[test]
    fn missing_prerequisites_are_reported_with_what_to_do() {
        let says = UblkError::from(ControlError::NoDriver).to_string();
        assert!(says.contains("modprobe ublk_drv") && says.contains("without --ublk"), "{says}");
        let says = UblkError::from(ControlError::Exists(3)).to_string();
        assert!(says.contains("device 3 already exists") && says.contains("--ublk-id"), "{says}");
    }
}
