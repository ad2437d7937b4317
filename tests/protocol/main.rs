//! The protocol through HTTP, on real servers and a real Redis: one file a topic, each test a sentence of the contract.

#[path = "../support/mod.rs"]
mod support;

mod cast;
mod journal;
mod wire;

mod codes;
mod contract;
mod discarding;
mod events;
mod finishing;
mod keeping;
mod leases;
mod repeating;
mod reserving;
mod runs;
mod sessions;
mod training;
mod waiting;
mod waiting_for_news;
mod worked_example;
