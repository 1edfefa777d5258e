//! `/dev/ublk-control`: creates, starts, stops and deletes devices. Every command blocks the calling thread
//! until the kernel has executed it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};

use super::abi::{self, DeviceInfo, Parameters};
use crate::uring::StartError;
use crate::uring::driver::accept_enter;

const PATH: &str = "/dev/ublk-control";

/// One command at a time.
const ENTRIES: u32 = 1;

/// ENOTSUPP, which is not an error number of user space: the answer of older drivers to an unknown command.
const UNKNOWN_COMMAND: i32 = 524;

/// Why a device could not be created, changed or removed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The module is not loaded, or does not exist.
    #[error("{PATH} is missing: this kernel has no ublk, or its module is not loaded")]
    NoDriver,
    /// Only root may do this.
    #[error("this user may not create ublk devices: CAP_SYS_ADMIN and access to {PATH} are required")]
    Denied(#[source] io::Error),
    /// The kernel is older than 6.5.
    #[error("this kernel's ublk is too old: Linux 6.5 or newer is required")]
    TooOld,
    /// The ring could not be created.
    #[error(transparent)]
    Ring(#[from] StartError),
    /// The number is in use.
    #[error("ublk device {0} already exists")]
    Exists(u32),
    /// Any other error.
    #[error("cannot {doing} the ublk device")]
    Command {
        /// What was being done.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// The parameters for creating a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewDevice {
    /// Its number; `None`: any free one.
    pub id: Option<u32>,
    /// The number of simultaneous requests.
    pub slots: u16,
    /// The most bytes of a read or a write: whole pages, at most 32 MiB.
    pub request_max: u32,
    /// A mark by which its creator recognizes it ([`DeviceInfo::mark`]).
    pub mark: u64,
}

/// Controls ublk devices.
pub struct Control {
    ring: IoUring<squeue::Entry128>,
    file: File,
    features: u64,
}

impl Control {
    /// Checks whether this kernel has ublk, and one that is new enough.
    pub fn open() -> Result<Control, ControlError> {
        let file = File::options().read(true).write(true).open(PATH).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ControlError::NoDriver,
            io::ErrorKind::PermissionDenied => ControlError::Denied(error),
            // A device node without its driver, for example in a container.
            _ if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => ControlError::NoDriver,
            _ => ControlError::Command { doing: "open the control of", source: error },
        })?;
        let ring = IoUring::<squeue::Entry128>::builder().dontfork().build(ENTRIES);
        let ring = ring.map_err(StartError::of_ring)?;
        let mut control = Control { ring, file, features: 0 };
        let mut features = [0; size_of::<u64>()];
        // The command is as old as the feature that is checked with it.
        control
            .command(abi::GET_FEATURES, abi::NO_DEVICE, 0, &mut features)
            .map_err(|_| ControlError::TooOld)?;
        control.features = u64::from_ne_bytes(features);
        if control.features & abi::USER_COPY == 0 {
            return Err(ControlError::TooOld);
        }
        Ok(control)
    }

    /// Creates a device and returns its number. It has a queue to be served, and no disk yet.
    ///
    /// # Errors
    /// [`ControlError::Exists`], [`ControlError::Denied`], or the kernel's.
    ///
    /// # Panics
    /// If there are no slots, more than 4096, or larger requests than possible.
    pub fn add(&mut self, new: NewDevice) -> Result<u32, ControlError> {
        assert!((1..=abi::SLOTS_MAX).contains(&new.slots) && new.request_max <= abi::REQUEST_BYTES_MAX);
        let device = new.id.unwrap_or(abi::NO_DEVICE);
        let mut info = abi::encode_info(device, new.slots, new.request_max, new.mark);
        match self.command(abi::ADD, device, 0, &mut info) {
            Ok(()) => Ok(abi::device_of_info(&info)),
            Err(error) => Err(match error.raw_os_error() {
                Some(libc::EEXIST) => ControlError::Exists(device),
                Some(libc::EPERM | libc::EACCES) => ControlError::Denied(error),
                _ => ControlError::Command { doing: "make", source: error },
            }),
        }
    }

    /// What the kernel knows about a device.
    ///
    /// # Errors
    /// The kernel's, including that the device does not exist.
    pub fn info(&mut self, device: u32) -> Result<DeviceInfo, ControlError> {
        let mut info = [0; abi::INFO_LEN];
        self.command(abi::GET_INFO, device, 0, &mut info).map_err(failed("read the parameters of"))?;
        Ok(abi::decode_info(&info))
    }

    /// Sets the properties of the disk, before it is started.
    pub fn set_parameters(&mut self, device: u32, parameters: &Parameters) -> Result<(), ControlError> {
        let mut bytes = parameters.encode();
        self.command(abi::SET_PARAMETERS, device, 0, &mut bytes).map_err(failed("set the parameters of"))
    }

    /// Creates the disk. Waits until all slots wait for requests; meanwhile the requests of the partition
    /// scan must be served.
    pub fn start(&mut self, device: u32) -> Result<(), ControlError> {
        let process = u64::from(std::process::id());
        self.command(abi::START, device, process, &mut []).map_err(failed("start"))
    }

    /// Removes the disk: writes back the page cache, waits for requests under way, and then informs all
    /// slots.
    pub fn stop(&mut self, device: u32) -> Result<(), ControlError> {
        self.command(abi::STOP, device, 0, &mut []).map_err(failed("stop"))
    }

    /// Deletes the device, if it still exists.
    ///
    /// While another process has it open, its number is not reused. An older kernel waits for such processes,
    /// without limit.
    pub fn delete(&mut self, device: u32) -> Result<(), ControlError> {
        let mut deleted = self.command(abi::DELETE_LATER, device, 0, &mut []);
        if let Err(error) = &deleted
            && error.raw_os_error().is_some_and(is_unknown)
        {
            deleted = self.command(abi::DELETE, device, 0, &mut []);
        }
        match deleted {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            deleted => deleted.map_err(failed("delete")),
        }
    }

    /// Whether [`Control::resize`] is possible: since Linux 6.16.
    pub fn can_resize(&self) -> bool {
        self.features & abi::CAN_UPDATE_SIZE != 0
    }

    /// Informs all users that the disk has another size, in bytes.
    pub fn resize(&mut self, device: u32, size: u64) -> Result<(), ControlError> {
        self.command(abi::UPDATE_SIZE, device, size / abi::SECTOR_BYTES, &mut []).map_err(failed("resize"))
    }

    /// Executes a command and waits for its end. There is no timeout: commands that may take long wait for
    /// requests, which their server answers or which end with its process.
    fn command(&mut self, code: u32, device: u32, number: u64, buffer: &mut [u8]) -> io::Result<()> {
        let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr() as u64 };
        let len = u16::try_from(buffer.len()).expect("our own structures are short");
        let command = abi::control_command(device, number, address, len);
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), code).cmd(command).build();
        // SAFETY: the kernel uses the buffer until the completion has come, and this function does not return
        // before that.
        unsafe { self.ring.submission().push(&entry) }.expect("the last command has ended");
        loop {
            accept_enter(self.ring.submit_and_wait(1));
            let Some(completion) = self.ring.completion().next() else { continue };
            return match completion.result() {
                result if result < 0 => Err(io::Error::from_raw_os_error(-result)),
                _ => Ok(()),
            };
        }
    }
}

/// Whether this is a kernel's answer to a command that is newer than the kernel.
fn is_unknown(error: i32) -> bool {
    matches!(error, UNKNOWN_COMMAND | libc::EOPNOTSUPP | libc::EINVAL)
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> ControlError {
    move |source| ControlError::Command { doing, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kernel_command_is_not_a_failure() {
        // ENOTSUPP of the kernel's own errno.h, EOPNOTSUPP, EINVAL.
        assert!(is_unknown(524) && is_unknown(95) && is_unknown(22));
        // ENODEV, EINTR, EBUSY.
        assert!(!is_unknown(19) && !is_unknown(4) && !is_unknown(16));
    }
}
