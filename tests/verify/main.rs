//! `berth verify`, `berth events` and the bounded event log: the programs themselves, on logs of real servers, good ones and
//! ones with a fault planted in them.

#[path = "../support/mod.rs"]
mod support;

mod logs;
mod planting;

mod archives;
mod faults;
mod group_faults;
mod piece_faults;
mod prompt_faults;
mod reading;
mod retention;
mod trainer_faults;
mod words;
