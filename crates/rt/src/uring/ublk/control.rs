//! `/dev/ublk-control`: makes, starts, stops and deletes devices. Every command blocks the calling thread
//! until the kernel has done it.

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

/// ENOTSUPP, which is none of user space's error numbers: what older drivers answer to a command that they do
/// not know.
const UNKNOWN_COMMAND: i32 = 524;

/// A device could not be made, changed or taken away.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The module is not loaded, or there is none.
    #[error("{PATH} is missing: this kernel has no ublk, or its module is not loaded")]
    NoDriver,
    /// Only root may.
    #[error("this user may not create ublk devices: CAP_SYS_ADMIN and access to {PATH} are required")]
    Denied(#[source] io::Error),
    /// Older than 6.5.
    #[error("this kernel's ublk is too old: Linux 6.5 or newer is required")]
    TooOld,
    /// No ring.
    #[error(transparent)]
    Ring(#[from] StartError),
    /// The number is taken.
    #[error("ublk device {0} already exists")]
    Exists(u32),
    /// Anything else.
    #[error("cannot {doing} the ublk device")]
    Command {
        /// What was to be done.
        doing: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// What a device is to be made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewDevice {
    /// Its number; `None`: any that is free.
    pub id: Option<u32>,
    /// Requests under way at once.
    pub slots: u16,
    /// Bytes of a read or a write at most: whole pages, no more than 32 MiB.
    pub request_max: u32,
    /// By which its maker knows it again ([`DeviceInfo::mark`]).
    pub mark: u64,
}

/// Says what to do to ublk devices.
pub struct Control {
    ring: IoUring<squeue::Entry128>,
    file: File,
    features: u64,
}

impl Control {
    /// Finds out whether this kernel has ublk, and one that is new enough.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn open() -> Result<Control, ControlError> {
        let file = File::options().read(true).write(true).open(PATH).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ControlError::NoDriver,
            io::ErrorKind::PermissionDenied => ControlError::Denied(error),
            // A node that somebody made, without its driver, as in a container.
            _ if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => ControlError::NoDriver,
            _ => ControlError::Command { doing: "open the control of", source: error },
        })?;
        let ring = IoUring::<squeue::Entry128>::builder().dontfork().build(ENTRIES);
        let ring = ring.map_err(StartError::of_ring)?;
        let mut control = Control { ring, file, features: 0 };
        let mut features = [0; size_of::<u64>()];
        // The command is as old as what is asked for with it.
        control
            .command(abi::GET_FEATURES, abi::NO_DEVICE, 0, &mut features)
            .map_err(|_| ControlError::TooOld)?;
        control.features = u64::from_ne_bytes(features);
        if control.features & abi::USER_COPY == 0 {
            return Err(ControlError::TooOld);
        }
        Ok(control)
    }

    /// Makes a device, and gives its number. It has a queue to be served, and no disk yet.
    ///
    /// # Errors
    /// [`ControlError::Exists`], [`ControlError::Denied`], or what the kernel says.
    ///
    /// # Panics
    /// If there are to be no slots, more than 4096, or larger requests than there can be.
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

    /// What the kernel knows of a device.
    ///
    /// # Errors
    /// What the kernel says; that there is none, too.
    pub fn info(&mut self, device: u32) -> Result<DeviceInfo, ControlError> {
        let mut info = [0; abi::INFO_LEN];
        self.command(abi::GET_INFO, device, 0, &mut info).map_err(failed("read the parameters of"))?;
        Ok(abi::decode_info(&info))
    }

    /// Says what the disk is to be. Before it is started.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_parameters(&mut self, device: u32, parameters: &Parameters) -> Result<(), ControlError> {
        let mut bytes = parameters.encode();
        self.command(abi::SET_PARAMETERS, device, 0, &mut bytes).map_err(failed("set the parameters of"))
    }

    /// Makes the disk. Waits until all slots wait for requests, and serves those of the search for partitions
    /// meanwhile.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn start(&mut self, device: u32) -> Result<(), ControlError> {
        let process = u64::from(std::process::id());
        self.command(abi::START, device, process, &mut []).map_err(failed("start"))
    }

    /// Takes the disk away: what is in the page cache is written, requests under way are waited for, and then
    /// all slots hear that it is over.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn stop(&mut self, device: u32) -> Result<(), ControlError> {
        self.command(abi::STOP, device, 0, &mut []).map_err(failed("stop"))
    }

    /// Takes the rest away, if nobody else has. Somebody who has it open still keeps the number from being
    /// used again; where the kernel cannot do without, this waits for them, with no limit.
    ///
    /// # Errors
    /// What the kernel says.
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

    /// Tells everybody that the disk has another size now, in bytes.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn resize(&mut self, device: u32, size: u64) -> Result<(), ControlError> {
        self.command(abi::UPDATE_SIZE, device, size / abi::SECTOR_BYTES, &mut []).map_err(failed("resize"))
    }

    /// Gives a command, and waits for its end. There is no limit: what may take long waits for requests,
    /// which their server answers or which end with its process.
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

/// Whether that is what the kernel says to a command that is newer than itself.
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
    fn a_command_that_the_kernel_does_not_know_is_no_failure() {
        // ENOTSUPP of the kernel's own errno.h, EOPNOTSUPP, EINVAL.
        assert!(is_unknown(524) && is_unknown(95) && is_unknown(22));
        // ENODEV, EINTR, EBUSY.
        assert!(!is_unknown(19) && !is_unknown(4) && !is_unknown(16));
    }
}
