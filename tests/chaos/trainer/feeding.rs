//! The data loader of a trainer process: it keeps the prompt queue from running empty.

use std::future::pending;
use std::ops::RangeInclusive;

use hyper::Method;
use serde_json::{Value, json};

use super::{Trainer, number};
use crate::caller::Answer;
use crate::diary::Entry;
use crate::prompts::name;

/// The queue gets another page when fewer than so many are in it, and a page has so many.
const LEAST_QUEUED: u64 = 20;
const PAGE: RangeInclusive<u64> = 1..=30;
/// Between two looks at the queue, in milliseconds.
const BETWEEN: RangeInclusive<u64> = 20..=200;
/// Once in so many pages a whole page is fed again that was answered, and once in so many one begins with what is fed already.
const REPETITIONS: u64 = 6;
const OVERLAPS: u64 = 4;

impl Trainer {
    /// Feeds until the run is drained, and then waits for the process to end. It keeps nothing: how many are fed, the ledger knows.
    pub(super) async fn feed(&self) {
        while !self.is_drained.get() {
            match self.caller.try_once(Method::GET, "prompts?limit=1", None).await {
                Ok(Answer::Done(shown)) if number(&shown["counts"]["queued"]) < LEAST_QUEUED => {
                    self.feed_page(number(&shown["fed"])).await;
                }
                Ok(Answer::Done(_)) => {}
                Ok(Answer::Refused { code, body }) => self.refused("prompts", &code, body, &[]),
                Err(why) => self.caller.again("prompts", why).await,
            }
            self.chance.pause(BETWEEN).await;
        }
        pending::<()>().await;
    }

    async fn feed_page(&self, fed: u64) {
        let overlap = if self.chance.once_in(OVERLAPS) {
            self.chance.between(0..=fed.min(30))
        } else {
            0
        };
        let offset = fed - overlap;
        let count = overlap + self.chance.between(PAGE);
        let prompts: Vec<_> = (offset..offset + count).map(prompt).collect();
        let page = json!({ "offset": offset, "prompts": prompts });
        let times = if self.chance.once_in(REPETITIONS) { 2 } else { 1 };
        for _ in 0..times {
            match self.caller.post("prompts", &page).await {
                Answer::Done(answer) => self.diary.write(Entry::Fed {
                    offset,
                    count,
                    fed: number(&answer["fed"]),
                }),
                Answer::Refused { code, body } => {
                    self.refused("feed", &code, body, &["draining"]);
                    self.is_drained.set(true);
                    return;
                }
            }
            self.caller.change_server();
        }
    }
}

/// The prompt at a position, the same whichever process feeds it.
fn prompt(position: u64) -> Value {
    let mut prompt = json!({ "id": name(position), "data": { "position": position } });
    // Of every third nobody knows how long it will be.
    if !position.is_multiple_of(3) {
        prompt["expected_tokens"] = (position * 7919 % 1_000).into();
    }
    prompt
}
