//! The protocol through HTTP, on real servers and a real Redis: one file a topic, each test a sentence of the contract.

#[path = "../support/mod.rs"]
mod support;

mod cast;
mod journal;
mod wire;

mod adopting;
mod adoption;
mod checkpoints;
mod codes;
mod contract;
mod discarding;
mod distribution;
mod distribution_of_groups;
mod draining;
mod events;
mod explaining;
mod explaining_groups;
mod feeding;
mod finishing;
mod group_batches;
mod group_counting;
mod group_finishing;
mod groups;
mod groups_at_the_end;
mod groups_in_pieces;
mod groups_of_prompts;
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
mod rewinding_groups;
mod runs;
mod segments;
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
