//! What this machine says: times of processes and processors, who listens where, what it is. The only part of
//! this crate that reads the system's files and clocks.

mod cpu;
mod facts;
mod resolve;
mod server;

pub(crate) use cpu::{Processors, process_cpu, thread_cpu};
pub(crate) use facts::{file_kind, machine, own_pid, process_name, processors, utc_now};
pub(crate) use resolve::{is_local, resolve};
pub(crate) use server::listener_of;
