//! The commands of the `berth` program, one file or folder each.

pub mod bench;
pub mod demo;
mod event_log;
pub mod events;
mod processes;
pub mod serve;
pub mod verify;
