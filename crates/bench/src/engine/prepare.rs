//! Before the runs: inspects the targets, checks whether they may be overwritten, and fills them.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use base::{Buf, Rng, SharedBuf};
use initiator::Pattern;
use rt::{OpenOptions, Task};

use super::RunError;
use super::gauge::{Gauge, Phase};
use super::plan::{Place, Plan, Preparation, region};
use crate::content::Filler;
use crate::device::{Device, Failure, NoWay, Way, first_data};
use crate::sequence::Region;

/// Bytes of one write of a fill.
const FILL_BYTES: u64 = 1 << 20;
/// Outstanding writes of a fill.
const FILL_DEPTH: u64 = 8;

/// The properties of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Bytes.
    pub(crate) size: u64,
    /// The unit of offsets and lengths.
    pub(crate) block: u32,
    /// The most bytes of one request.
    pub(crate) request_max: u64,
    /// The unit's identity; `None` for a disk.
    pub(crate) identity: Option<String>,
    /// Whether everything that was inspected reads as zeros; `None` if nothing was inspected.
    pub(crate) empty: Option<bool>,
}

/// Inspects all targets of a plan, and fills them if requested. Nothing is written before all targets have
/// been inspected.
///
/// # Errors
/// [`RunError::HasData`] if a target holds data that would be destroyed, and any other error of a target.
pub(crate) async fn prepare(
    plan: &Plan,
    preparation: &Preparation,
    gauge: &Gauge,
) -> Result<Vec<Found>, RunError> {
    gauge.enter(Phase::Preparing);
    let writes = preparation.writes || preparation.fill.is_some();
    let (mut devices, mut found) = (Vec::new(), Vec::new());
    for (number, place) in plan.places.iter().enumerate() {
        let device = open(place, preparation.create, !writes).await.map_err(|error| error.at(number))?;
        let mut target = describe(&device);
        // A new file is empty; reading it would prove nothing.
        if preparation.create.is_none() {
            // All reads of a survey together get the time of two requests.
            let data = rt::timeout(2 * plan.timeout, first_data(&device)).await;
            let data = data.unwrap_or(Err(Failure::Silent(2 * plan.timeout)));
            let data = data.map_err(|failure| RunError::Failed { place: number, failure })?;
            match data {
                Some(offset) if writes && !preparation.overwrite => {
                    return Err(RunError::HasData { place: number, offset });
                }
                data => target.empty = Some(data.is_none()),
            }
        }
        devices.push(Rc::new(device));
        found.push(target);
    }
    if let Some(content) = preparation.fill {
        gauge.enter(Phase::Filling);
        let regions = regions(plan, &found)?;
        regions.iter().for_each(|region| gauge.fill_more(region.len));
        for (number, (device, region)) in devices.iter().zip(regions).enumerate() {
            let fill = Fill { plan, gauge, content, device: Rc::clone(device), region };
            let max = found[number].request_max;
            let filled = fill.carry_out(max).await;
            filled.map_err(|failure| RunError::Failed { place: number, failure })?;
            if gauge.is_stopped() {
                return Err(RunError::Stopped);
            }
            found[number].empty = Some(false);
        }
    }
    for device in devices {
        if let Ok(device) = Rc::try_unwrap(device) {
            device.close().await;
        }
    }
    Ok(found)
}

/// The part of each target that the plan uses.
pub(crate) fn regions(plan: &Plan, found: &[Found]) -> Result<Vec<Region>, RunError> {
    let of = |(number, found): (usize, &Found)| {
        let Found { size, block, request_max, .. } = *found;
        region(&plan.workload, size, block, request_max)
            .map_err(|misfit| RunError::Misfit { place: number, misfit })
    };
    found.iter().enumerate().map(of).collect()
}

/// Opens a target for this core.
pub(crate) async fn open(place: &Place, create: Option<u64>, read_only: bool) -> Result<Device, OpenFailure> {
    match place {
        Place::Disk(path) => {
            // Reads of space that is reserved but was never written cost the disk nothing, so the caller also
            // fills the file.
            let options = OpenOptions { create, reserve: create.is_some(), read_only };
            Ok(Device::open_disk(path, options).await?)
        }
        Place::Unit(address) => Ok(Device::open_unit(address).await?),
    }
}

pub(crate) fn describe(device: &Device) -> Found {
    let identity = match device {
        Device::Disk(_) => None,
        Device::Unit(unit) => Some(unit.identity().to_owned()),
    };
    let request_max = device.request_max();
    Found { size: device.size(), block: device.block(), request_max, identity, empty: None }
}

/// How other cores reach a target that is open on this core.
pub(crate) fn way(place: &Place, device: &Device) -> Way {
    match (place, device) {
        (Place::Unit(address), _) => Way::Unit(Arc::clone(address)),
        (Place::Disk(_), Device::Disk(disk)) => Way::Disk(Arc::from(disk.share())),
        (Place::Disk(_), Device::Unit(_)) => unreachable!("a path opens a disk"),
    }
}

/// Why a target could not be opened.
pub(crate) enum OpenFailure {
    Disk(rt::OpenError),
    Unit(NoWay),
}

impl From<rt::OpenError> for OpenFailure {
    fn from(error: rt::OpenError) -> OpenFailure {
        OpenFailure::Disk(error)
    }
}

impl From<NoWay> for OpenFailure {
    fn from(error: NoWay) -> OpenFailure {
        OpenFailure::Unit(error)
    }
}

impl OpenFailure {
    pub(crate) fn at(self, place: usize) -> RunError {
        match self {
            OpenFailure::Disk(error) => RunError::Open(error),
            OpenFailure::Unit(error) => RunError::Connect { place, error },
        }
    }
}

/// Fills a region from its start to its end.
struct Fill<'a> {
    plan: &'a Plan,
    gauge: &'a Gauge,
    content: crate::Content,
    device: Rc<Device>,
    region: Region,
}

impl Fill<'_> {
    /// Fills up to the end, or until the run is stopped.
    async fn carry_out(&self, request_max: u64) -> Result<(), Failure> {
        let block = u64::from(self.device.block());
        let step = FILL_BYTES.min(request_max - request_max % block);
        let mut filler = Filler::new(self.content, step as usize, Rng::new(self.plan.pattern));
        let mut end = self.region.start + self.region.len;
        let mut under_way = VecDeque::new();
        let mut at = self.region.start;
        while at < end || !under_way.is_empty() {
            if self.gauge.is_stopped() {
                end = at;
            }
            if at < end && (under_way.len() as u64) < FILL_DEPTH {
                let len = step.min(end - at);
                under_way.push_back((len, self.write(at, self.data(at, len, &mut filler))));
                at += len;
                continue;
            }
            if let Some((len, task)) = under_way.pop_front() {
                task.await?;
                self.gauge.filled(len);
            }
        }
        self.device.flush().await
    }

    /// The data at an offset: with `--verify`, that of write 0 of each sector.
    fn data(&self, at: u64, len: u64, filler: &mut Filler) -> SharedBuf {
        if !self.plan.workload.verify {
            return filler.next().slice(0..len as usize);
        }
        let mut data = Buf::uncleared(len as usize);
        Pattern::new(self.plan.pattern).fill(&mut data, at, 0);
        data.share()
    }

    fn write(&self, at: u64, data: SharedBuf) -> Task<Result<(), Failure>> {
        let (device, timeout) = (Rc::clone(&self.device), self.plan.timeout);
        rt::spawn(async move {
            let written = rt::timeout(timeout, device.write(at, data, false)).await;
            written.unwrap_or(Err(Failure::Silent(timeout)))
        })
    }
}
