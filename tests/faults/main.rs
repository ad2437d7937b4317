//! What may go wrong, done to real processes and a real Redis: keys of the wrong kind, killed and stopped workers, servers
//! and databases, cut lines, many clients at once, bad input and wrong use.

#[path = "../support/mod.rs"]
mod support;

mod auditing;
mod behind;
mod clients;
mod clock;
mod concurrency;
mod full_and_read_only;
mod fuzz;
mod hostile;
mod idle;
mod keys;
mod killed_between;
mod layouts;
mod lines;
mod memory;
mod noscript;
mod outages;
mod raw;
mod refusals;
mod scenarios;
mod scenarios_of_groups;
mod scripts;
mod servers;
mod serving;
mod starting_and_full_disks;
mod trainers;
mod worker_process;
mod workers;
mod workshop;
