//! The commands of the `berth` program, one file or folder each.

pub mod bench;
pub mod demo;
mod event_log;
pub mod events;
pub mod explain;
mod looking;
mod processes;
pub mod serve;
pub mod status;
pub mod verify;
