//! Refusals of a pool.

use axum::http::StatusCode;
use store::StoreError;

use super::{Refusal, with_causes};

pub(super) fn refusal(error: &StoreError) -> Refusal {
    use StoreError as E;
    let (status, code) = match error {
        E::Open(_) => (StatusCode::UNPROCESSABLE_ENTITY, "disk_unusable"),
        E::Disk { source: rt::DiskError::Full, .. } => (StatusCode::INSUFFICIENT_STORAGE, "no_space"),
        E::Disk { .. } | E::LogUnreadable { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "disk_failed"),
        E::NoDisks => (StatusCode::UNPROCESSABLE_ENTITY, "no_disks"),
        E::TooManyDisks => (StatusCode::UNPROCESSABLE_ENTITY, "too_many_disks"),
        E::DiskTooSmall { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "disk_too_small"),
        E::DiskTooLarge { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "disk_too_large"),
        E::NotGrown { .. } => (StatusCode::CONFLICT, "pool_not_grown"),
        E::NoSuchDisk { .. } => (StatusCode::NOT_FOUND, "disk_not_found"),
        E::NotLeaving { .. } => (StatusCode::CONFLICT, "disk_not_leaving"),
        E::OtherDiskLeaving { .. } | E::DiskIsLeaving { .. } => (StatusCode::CONFLICT, "disk_leaving"),
        E::OnlyDisk { .. } => (StatusCode::CONFLICT, "disk_only"),
        E::DiskInUse { .. } => (StatusCode::CONFLICT, "disk_in_use"),
        E::DiskBlock { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "disk_unusable"),
        E::ExtentSize(_) => (StatusCode::UNPROCESSABLE_ENTITY, "field_invalid"),
        E::NotEmpty { .. } => (StatusCode::CONFLICT, "disk_not_empty"),
        E::NotAPool { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "not_a_pool"),
        E::SuperblockDamaged { .. }
        | E::DiskShrunk { .. }
        | E::MetadataDamaged { .. }
        | E::MetadataInvalid { .. } => (StatusCode::CONFLICT, "pool_damaged"),
        E::Version { .. } | E::DiskRole { .. } => (StatusCode::CONFLICT, "pool_version"),
        E::DisksMissing { .. } => (StatusCode::CONFLICT, "disks_missing"),
        E::OtherPool { .. } | E::DuplicateDisk { .. } | E::ReplacedDisk { .. } | E::NotInPool { .. } => {
            (StatusCode::CONFLICT, "wrong_disks")
        }
        E::UsedElsewhere { .. } => (StatusCode::CONFLICT, "pool_used_elsewhere"),
        E::MetadataReadOnly(_) => (StatusCode::SERVICE_UNAVAILABLE, "pool_read_only"),
        E::Exported(_) => (StatusCode::CONFLICT, "pool_exported"),
        E::NoSpace { .. } => (StatusCode::INSUFFICIENT_STORAGE, "no_space"),
        E::NoMemory { .. } => (StatusCode::INSUFFICIENT_STORAGE, "no_memory"),
        E::NoSuchVolume(_) => (StatusCode::NOT_FOUND, "volume_not_found"),
        E::VolumeExists(_) | E::NameTaken(_) => (StatusCode::CONFLICT, "volume_exists"),
        E::NotACopy(_) | E::AlreadyACopy(_) => (StatusCode::CONFLICT, "not_a_copy"),
        E::SlotInvalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "field_invalid"),
        E::NameInvalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "name_invalid"),
        E::CapacityInvalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "field_invalid"),
        E::Shrink { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "would_shrink"),
        E::SlicesInvalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "field_invalid"),
        E::SpaceInvalid => (StatusCode::UNPROCESSABLE_ENTITY, "field_invalid"),
        E::TooManyVolumes(_) => (StatusCode::INSUFFICIENT_STORAGE, "too_many_volumes"),
        E::LuStateTooLarge(_) | E::MetadataFull { .. } => (StatusCode::INSUFFICIENT_STORAGE, "metadata_full"),
        E::BeingConverted(_) => (StatusCode::CONFLICT, "being_converted"),
        E::NotBeingConverted(_) => (StatusCode::CONFLICT, "not_being_converted"),
        E::NotCloneable(_) => (StatusCode::UNPROCESSABLE_ENTITY, "not_cloneable"),
        E::CloneTooDeep(_) => (StatusCode::UNPROCESSABLE_ENTITY, "clone_too_deep"),
        E::HasClones(_) => (StatusCode::CONFLICT, "has_clones"),
        E::NotConvertible(_) => (StatusCode::UNPROCESSABLE_ENTITY, "not_convertible"),
        E::VolumeNotHeld(_) | E::VolumeOpen(_) => (StatusCode::CONFLICT, "volume_in_use"),
    };
    let refusal = Refusal::new(status, code, with_causes(error));
    match error {
        E::CapacityInvalid(_) | E::Shrink { .. } => refusal.field("size"),
        E::SlicesInvalid(_) => refusal.field("slices"),
        E::SpaceInvalid => refusal.field("reserve"),
        _ => refusal,
    }
}
