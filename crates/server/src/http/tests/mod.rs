//! Requests through all layers: routes, control, cores, disks. Each test has a node of its own.

mod access;
mod addresses;
mod cluster;
mod dry_runs;
mod elsewhere;
mod events;
mod findings;
mod forwarding;
mod happened;
mod history;
mod hosts;
mod jobs;
mod links;
mod node;
mod once;
mod pools;
mod requests;
mod rig;
mod scrubs;
mod sessions;
mod snapshots;
mod targets;
mod tls;
mod volumes;
