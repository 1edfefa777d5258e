//! Tests of pools and slices as the node uses them.

mod disk;
mod faults;
mod file;
mod model;
mod refusal;
