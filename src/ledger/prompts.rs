//! The prompt queue: it is fed in pages, and can be looked at (protocol, *The prompt queue*).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::names::Prompt;
use super::{Ledger, LedgerError, Refusal, RunName, Seen};
use crate::protocol::{Attempt, FeedPosition, PromptCounts, PromptState, Reason, TrajectoryId};
use crate::store::script;

/// The most prompts that one script adds.
const STEP: usize = 50;
/// The most scripts that look through prompts for one page.
const MOST_LOOKS: usize = 10;

/// A prompt to be fed.
#[derive(Debug, Clone, Serialize)]
pub struct NewPrompt {
    /// The client's name for it; another one may have the same.
    pub id: Prompt,
    /// What is handed out with it: JSON of at most 16 KiB, as the client wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// How many tokens its trajectory is expected to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_tokens: Option<u64>,
}

/// How many prompts were fed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fed {
    /// In all: the `offset` of the next page.
    pub fed: u64,
}

/// A page of prompts.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PromptPage {
    /// How many prompts were fed in all.
    pub fed: u64,
    /// How many are in each state: together as many.
    pub counts: PromptCounts,
    /// The prompts.
    pub prompts: Vec<PromptShown>,
    /// The `after` of the next page; null at the end.
    pub next: Option<String>,
}

/// A prompt as it stands.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PromptShown {
    /// The client's name for it.
    pub id: String,
    /// Where it was fed, from 0.
    pub position: FeedPosition,
    /// Its state.
    pub state: PromptState,
    /// Which attempt at it this is, or, of a queued one, will be.
    pub attempt: Attempt,
    /// What is handed out with it.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub data: Option<PromptData>,
    /// How many tokens its trajectory is expected to have.
    pub expected_tokens: Option<u64>,
    /// Why its last trajectory that was discarded was.
    pub reason: Option<Reason>,
    /// The trajectory that it was handed out with last.
    #[serde(rename(deserialize = "entry"))]
    pub trajectory: Option<TrajectoryId>,
}

/// A client's JSON: opaque text in the database, and JSON again in an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptData(String);

impl<'de> Deserialize<'de> for PromptData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl Serialize for PromptData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // It was valid JSON when it came in.
        let raw: Result<&RawValue, _> = serde_json::from_str(&self.0);
        raw.map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

/// Where a page of prompts begins: after the last one of the page before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptCursor {
    /// A feed position.
    Position(u64),
    /// A place in the queue.
    Queued(QueueCursor),
}

/// A place in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCursor {
    score: String,
    member: String,
}

impl fmt::Display for PromptCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position(position) => position.fmt(f),
            Self::Queued(QueueCursor { score, member }) => write!(f, "{score}:{member}"),
        }
    }
}

/// A text that is no cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the `next` of a page of this list")]
pub struct NotACursor;

impl FromStr for PromptCursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let number = |text: &str| {
            text.parse::<u64>()
                .ok()
                .filter(|number| *number <= 1 << 53)
                .ok_or(NotACursor)
        };
        match text.split_once(':') {
            None => number(text).map(Self::Position),
            Some((score, member)) => {
                number(score)?;
                Ok(Self::Queued(QueueCursor {
                    score: score.to_owned(),
                    member: member.to_owned(),
                }))
            }
        }
    }
}

#[derive(Serialize)]
struct FeedArgs<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    prompts: &'a [NewPrompt],
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum FeedOutcome {
    Fed(Fed),
    FeedGap { fed: u64 },
    Draining,
    NoPromptQueue,
}

