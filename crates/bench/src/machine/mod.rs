//! Facts about this machine: CPU times of processes and processors, listening processes, properties. This is
//! the only part of this crate that reads the system's files and clocks.

mod cpu;
mod disk;
mod facts;
mod resolve;
mod server;

pub(crate) use cpu::{Processors, process_cpu, thread_cpu};
pub(crate) use disk::{DiskBytes, process_disk};
pub(crate) use facts::{file_kind, machine, own_pid, process_name, processors, utc_now};
pub(crate) use resolve::{is_local, resolve};
pub(crate) use server::listener_of;
