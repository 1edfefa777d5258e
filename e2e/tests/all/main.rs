//! Real processes, real clients. `URSA_E2E_SERVER=tgt` runs the same tests against tgt.

mod addresses;
mod any_node;
mod attach;
mod bench;
mod clients;
mod cluster;
mod conformance;
mod connections;
mod drill;
mod etcd;
mod forks;
mod guest;
mod guest_bad_blocks;
mod guest_cluster;
mod guest_failed_disk;
mod isolation;
mod links;
mod multipath;
mod out_of_range;
mod power;
mod qemu;
mod record;
mod robustness;
mod set_back;
mod structure;
mod watcher;
