//! Tests of pools and slices as the node uses them.

mod file;
