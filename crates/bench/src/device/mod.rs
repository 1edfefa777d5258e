//! An open target, as one core uses it: bytes at offsets, whatever the target is.

mod survey;
mod unit;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Buf, SharedBuf};
use initiator::WrongSector;
use rt::{Disk, DiskError, Durability, OpenError, OpenOptions};

pub(crate) use survey::first_data;
pub(crate) use unit::{Unit, UnitAddress};

/// An open target.
pub(crate) enum Device {
    Disk(Disk),
    Unit(Unit),
}

/// How every core opens its own device for the same target.
#[derive(Clone)]
pub(crate) enum Way {
    Disk(Arc<dyn Fn() -> Disk + Send + Sync>),
    Unit(Arc<UnitAddress>),
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An error of the disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// An error of the target, or of the session with it.
    #[error(transparent)]
    Session(#[from] initiator::Error),
    /// An error of the target, or of all paths to it.
    #[error(transparent)]
    Paths(#[from] initiator::multipath::Failure),
    /// The target returned other data than was written.
    #[error("wrong data: {0}")]
    WrongData(WrongSector),
    /// The target did not answer.
    #[error("no answer within {} seconds", .0.as_secs_f64())]
    Silent(Duration),
}

/// Why a unit could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum NoWay {
    /// With the only session.
    #[error(transparent)]
    Session(#[from] initiator::Error),
    /// Over several paths.
    #[error(transparent)]
    Paths(#[from] initiator::multipath::OpenError),
    /// Over several paths; the unit did not report its identity.
    #[error(transparent)]
    Unit(#[from] initiator::multipath::Failure),
}

impl Failure {
    /// Whether it is unknown if the request took effect.
    pub fn is_unanswered(&self) -> bool {
        use initiator::Error::{Aborted, Ended, TimedOut};
        use initiator::multipath::EffectKnown::{Perhaps, PerhapsLater};
        match self {
            Failure::Silent(_) | Failure::Session(Ended(_) | Aborted | TimedOut) => true,
            Failure::Paths(failure) => matches!(failure.effect(), Perhaps | PerhapsLater),
            _ => false,
        }
    }
}

impl Device {
    /// Opens or creates a file, or opens a block device.
    pub(crate) async fn open_disk(path: &Path, options: OpenOptions) -> Result<Device, OpenError> {
        Disk::open(path, options).await.map(Device::Disk)
    }

    /// Logs in to a unit.
    pub(crate) async fn open_unit(address: &UnitAddress) -> Result<Device, NoWay> {
        Unit::open(address).await.map(Device::Unit)
    }

    /// Opens the device for the current core.
    pub(crate) async fn reach(way: &Way) -> Result<Device, NoWay> {
        match way {
            Way::Disk(open) => Ok(Device::Disk(open())),
            Way::Unit(address) => Device::open_unit(address).await,
        }
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Device::Disk(disk) => disk.size(),
            Device::Unit(unit) => unit.size(),
        }
    }

    /// Offsets and lengths must be multiples of this.
    pub(crate) fn block(&self) -> u32 {
        match self {
            Device::Disk(disk) => disk.block(),
            Device::Unit(unit) => unit.block(),
        }
    }

    /// The most bytes of one request.
    pub(crate) fn request_max(&self) -> u64 {
        match self {
            Device::Disk(_) => u64::MAX,
            Device::Unit(unit) => unit.request_max(),
        }
    }

    pub(crate) async fn read(&self, offset: u64, len: u32) -> Result<Buf, Failure> {
        match self {
            Device::Disk(disk) => Ok(disk.read(offset, Buf::uncleared(len as usize)).await?),
            Device::Unit(unit) => Ok(unit.read(offset, len).await?),
        }
    }

    /// Writes data. With `through`, the data is on stable storage when the write is answered.
    pub(crate) async fn write(&self, offset: u64, data: SharedBuf, through: bool) -> Result<(), Failure> {
        match self {
            Device::Disk(disk) => {
                let durability = if through { Durability::Durable } else { Durability::Cached };
                Ok(disk.write(offset, data, durability).await?)
            }
            Device::Unit(unit) => Ok(unit.write(offset, data, through).await?),
        }
    }

    /// Makes all answered writes durable.
    pub(crate) async fn flush(&self) -> Result<(), Failure> {
        match self {
            Device::Disk(disk) => Ok(disk.flush().await?),
            Device::Unit(unit) => Ok(unit.flush().await?),
        }
    }

    /// Logs out of a unit, if the target cooperates.
    pub(crate) async fn close(self) {
        if let Device::Unit(unit) = self {
            unit.close().await;
        }
    }
}
