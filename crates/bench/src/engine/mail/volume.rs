//! A part of a target, as the server uses it: every request has a timeout, and is recorded.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, SharedBuf};

use super::Devices;
use super::notes::Notes;
use crate::device::{Device, Failure};
use crate::mail::Part;

/// The run has ended; the reason has been recorded.
#[derive(Debug)]
pub(super) struct Stopped;

/// A part of a target.
pub(super) struct Volume {
    pub(super) part: Part,
    devices: Devices,
    /// The device of the next request.
    turn: Cell<usize>,
    notes: Rc<Notes>,
    timeout: Duration,
}

impl Volume {
    pub(super) fn new(part: Part, devices: Devices, notes: Rc<Notes>, timeout: Duration) -> Volume {
        Volume { part, devices, turn: Cell::new(0), notes, timeout }
    }

    /// The most bytes of one request, in whole blocks.
    pub(super) fn request_max(&self) -> u64 {
        let device = &self.devices[0];
        device.request_max() - device.request_max() % u64::from(device.block())
    }

    pub(super) async fn read(&self, offset: u64, len: u32) -> Result<Buf, Stopped> {
        self.carry_out(true, offset, len.into(), |device| device.read(offset, len)).await
    }

    /// Writes data. With `through`, the data is on stable storage when the write is answered.
    pub(super) async fn write(&self, offset: u64, data: SharedBuf, through: bool) -> Result<(), Stopped> {
        let len = data.len() as u64;
        self.carry_out(false, offset, len, |device| device.write(offset, data, through)).await
    }

    /// Records that a read returned other data than was written.
    pub(super) fn wrong(&self, offset: u64, failure: Failure) -> Stopped {
        self.notes.end_run(&self.part, true, offset, failure);
        Stopped
    }

    async fn carry_out<'a, T, F: Future<Output = Result<T, Failure>>>(
        &'a self,
        read: bool,
        offset: u64,
        bytes: u64,
        request: impl FnOnce(&'a Device) -> F,
    ) -> Result<T, Stopped> {
        let turn = self.turn.get();
        self.turn.set((turn + 1) % self.devices.len());
        let began = rt::now();
        self.notes.begun(read);
        let answer = rt::timeout(self.timeout, request(&self.devices[turn])).await;
        match answer.unwrap_or(Err(Failure::Silent(self.timeout))) {
            Ok(answer) => {
                self.notes.answered(&self.part, read, bytes, began);
                Ok(answer)
            }
            Err(failure) => {
                self.notes.failed(&self.part, read, offset, failure);
                Err(Stopped)
            }
        }
    }
}
