//! An initiator's parsers of responses to its commands: they never panic, and a parsed response contains
//! nothing that the bytes do not, and can be encoded again.

use std::fmt::Debug;

use base::{BlockCount, BlockSize, Buf, Lba};
use initiator::command::{
    AccessState, Command, GetLbaStatus, Identification, Inquiry, LbaStatus, PortGroup, Provisioning, Read,
    ReadCapacity, ReadFullStatus, ReadKeys, ReadReservation, Registrant, ReportLuns, ReportTargetPortGroups,
    Reservation,
};
use initiator::{Capacity, Lun};

/// Parses the bytes as the response to one of the commands.
pub fn run((command, bytes): (u8, &[u8])) {
    match command % 10 {
        0 => said_again(&ReadCapacity, bytes, |capacity| capacity_bytes(*capacity)),
        1 => said_again(&ReportLuns, bytes, |luns| luns_bytes(luns)),
        2 => said_again(&GetLbaStatus { lba: Lba(0) }, bytes, |all| statuses_bytes(all)),
        3 => said_again(&ReadKeys, bytes, |keys| keys_bytes(keys)),
        4 => said_again(&ReadReservation, bytes, |held| reservation_bytes(*held)),
        5 => said_again(&ReadFullStatus, bytes, |all| registrants_bytes(all)),
        6 => said_again(&ReportTargetPortGroups, bytes, |groups| groups_bytes(groups)),
        7 => identification(bytes),
        8 => said_again(&Inquiry { page: None, len: u16::MAX }, bytes, Vec::clone),
        _ => read(bytes),
    }
}

/// A parsed response, encoded again, is no longer than the bytes that came, and is parsed the same way.
fn said_again<C: Command>(command: &C, bytes: &[u8], encode: impl Fn(&C::Answer) -> Vec<u8>)
where
    C::Answer: Debug + PartialEq,
{
    let Some(answer) = command.answer(Some(Buf::copy_of(bytes))) else { return };
    let again = encode(&answer);
    assert!(again.len() <= bytes.len(), "{}: {answer:?} of {} bytes", C::NAME, bytes.len());
    assert_eq!(command.answer(Some(Buf::copy_of(&again))), Some(answer), "{}", C::NAME);
}

/// SBC-3 5.16.2.
fn capacity_bytes(capacity: Capacity) -> Vec<u8> {
    let last = capacity.blocks.0 - 1;
    [&last.to_be_bytes()[..], &capacity.block_size.bytes().to_be_bytes()].concat()
}

/// SPC-4 6.33.3.
fn luns_bytes(luns: &[Lun]) -> Vec<u8> {
    let list: Vec<u8> = luns.iter().flat_map(|lun| lun.bytes()).collect();
    [&(list.len() as u32).to_be_bytes()[..], &[0; 4], &list].concat()
}

/// SBC-3 5.6.2.
fn statuses_bytes(all: &[LbaStatus]) -> Vec<u8> {
    let mut list = Vec::new();
    for status in all {
        let count = u32::try_from(status.blocks.count.0).expect("its field has 32 bits");
        list.extend(status.blocks.start.0.to_be_bytes());
        list.extend(count.to_be_bytes());
        let provisioning = match status.provisioning {
            Provisioning::Mapped => 0,
            Provisioning::Deallocated => 1,
            Provisioning::Anchored => 2,
        };
        list.extend([provisioning, 0, 0, 0]);
    }
    [&(list.len() as u32 + 4).to_be_bytes()[..], &[0; 4], &list].concat()
}

/// A list after PRGENERATION and ADDITIONAL LENGTH (SPC-4 6.15).
fn reservation_list(list: &[u8]) -> Vec<u8> {
    [&[0_u8; 4][..], &(list.len() as u32).to_be_bytes(), list].concat()
}

fn keys_bytes(keys: &[u64]) -> Vec<u8> {
    reservation_list(&keys.iter().flat_map(|key| key.to_be_bytes()).collect::<Vec<u8>>())
}

/// Up to the type: the bytes after it mean nothing.
fn reservation_bytes(held: Option<Reservation>) -> Vec<u8> {
    let list = held.map(|held| [&held.key.to_be_bytes()[..], &[0; 5], &[held.kind as u8]].concat());
    reservation_list(&list.unwrap_or_default())
}

fn registrants_bytes(all: &[Registrant]) -> Vec<u8> {
    let mut list = Vec::new();
    for registrant in all {
        list.extend(registrant.key.to_be_bytes());
        list.extend([0; 4]);
        list.extend([u8::from(registrant.holds.is_some()), registrant.holds.map_or(0, |kind| kind as u8)]);
        list.extend([0; 4]);
        list.extend(registrant.port.to_be_bytes());
        list.extend((registrant.transport_id.len() as u32).to_be_bytes());
        list.extend(&registrant.transport_id);
    }
    reservation_list(&list)
}

/// SPC-4 6.36.
fn groups_bytes(groups: &[PortGroup]) -> Vec<u8> {
    let mut list = Vec::new();
    for group in groups {
        let state = match group.state {
            AccessState::ActiveOptimized => 0x0,
            AccessState::ActiveNonOptimized => 0x1,
            AccessState::Standby => 0x2,
            AccessState::Unavailable => 0x3,
            AccessState::LogicalBlockDependent => 0x4,
            AccessState::Offline => 0xe,
            AccessState::Transitioning => 0xf,
        };
        let ports = u8::try_from(group.ports.len()).expect("its field has 8 bits");
        list.extend([u8::from(group.preferred) << 7 | state, 0]);
        list.extend(group.id.to_be_bytes());
        list.extend([0, 0, 0, ports]);
        for port in &group.ports {
            let [high, low] = port.to_be_bytes();
            list.extend([0, 0, high, low]);
        }
    }
    [&(list.len() as u32).to_be_bytes()[..], &list].concat()
}

/// Names are in the page, and the bytes after the page mean nothing.
fn identification(bytes: &[u8]) {
    let Some(identity) = Identification.answer(Some(Buf::copy_of(bytes))) else { return };
    if let Some(naa) = identity.unit.naa() {
        assert!(bytes.windows(naa.len()).any(|window| window == naa), "{naa:02x?} is not in it");
    }
    if let Some(vendor) = &identity.vendor {
        assert!(vendor.chars().count() <= 8, "a vendor has eight characters, not {vendor:?}");
    }
    assert!(identity.unit.to_string().len() <= 3 * bytes.len() + "naa.".len());
    let page_len = 4 + usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    let page = &bytes[..page_len.min(bytes.len())];
    assert_eq!(Identification.answer(Some(Buf::copy_of(page))), Some(identity));
}

/// Either all blocks that were requested, or nothing.
fn read(bytes: &[u8]) {
    let command = Read { lba: Lba(0), count: BlockCount(2), size: BlockSize::B512 };
    let whole = bytes.len() as u64 == (command.count * command.size).0;
    let answer = command.answer(Some(Buf::copy_of(bytes)));
    assert_eq!(answer.as_ref().map(|answer| &answer[..]), whole.then_some(bytes));
}
