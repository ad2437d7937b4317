//! The prompt queue: fed, and looked at.

use axum::extract::State;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::http::answer::Answer;
use crate::http::client::Client;
use crate::http::extract::{BodyOfPrompts, JsonObject, Query, RunPath, within};
use crate::http::problem::{Problem, ProblemDocument};
use crate::http::{App, to_the_end};
use crate::ledger::names::Prompt;
use crate::ledger::prompts::{Fed, NewPrompt, PromptCursor, PromptPage};
use crate::protocol::PromptState;
use crate::protocol::ids::GREATEST_EXACT;

const MOST_BYTES_OF_DATA: usize = 16 << 10;

/// A page of prompts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPage {
    /// How many prompts were fed before this page: what lies below `fed` is ignored, so that the page may be sent again. Left
    /// out, the page is appended, also when it is sent again.
    offset: Option<u64>,
    /// The prompts, at most 1,024.
    #[schema(value_type = Vec<OnePrompt>, min_items = 1, max_items = 1024)]
    prompts: Vec<JsonObject<OnePrompt>>,
}

/// A prompt to be handed out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OnePrompt {
    /// The client's name for it, which may be fed again in another pass over the data.
    #[schema(value_type = String)]
    id: Prompt,
    /// What is handed out with it: JSON of at most 16 KiB.
    #[schema(value_type = Option<serde_json::Value>)]
    data: Option<Box<RawValue>>,
    /// How many tokens its trajectory is expected to have, for `longest_first`.
    expected_tokens: Option<u64>,
}

impl OnePrompt {
    fn checked(self, index: usize) -> Result<NewPrompt, Problem> {
        let data = self.data.map(|data| data.get().to_owned());
        if data.as_ref().is_some_and(|data| data.len() > MOST_BYTES_OF_DATA) {
            let detail = format!("at most {MOST_BYTES_OF_DATA} bytes");
            return Err(Problem::invalid(format!("prompts[{index}].data"), detail));
        }
        if let Some(tokens) = self.expected_tokens.filter(|tokens| *tokens > GREATEST_EXACT) {
            let detail = format!("{tokens} is not from 0 to {GREATEST_EXACT}");
            return Err(Problem::invalid(format!("prompts[{index}].expected_tokens"), detail));
        }
        Ok(NewPrompt {
            id: self.id,
            data,
            expected_tokens: self.expected_tokens,
        })
    }
}

/// Feeds prompts, which reservations take in their order.
#[utoipa::path(
    post, path = "/v1/runs/{run}/prompts", tag = "rollout", params(("run" = String, Path)), request_body = NewPage,
    responses(
        (status = 200, body = Fed, description = "how many were fed in all"),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 409, body = ProblemDocument, description = "`feed_gap`, `no_prompt_queue`, `draining`, `ledger_behind`"),
        (status = 413, body = ProblemDocument, description = "`too_large`")
    )
)]
pub(super) async fn feed(
    Client(app): Client,
    RunPath(run): RunPath,
    BodyOfPrompts(page): BodyOfPrompts<NewPage>,
) -> Result<Answer<Fed>, Problem> {
    within("prompts", page.prompts.len(), 1..=1_024)?;
    let offset = page
        .offset
        .map(|offset| within("offset", offset, 0..=GREATEST_EXACT))
        .transpose()?;
    let prompts = page.prompts.into_iter().enumerate();
    let prompts: Vec<_> = prompts
        .map(|(index, JsonObject(prompt))| prompt.checked(index))
        .collect::<Result<_, _>>()?;
    let feed = async move { app.ledger.feed(&run, offset, &prompts).await };
    Ok(to_the_end(feed).await?.into())
}

/// Which prompts to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PromptsQuery {
    /// Those in this state; left out, all.
    state: Option<PromptState>,
    /// The `next` of the page before.
    after: Option<String>,
    /// At most so many.
    #[param(default = 100, minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

/// The prompts, those that are queued in the order in which they are handed out, all others as they were fed. Trained ones are
/// forgotten with their batches, filtered ones with their trajectories. A page may be short, and even empty, when others lie
/// between.
#[utoipa::path(
    get, path = "/v1/runs/{run}/prompts", tag = "looking", params(("run" = String, Path), PromptsQuery),
    responses(
        (status = 200, body = PromptPage),
        (status = 400, body = ProblemDocument, description = "`invalid_request`"),
        (status = 404, body = ProblemDocument, description = "`unknown_run`"),
        (status = 409, body = ProblemDocument, description = "`no_prompt_queue`")
    )
)]
pub(super) async fn list_prompts(
    State(app): State<App>,
    RunPath(run): RunPath,
    Query(query): Query<PromptsQuery>,
) -> Result<Answer<PromptPage>, Problem> {
    let limit = within("limit", query.limit.unwrap_or(100), 1..=100)?;
    let not_a_cursor = || Problem::invalid("after", "not the `next` of a page of this list");
    let after = query.after.map(|after| after.parse::<PromptCursor>()).transpose();
    let after = after.map_err(|_| not_a_cursor())?;
    let is_queued = query.state == Some(PromptState::Queued);
    if after
        .as_ref()
        .is_some_and(|after| matches!(after, PromptCursor::Queued(_)) != is_queued)
    {
        return Err(not_a_cursor());
    }
    Ok(app.ledger.prompts(&run, query.state, after, limit).await?.into())
}
