//! The real binary: started, asked, stopped, killed.

mod command_line;
mod crowd;
mod life;
mod node;
mod refusals;
