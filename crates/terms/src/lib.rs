//! What people write and read alike in the server, the command line and the tools: sizes, times, lists of
//! processors, what the loss of a node means, settings for hosts. And how a process reports to whoever has
//! started it: exit codes, readiness.

pub mod attach;
pub mod clock;
pub mod cores;
pub mod exit;
pub mod host_setup;
pub mod loss;
pub mod notify;
pub mod same_names;
pub mod samples;
pub mod signals;
pub mod size;
