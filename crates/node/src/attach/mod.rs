//! What hosts see: volumes as logical units, with their reservations and paths, and which hosts may use them.
//!
//! Nothing here knows a protocol's sessions or the cluster: [`mod@unit`] executes commands of any session,
//! [`access`] says which volumes a host sees under which number, and [`port_numbers`] how its ports are
//! numbered.

pub mod access;
pub(crate) mod port_numbers;
pub(crate) mod unit;
