//! Faults of a prompt queue, planted one by one.

use super::{Journal, found};
use crate::protocol::notation::{id, ids};
use crate::protocol::tables::Wish;
use crate::protocol::{Attempt, Effect, EventType, FedPrompt, FeedPosition, LoggedEffect, PromptState, RunConfig};

/// `B = S = 4`, `η = 0`, at most two attempts; u, v and w are fed.
fn fed() -> Journal {
    let mut journal = Journal::new(RunConfig {
        prompt_queue: true,
        max_attempts: 2,
        ..RunConfig::new(4, 0)
    });
    journal.feed("uvw");
    journal
}

/// Spoils the prompt effects of the last event.
fn spoil(journal: &mut Journal, spoil: impl Fn(&mut FeedPosition, &mut PromptState, &mut Attempt)) {
    for logged in &mut journal.last().effects {
        if let Effect::Prompt {
            position,
            state,
            attempt,
            ..
        } = &mut logged.effect
        {
            spoil(position, state, attempt);
        }
    }
}

#[test]
fn a_good_log_has_no_fault() {
    let mut journal = fed();
    journal.reserve(0, "abc");
    journal.discard(EventType::Expire, "a", "lease_expired");
    journal.occupy("a");
    journal.discard(EventType::Discard, "a", "filtered");
    journal.discard(EventType::Discard, "b", "failed");
    journal.discard_with(EventType::Discard, "c", "failed", Wish::Requeue);
    journal.feed("xy");
    journal.reserve(0, "de");
    assert_eq!(found(&journal), [""; 0]);
}

#[test]
fn a_prompt_handed_out_twice() {
    let mut journal = fed();
    journal.reserve(0, "a");
    journal.reserve(0, "b");
    spoil(&mut journal, |position, _, _| *position = FeedPosition(0));
    assert_eq!(
        found(&journal),
        [
            "event 4: effect 1 is \"the prompt of b, fed as 0, is in flight, attempt 1\", \
             and should be \"the prompt of b, fed as 1, is in flight, attempt 1\"",
            "event 4: prompts: a has no prompt of its own",
        ]
    );
}

#[test]
fn a_prompt_handed_out_of_order() {
    let mut journal = fed();
    journal.reserve(0, "a");
    spoil(&mut journal, |position, _, _| *position = FeedPosition(1));
    assert_eq!(
        found(&journal),
        [
            "event 3: effect 1 is \"the prompt of a, fed as 1, is in flight, attempt 1\", \
          and should be \"the prompt of a, fed as 0, is in flight, attempt 1\""
        ]
    );
}

#[test]
fn a_prompt_that_vanishes_with_its_entry() {
    let mut journal = fed();
    journal.reserve(0, "a");
    journal.discard(EventType::Expire, "a", "lease_expired");
    journal.last().effects.truncate(1);
    assert_eq!(
        found(&journal),
        [
            "event 4: effect 1 is none, and should be \"the prompt of a, fed as 0, is queued, attempt 2\"",
            "event 4: prompts: the prompt that was fed as 0 is with an entry that is gone",
            "event 4: prompts: 3 were fed, and 2 are in some state",
        ]
    );
}

#[test]
fn an_entry_that_got_no_prompt() {
    let mut journal = fed();
    journal.reserve(0, "a");
    journal.last().effects.truncate(1);
    assert_eq!(
        found(&journal),
        [
            "event 3: effect 1 is none, and should be \"the prompt of a, fed as 0, is in flight, attempt 1\"",
            "event 3: prompts: a has no prompt of its own",
        ]
    );
}

#[test]
fn an_attempt_counted_that_is_not_to_be() {
    let mut journal = fed();
    journal.reserve(0, "a");
    journal.discard(EventType::Heartbeat, "a", "abandoned");
    spoil(&mut journal, |_, _, attempt| *attempt = Attempt(2));
    assert_eq!(
        found(&journal),
        [
            "event 4: effect 1 is \"the prompt of a, fed as 0, is queued, attempt 2\", \
          and should be \"the prompt of a, fed as 0, is queued, attempt 1\""
        ]
    );
}

#[test]
fn a_prompt_queued_again_past_the_most_attempts() {
    let mut journal = fed();
    journal.reserve(0, "a");
    journal.discard(EventType::Expire, "a", "lease_expired");
    journal.reserve(0, "b");
    journal.discard(EventType::Expire, "b", "lease_expired");
    spoil(&mut journal, |_, state, attempt| {
        (*state, *attempt) = (PromptState::Queued, Attempt(3));
    });
    assert_eq!(
        found(&journal),
        [
            "event 6: effect 1 is \"the prompt of b, fed as 0, is queued, attempt 3\", \
             and should be \"the prompt of b, fed as 0, is failed, attempt 2\"",
            "event 6: prompts: the prompt that was fed as 0 is at attempt 3 of at most 2",
        ]
    );
}

#[test]
fn a_late_occupy_of_a_prompt_that_was_handed_out_again() {
    let mut journal = fed();
    journal.reserve(0, "a");
    journal.discard(EventType::Expire, "a", "lease_expired");
    journal.reserve(0, "b");
    let event = journal.event(EventType::Occupy, &[]);
    event.ids = ids("a");
    event.late = true;
    assert_eq!(
        found(&journal),
        [
            "event 6: an occupy that is to be refused: a: the prompt of the entry was handed out again, has failed or was \
          dropped"
        ]
    );
}

#[test]
fn a_requeue_that_is_not_marked() {
    let mut journal = fed();
    journal.reserve(0, "a");
    journal.discard_with(EventType::Discard, "a", "failed", Wish::Requeue);
    journal.last().requeue = false;
    assert_eq!(
        found(&journal),
        [
            "event 4: effect 1 is \"the prompt of a, fed as 0, is queued, attempt 2\", \
          and should be \"the prompt of a, fed as 0, is failed, attempt 1\""
        ]
    );
}

#[test]
fn a_page_that_is_counted_wrongly_or_fed_to_a_run_without_a_queue() {
    let mut journal = fed();
    journal.feed("x");
    journal.last().fed = Some(7);
    assert_eq!(
        found(&journal),
        ["event 3: 7 prompts are said to have been fed in all, and should be 4"]
    );

    let mut without = Journal::new(RunConfig::new(1, 0));
    let event = without.event(EventType::Feed, &[]);
    event.fed = Some(1);
    event.prompts = vec![FedPrompt {
        id: "u".to_owned(),
        expected_tokens: None,
    }];
    assert_eq!(
        found(&without),
        [
            "event 2: a feed that is to be refused: the run has no prompt queue",
            "event 2: cannot go on: the run has no prompt queue",
        ]
    );
}

#[test]
fn a_prompt_that_was_never_fed() {
    let mut journal = fed();
    journal.reserve(0, "a");
    let invented = Effect::Prompt {
        id: id('a'),
        position: FeedPosition(9),
        state: PromptState::InFlight,
        attempt: Attempt(1),
    };
    journal.last().effects[1] = LoggedEffect::from(invented);
    assert_eq!(
        found(&journal)[1],
        "event 3: cannot go on: there is no prompt that was fed as 9"
    );
}
