//! The steps of a prompt queue.

use berth::ledger::Refusal;
use berth::ledger::prompts::NewPrompt;
use berth::ledger::reserving::Grant;
use berth::protocol::tables::{EntryState, FeedRefusal, PromptQueue};
use berth::protocol::{Attempt, EventType, FedPrompt, PromptState, Reason};
use berth::store::keys::RunKeys;
use berth::store::{migrations, script};
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::twins::{Twins, refusal_of};

const STATES: [PromptState; 7] = [
    PromptState::Queued,
    PromptState::InFlight,
    PromptState::Occupied,
    PromptState::Trained,
    PromptState::Filtered,
    PromptState::Failed,
    PromptState::Dropped,
];

impl Twins {
    /// A page that begins so many after what was fed, or after all that was fed, whatever that is.
    pub(crate) async fn feed(&mut self, ahead: Option<i64>, lengths: &[Option<u64>]) {
        let fed = self.model.prompt_queue().map_or(0, PromptQueue::fed);
        let offset = ahead.map(|ahead| fed.saturating_add_signed(ahead));
        let name = |number: usize| format!("q-{}", (fed + number as u64) % 7);
        let of_model: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(number, length)| FedPrompt {
                id: name(number),
                expected_tokens: *length,
            })
            .collect();
        let of_ledger: Vec<_> = of_model
            .iter()
            .map(|prompt| NewPrompt {
                id: prompt.id.parse().expect("a name"),
                data: Some(format!("{{\"of\": \"{}\"}}", prompt.id)),
                expected_tokens: prompt.expected_tokens,
            })
            .collect();
        let answer = self.ledger.feed(&self.run, offset, &of_ledger).await;
        match self.model.feed(offset, &of_model) {
            Ok(now) => {
                assert_eq!(answer.expect("the model is fed").value.fed, now);
                let events = self.new_events().await;
                let logged: Vec<_> = events
                    .iter()
                    .map(|event| (event.event_type, event.fed, event.prompts.clone()))
                    .collect();
                let added = of_model[of_model.len() - usize::try_from(now - fed).expect("a page")..].to_vec();
                let expected = (EventType::Feed, Some(now), added);
                let expected = if now > fed { vec![expected] } else { Vec::new() };
                assert_eq!(logged, expected);
            }
            Err(refusal) => {
                let expected = match refusal {
                    FeedRefusal::NoPromptQueue => Refusal::NoPromptQueue,
                    FeedRefusal::Draining => Refusal::Draining,
                    FeedRefusal::Gap { fed, .. } => Refusal::FeedGap { fed },
                };
                assert_eq!(refusal_of(answer), expected);
                assert_eq!(self.new_events().await, []);
            }
        }
    }

    /// A reservation is discarded for a reason of the ledger's own, which no step of these tests brings about in time.
    pub(crate) async fn discard_as(&mut self, index: Index, reason: &str) {
        let is_reserved = |state: &EntryState| matches!(state, EntryState::Reserved { .. });
        let Some(id) = self.pick(index, is_reserved) else {
            return;
        };
        let args = json!({ "id": id, "reason": reason, "layout": migrations::CURRENT, "mark": "mark" });
        let keys = RunKeys::new(self.run.as_str());
        let reply: Value = self
            .store
            .run(&script::DISCARD, &keys, &args)
            .await
            .expect("the script runs");
        assert_eq!(reply["body"]["outcome"], "discarded");
        let effects = self.give_up(id, &Reason::from(reason));
        self.holders.remove(&id);
        self.logged(EventType::Discard, &effects).await;
    }

    /// A grant is for the prompt that the model handed out, with its data.
    pub(crate) fn check_prompt(&self, grant: &Grant) {
        let Some(queue) = self.model.prompt_queue() else {
            return;
        };
        let (handed_out, prompt) = queue.of_entry(grant.id).expect("each grant has a prompt");
        assert_eq!(grant.prompt.as_deref(), Some(&*prompt.id));
        assert_eq!(Attempt(grant.attempt), handed_out.attempt);
        let data = serde_json::to_value(&grant.data).expect("JSON");
        assert_eq!(data, json!({ "of": prompt.id }));
    }

    /// Every prompt is in the same state, and the counts are the same.
    pub(crate) async fn compare_prompts(&self) {
        let status = self.ledger.run(&self.run).await.expect("a run").value;
        let Some(queue) = self.model.prompt_queue() else {
            return assert_eq!(status.prompts, None);
        };
        let counts = self.model.prompt_counts();
        assert_eq!(status.prompts, Some(counts));
        assert_eq!(counts.sum(), queue.fed());

        let mut listed = Vec::new();
        for state in STATES.map(Some).into_iter().chain([None]) {
            let mut after = None;
            let mut of_state = Vec::new();
            loop {
                let page = self.ledger.prompts(&self.run, state, after, 4).await;
                let page = page.expect("the prompts can be looked at").value;
                of_state.extend(page.prompts);
                match page.next {
                    Some(next) => after = Some(next.parse().expect("a cursor")),
                    None => break,
                }
            }
            assert!(
                of_state
                    .iter()
                    .all(|prompt| state.is_none_or(|state| prompt.state == state))
            );
            if state == Some(PromptState::Queued) {
                let order: Vec<_> = of_state.iter().map(|prompt| prompt.position).collect();
                assert_eq!(order, queue.queued().collect::<Vec<_>>());
            }
            if state.is_some() {
                listed.extend(
                    of_state
                        .into_iter()
                        .map(|prompt| (prompt.position, prompt.state, prompt.attempt)),
                );
            } else {
                listed.sort_by_key(|(position, ..)| *position);
                let all: Vec<_> = of_state
                    .iter()
                    .map(|prompt| (prompt.position, prompt.state, prompt.attempt))
                    .collect();
                assert_eq!(all, listed, "each is in one state");
            }
        }
        let expected: Vec<_> = queue
            .prompts()
            .map(|(position, prompt)| {
                let state = self.model.prompt_state(position).expect("a state");
                (position, state, prompt.attempt)
            })
            .collect();
        assert_eq!(listed, expected);
    }
}
