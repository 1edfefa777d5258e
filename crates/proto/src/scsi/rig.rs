//! For tests: a unit with one core and a few nexuses, and a driver that executes changes as the node does.

use std::sync::Arc;

use base::{BlockCount, BlockSize, ByteLen, Chain};

use super::limits::AtomicWrites;
use super::{
    AccessState, Cdb, ChangeRequest, Identity, InitiatorPort, ItNexus, LogicalUnit, LuConfig, LuState, Lun,
    NexusId, Outcome, PortGroup, RelativePort, Request, Status, Step, TargetPort, Thresholds,
};
use crate::block::{BlockDone, BlockOp, Space};

/// The first nexus.
pub(super) const A: NexusId = NexusId(1);
/// Another initiator through the same port.
pub(super) const B: NexusId = NexusId(2);
/// The first initiator through the second port.
pub(super) const A2: NexusId = NexusId(3);
/// A third initiator through the first port, which has not logged in.
pub(super) const C: NexusId = NexusId(4);

pub(super) fn config() -> LuConfig {
    let port = |number| TargetPort {
        relative: RelativePort(number),
        target: "iqn.2025-01.example:disk".into(),
        portal_group: Some(number),
    };
    LuConfig {
        identity: Identity {
            vendor: "URSA".into(),
            product: "VOLUME".into(),
            revision: "0001".into(),
            serial: "0123456789".into(),
            naa: [0x62; 16],
            eui64: [0xe0; 8],
        },
        block_size: BlockSize::B512,
        physical_exponent: 3,
        blocks: BlockCount(0x20000),
        unmap: true,
        solid_state: true,
        read_only: false,
        atomic: AtomicWrites::default(),
        thresholds: None,
        unlisted: AccessState::ActiveOptimized,
        port_groups: vec![PortGroup {
            id: 1,
            state: AccessState::ActiveOptimized,
            preferred: false,
            ports: vec![port(1), port(2)],
        }],
    }
}

/// A unit that shares its space with others.
pub(super) fn thin() -> LuConfig {
    LuConfig { thresholds: Some(Thresholds { available: &[20, 10, 5], margin: 2 }), ..config() }
}

/// The space of a thin unit: a little more than one threshold set is used, a little less than three are
/// available.
const SPACE: Space =
    Space { used: ByteLen((32 << 20) + 1), available: ByteLen((96 << 20) - 1), available_percent: 74 };

pub(super) fn nexus(id: NexusId) -> ItNexus {
    let (name, port) = match id {
        A => ("iqn.a", 1),
        B => ("iqn.b", 1),
        C => ("iqn.c", 1),
        _ => ("iqn.a", 2),
    };
    ItNexus {
        initiator: InitiatorPort::Iscsi { name: Arc::from(name), isid: [0, 2, 0x3d, 0, 0, 1] },
        port: RelativePort(port),
    }
}

pub(super) struct Rig {
    pub(super) unit: LogicalUnit,
}

impl Rig {
    /// A unit whose nexuses have all received their first unit attention.
    pub(super) fn new() -> Rig {
        Rig::with(config(), LuState::default())
    }

    pub(super) fn with(config: LuConfig, state: LuState) -> Rig {
        let mut unit = LogicalUnit::new(config, state);
        for id in [A, B, A2] {
            unit.attach_nexus(id, nexus(id), false);
            unit.take_attention(id);
        }
        Rig { unit }
    }

    /// Runs a command. Operations on blocks are not executed; they end with GOOD.
    pub(super) fn run(&mut self, id: NexusId, cdb: &[u8], data: &[u8]) -> Outcome {
        let mut bytes = [0; 16];
        bytes[..cdb.len()].copy_from_slice(cdb);
        let request = Request { nexus: id, cdb: Cdb(bytes), data_out: Chain::copy_of(data) };
        match self.unit.start(request) {
            Step::Done(outcome) => outcome,
            Step::Change(change) => self.carry_out(&change),
            Step::ReportLuns(report) => {
                self.unit.luns_reported(id);
                report.answer(&[Lun::new(0).unwrap(), Lun::new(5).unwrap()])
            }
            Step::Block(pending, BlockOp::TestReady) => self.unit.finish(pending, Ok(BlockDone::Done)),
            Step::Block(pending, BlockOp::Space) => self.unit.finish(pending, Ok(BlockDone::Space(SPACE))),
            Step::Block(..) | Step::Copy(..) => Outcome::good(),
        }
    }

    pub(super) fn carry_out(&mut self, change: &ChangeRequest) -> Outcome {
        let decision = self.unit.decide(change);
        if let Some(state) = &decision.state {
            let durable = LuState::from_durable(&state.to_durable()).expect("what is written can be read");
            assert_eq!(durable.to_durable(), state.to_durable());
            let same = state.to_durable() == self.unit.state().to_durable();
            assert!(same || decision.durable, "what must survive is stored");
        }
        self.unit.install(decision.state, &decision.notices);
        decision.outcome
    }

    /// The data of a command that succeeds.
    pub(super) fn data(&mut self, id: NexusId, cdb: &[u8]) -> Vec<u8> {
        let outcome = self.run(id, cdb, &[]);
        assert_eq!(outcome.status, Status::Good, "{:?}", outcome.sense);
        assert_eq!(outcome.transfer, outcome.data_in.len() as u64);
        outcome.data_in.to_vec()
    }

    /// The additional sense code of a command that fails.
    pub(super) fn code(&mut self, id: NexusId, cdb: &[u8], data: &[u8]) -> u16 {
        let outcome = self.run(id, cdb, data);
        assert_eq!(outcome.status, Status::CheckCondition);
        outcome.sense.unwrap().code
    }

    /// The status of a command.
    pub(super) fn status(&mut self, id: NexusId, cdb: &[u8], data: &[u8]) -> Status {
        self.run(id, cdb, data).status
    }

    /// All attentions of a nexus.
    pub(super) fn news(&mut self, id: NexusId) -> Vec<u16> {
        std::iter::from_fn(|| self.unit.take_attention(id)).map(|news| news.sense().code).collect()
    }
}
