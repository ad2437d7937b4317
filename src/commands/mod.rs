//! The commands of the `berth` program, one file or folder each.

pub mod bench;
pub mod demo;
mod processes;
pub mod serve;
