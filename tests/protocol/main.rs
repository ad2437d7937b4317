//! The protocol through HTTP, on real servers and a real Redis: one file a topic, each test a sentence of the contract.

#[path = "../support/mod.rs"]
mod support;

mod cast;
mod journal;
mod wire;

mod checkpoints;
mod codes;
mod contract;
mod discarding;
mod draining;
mod events;
mod feeding;
mod finishing;
mod jumping;
mod keeping;
mod last_prompts;
mod leases;
mod lineage;
mod prompt_fates;
mod prompts;
mod re_creating;
mod repeating;
mod replaying;
mod reserving;
mod rewinding;
mod runs;
mod sequence;
mod sessions;
mod stragglers;
mod streaming;
mod superseded;
mod trainer_events;
mod trainer_sessions;
mod training;
mod waiting;
mod waiting_for_news;
mod worked_example;