#[derive(Serialize)]
struct ViewArgs {
    state: Option<PromptState>,
    after: Option<u64>,
    after_queued: Option<QueueCursor>,
    limit: usize,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum ViewOutcome {
    Shown(Shown),
    NoPromptQueue,
}

#[derive(Deserialize)]
struct Shown {
    fed: u64,
    counts: PromptCounts,
    prompts: Vec<PromptShown>,
    next: Option<u64>,
    next_queued: Option<QueueCursor>,
}

impl Ledger {
    /// Adds a page of prompts to the queue, in steps. With an `offset`, the number that was fed before the page, it is safe
    /// to repeat: what was fed already is not fed again.
    ///
    /// Refused as [`Refusal::FeedGap`], [`Refusal::NoPromptQueue`], and, where it would add something,
    /// [`Refusal::Draining`].
    pub async fn feed(
        &self,
        run: &RunName,
        offset: Option<u64>,
        prompts: &[NewPrompt],
    ) -> Result<Seen<Fed>, LedgerError> {
        let mut answer = self.feed_step(run, offset, &prompts[..prompts.len().min(STEP)]).await?;
        for (number, page) in (1..).zip(prompts.chunks(STEP).skip(1)) {
            let offset = offset.map(|offset| offset + number * STEP as u64);
            // A page that is fed again is known by now, and so is where it goes on.
            if offset.is_none_or(|offset| offset + page.len() as u64 > answer.value.fed) {
                answer = self.feed_step(run, offset, page).await?;
            }
        }
        Ok(answer)
    }

    async fn feed_step(
        &self,
        run: &RunName,
        offset: Option<u64>,
        prompts: &[NewPrompt],
    ) -> Result<Seen<Fed>, LedgerError> {
        let args = FeedArgs { offset, prompts };
        let seen = self.call::<FeedOutcome>(&script::FEED, run, &args).await?;
        let refusal = match seen.value {
            FeedOutcome::Fed(value) => return Ok(Seen { seq: seen.seq, value }),
            FeedOutcome::FeedGap { fed } => Refusal::FeedGap { fed },
            FeedOutcome::Draining => Refusal::Draining,
            FeedOutcome::NoPromptQueue => Refusal::NoPromptQueue,
        };
        Err(LedgerError::Refused { seq: seen.seq, refusal })
    }

    /// A page of prompts: the queued ones in the order in which they are handed out, all others in the order in which they
    /// were fed. It may be short, and even empty, when others lie between.
    pub async fn prompts(
        &self,
        run: &RunName,
        state: Option<PromptState>,
        after: Option<PromptCursor>,
        limit: usize,
    ) -> Result<Seen<PromptPage>, LedgerError> {
        let (mut after, after_queued) = match after {
            None => (None, None),
            Some(PromptCursor::Position(position)) => (Some(position), None),
            Some(PromptCursor::Queued(cursor)) => (None, Some(cursor)),
        };
        let mut prompts = Vec::new();
        let mut looks = 0;
        loop {
            let args = ViewArgs {
                state,
                after,
                after_queued: after_queued.clone(),
                limit: limit - prompts.len(),
            };
            let seen = self.call::<ViewOutcome>(&script::VIEW_PROMPTS, run, &args).await?;
            let shown = match seen.value {
                ViewOutcome::Shown(shown) => shown,
                ViewOutcome::NoPromptQueue => {
                    let refusal = Refusal::NoPromptQueue;
                    return Err(LedgerError::Refused { seq: seen.seq, refusal });
                }
            };
            prompts.extend(shown.prompts);
            looks += 1;
            if shown.next.is_some() && prompts.len() < limit && looks < MOST_LOOKS {
                after = shown.next;
                continue;
            }
            let next = shown.next.map(PromptCursor::Position);
            let next = next.or(shown.next_queued.map(PromptCursor::Queued));
            return Ok(Seen {
                seq: seen.seq,
                value: PromptPage {
                    fed: shown.fed,
                    counts: shown.counts,
                    prompts,
                    next: next.map(|cursor| cursor.to_string()),
                },
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for text in ["0", "17", "3:0000000000000009", "7:unknown:0000000000000009"] {
            assert_eq!(
                text.parse::<PromptCursor>().map(|cursor| cursor.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in ["", "-1", "x", "x:1", ":", "99999999999999999999"] {
            assert_eq!(text.parse::<PromptCursor>(), Err(NotACursor), "{text}");
        }
    }
}
