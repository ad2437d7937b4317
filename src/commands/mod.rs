//! The commands of the `berth` program, one file or folder each.

pub mod serve;
