//! *The prompt queue*: the order in which prompts are handed out, and what becomes of each.

use super::{SlotTables, discard, forced, occupy, publish, reserve, rewind, take, train, train_each, try_reserve};
use crate::protocol::notation::{id, shorthand};
use crate::protocol::tables::{BlockedBy, FeedRefusal, OccupyRefusal, Wish};
use crate::protocol::{
    Effect, FedPrompt, FeedPosition, PromptCounts, PromptOrder, PromptState, Reason, RunConfig, Version,
};

fn with_queue(batch_size: u32, max_staleness: u64) -> RunConfig {
    RunConfig {
        prompt_queue: true,
        ..RunConfig::new(batch_size, max_staleness)
    }
}

/// Prompts of unknown lengths, one for each letter.
fn page(letters: &str) -> Vec<FedPrompt> {
    let prompt = |letter: char| FedPrompt {
        id: letter.to_string(),
        expected_tokens: None,
    };
    letters.chars().map(prompt).collect()
}

fn fed(config: RunConfig, letters: &str) -> SlotTables {
    let mut tables = SlotTables::new(config);
    tables.feed(Some(0), &page(letters)).expect("a queue");
    tables
}

/// The queued prompts in the order in which they are handed out, each with the attempt that it will be.
fn queue(tables: &SlotTables) -> String {
    let queue = tables.prompt_queue().expect("a queue");
    let prompt = |position| {
        let (_, prompt) = queue.prompts().find(|(at, _)| *at == position).expect("a prompt");
        format!("{}{}", prompt.id, prompt.attempt)
    };
    queue.queued().map(prompt).collect::<Vec<_>>().join(" ")
}

/// The prompts that the effects tell of, as `position state attempt`.
fn told(effects: &[Effect]) -> Vec<String> {
    let prompts = effects.iter().filter(|effect| matches!(effect, Effect::Prompt { .. }));
    shorthand(&prompts.cloned().collect::<Vec<_>>())
}

fn state(tables: &SlotTables, position: u64) -> PromptState {
    tables.prompt_state(FeedPosition(position)).expect("a prompt")
}

#[test]
fn a_reservation_takes_the_next_prompt_in_the_same_step() {
    let mut t = fed(with_queue(2, 0), "uv");
    let effects = reserve(&mut t, 0, "ab");
    assert_eq!(
        shorthand(&effects),
        [
            "a: reserved 0.1",
            "a: prompt 0 in_flight 1",
            "b: reserved 0.0",
            "b: prompt 1 in_flight 1"
        ]
    );
    assert_eq!(queue(&t), "");
}

#[test]
fn nothing_is_admitted_when_nothing_is_queued_and_places_count_first() {
    let mut t = fed(with_queue(2, 0), "u");
    let reserved = try_reserve(&mut t, 0, "ab");
    assert_eq!((reserved.granted, reserved.blocked_by), (1, Some(BlockedBy::Prompts)));
    t.feed(None, &page("vw")).expect("a queue");
    let reserved = try_reserve(&mut t, 0, "bc");
    assert_eq!((reserved.granted, reserved.blocked_by), (1, Some(BlockedBy::Staleness)));
}

#[test]
fn a_page_counts_once_and_none_may_be_left_out() {
    let mut t = fed(with_queue(2, 0), "uvw");
    assert_eq!(t.feed(Some(0), &page("uvw")), Ok(3));
    assert_eq!(t.feed(Some(1), &page("vwx")), Ok(4));
    assert_eq!(t.feed(Some(5), &page("z")), Err(FeedRefusal::Gap { offset: 5, fed: 4 }));
    assert_eq!(queue(&t), "u1 v1 w1 x1");
    let mut without = SlotTables::new(RunConfig::new(1, 0));
    assert_eq!(without.feed(None, &page("u")), Err(FeedRefusal::NoPromptQueue));
}

#[test]
fn the_longest_go_first_within_their_window_unknown_lengths_last_and_ties_by_position() {
    let mut t = SlotTables::new(RunConfig {
        order: PromptOrder::LongestFirst,
        order_window: 4,
        ..with_queue(8, 0)
    });
    let prompts = [Some(10), None, Some(30), Some(10), Some(99), None, Some(0)];
    let prompts: Vec<_> = "tuvwxyz".chars().zip(prompts).collect();
    let prompt = |(letter, expected_tokens): &(char, _)| FedPrompt {
        id: letter.to_string(),
        expected_tokens: *expected_tokens,
    };
    t.feed(None, &prompts.iter().map(prompt).collect::<Vec<_>>())
        .expect("a queue");
    assert_eq!(queue(&t), "v1 t1 w1 u1 x1 z1 y1");
}

/// Discards entry a, which is reserved with prompt u before v and w, and returns what becomes of u, and the queue.
fn fate(config: RunConfig, reason: &str) -> (Vec<String>, String) {
    let mut t = fed(config, "uvw");
    reserve(&mut t, 0, "a");
    let effects = discard(&mut t, 'a', reason);
    (told(&effects), queue(&t))
}

#[test]
fn each_reason_has_its_fate() {
    for (reason, becomes, then) in [
        ("lease_expired", "a: prompt 0 queued 2", "u2 v1 w1"),
        ("worker_restarted", "a: prompt 0 queued 2", "u2 v1 w1"),
        ("abandoned", "a: prompt 0 queued 1", "u1 v1 w1"),
        ("rewound", "a: prompt 0 queued 1", "u1 v1 w1"),
        ("too_stale", "a: prompt 0 queued 1", "u1 v1 w1"),
        ("surplus", "a: prompt 0 queued 1", "u1 v1 w1"),
        ("stuck_timeout", "a: prompt 0 queued 2", "v1 w1 u2"),
        ("timed_out", "a: prompt 0 queued 2", "v1 w1 u2"),
        ("group_failed", "a: prompt 0 queued 2", "v1 w1 u2"),
        ("zero_variance", "a: prompt 0 filtered 1", "v1 w1"),
        ("drained", "a: prompt 0 dropped 1", "v1 w1"),
        ("no_use", "a: prompt 0 failed 1", "v1 w1"),
    ] {
        assert_eq!(
            fate(with_queue(4, 0), reason),
            (vec![becomes.to_owned()], then.to_owned()),
            "{reason}"
        );
    }
}

#[test]
fn a_client_filters_what_is_finished_unless_it_wishes_that_it_is_tried_again() {
    for (wish, becomes) in [
        (Wish::ByReason, "a: prompt 0 filtered 1"),
        (Wish::Requeue, "a: prompt 0 queued 2"),
    ] {
        for is_finished in [true, false] {
            let mut t = fed(with_queue(4, 0), "u");
            reserve(&mut t, 0, "a");
            if is_finished {
                occupy(&mut t, 'a');
            }
            let discarded = t.discard_with(id('a'), Reason::from("bad"), wish).expect("a discard");
            let failed = !is_finished && wish == Wish::ByReason;
            let becomes = if failed { "a: prompt 0 failed 1" } else { becomes };
            assert_eq!(told(&discarded.effects), [becomes]);
        }
    }
}

#[test]
fn past_the_most_attempts_a_prompt_has_failed_whatever_place_it_would_have_had() {
    for reason in ["lease_expired", "timed_out"] {
        let config = RunConfig {
            max_attempts: 2,
            ..with_queue(4, 0)
        };
        let mut t = fed(config, "u");
        reserve(&mut t, 0, "a");
        discard(&mut t, 'a', reason);
        reserve(&mut t, 0, "b");
        assert_eq!(told(&discard(&mut t, 'b', "abandoned")), ["b: prompt 0 queued 2"]);
        reserve(&mut t, 0, "c");
        assert_eq!(
            told(&discard(&mut t, 'c', reason)),
            ["c: prompt 0 failed 2"],
            "{reason}"
        );
        assert_eq!(try_reserve(&mut t, 0, "d").blocked_by, Some(BlockedBy::Prompts));
    }
}

#[test]
fn drop_on_drops_what_would_be_tried_again_for_these_reasons_and_no_others() {
    let config = || RunConfig {
        drop_on: vec![Reason::TimedOut, Reason::Surplus],
        ..with_queue(4, 0)
    };
    assert_eq!(fate(config(), "timed_out").0, ["a: prompt 0 dropped 1"]);
    assert_eq!(fate(config(), "surplus").0, ["a: prompt 0 dropped 1"]);
    assert_eq!(fate(config(), "lease_expired").0, ["a: prompt 0 queued 2"]);
}

#[test]
fn the_back_is_behind_all_that_is_fed_in_the_order_of_return() {
    let mut t = fed(with_queue(4, 0), "uvw");
    reserve(&mut t, 0, "abc");
    discard(&mut t, 'b', "timed_out");
    discard(&mut t, 'a', "timed_out");
    discard(&mut t, 'c', "lease_expired");
    t.feed(None, &page("x")).expect("a queue");
    assert_eq!(queue(&t), "w2 x1 v2 u2");
}

#[test]
fn a_late_occupy_takes_its_prompt_out_of_the_queue() {
    let mut t = fed(with_queue(2, 1), "uv");
    reserve(&mut t, 0, "a");
    discard(&mut t, 'a', "lease_expired");
    assert_eq!(queue(&t), "u2 v1");
    let occupied = occupy(&mut t, 'a');
    assert_eq!(
        shorthand(&occupied.effects),
        ["a: reserved 1.1", "a: prompt 0 occupied 1", "a: 1.1 occupied 0.0"]
    );
    assert_eq!(queue(&t), "v1");
    assert_eq!(state(&t, 0), PromptState::Occupied);
}

#[test]
fn a_late_occupy_is_superseded_once_its_prompt_was_handed_out_again_failed_or_was_dropped() {
    let late = |t: &mut SlotTables| t.occupy(id('a')).expect_err("it comes too late");

    let mut again = fed(with_queue(4, 0), "u");
    reserve(&mut again, 0, "a");
    discard(&mut again, 'a', "timed_out");
    reserve(&mut again, 0, "b");
    assert_eq!(late(&mut again), OccupyRefusal::Superseded);
    occupy(&mut again, 'b');
    assert_eq!(late(&mut again), OccupyRefusal::Superseded);
    again.discard(id('b'), Reason::from("filtered")).expect("a discard");
    assert_eq!(late(&mut again), OccupyRefusal::Superseded);

    for config in [
        RunConfig {
            max_attempts: 1,
            ..with_queue(4, 0)
        },
        RunConfig {
            drop_on: vec![Reason::TimedOut],
            ..with_queue(4, 0)
        },
    ] {
        let mut t = fed(config, "u");
        reserve(&mut t, 0, "a");
        discard(&mut t, 'a', "timed_out");
        assert_eq!(late(&mut t), OccupyRefusal::Superseded);
    }

    let mut given_up = fed(with_queue(4, 0), "u");
    reserve(&mut given_up, 0, "a");
    discard(&mut given_up, 'a', "failed");
    assert_eq!(
        late(&mut given_up),
        OccupyRefusal::Discarded(Reason::Client("failed".to_owned()))
    );
}

#[test]
fn a_rewind_restores_the_prompts_of_the_abandoned_batches() {
    let mut t = fed(with_queue(1, 1), "uvwx");
    train_each(&mut t, "abc");
    let resumed = t.resume(&rewind(1)).expect("a rewind");
    // b is of version 1 and stays; c is of version 2.
    assert_eq!(told(&resumed.effects), ["c: prompt 2 queued 1"]);
    assert_eq!(queue(&t), "w1 x1");
    assert_eq!(
        [0, 1, 2].map(|position| state(&t, position)),
        [PromptState::Trained, PromptState::Occupied, PromptState::Queued]
    );
}

#[test]
fn a_forced_rewind_over_pruned_batches_leaves_their_prompts_trained() {
    let config = RunConfig {
        keep_batches: 1,
        ..with_queue(1, 1)
    };
    let mut t = fed(config, "uvwx");
    train_each(&mut t, "abc");
    t.resume(&forced(rewind(0))).expect("a rewind");
    assert_eq!(
        t.prompt_counts(),
        PromptCounts {
            queued: 2,
            trained: 2,
            ..PromptCounts::default()
        }
    );
    assert_eq!(queue(&t), "w1 x1");
}

#[test]
fn a_pruned_prompt_is_forgotten_and_still_counted() {
    let config = RunConfig {
        keep_batches: 1,
        ..with_queue(1, 0)
    };
    let mut t = fed(config, "uv");
    train_each(&mut t, "ab");
    t.prune(id('a')).expect("it is let go of");
    assert_eq!(t.prompt_state(FeedPosition(0)), None);
    assert_eq!(t.prompt_counts().trained, 2);
}

#[test]
fn surplus_prompts_go_back_to_the_front() {
    let config = RunConfig {
        slots_per_buffer: 2,
        ..with_queue(1, 0)
    };
    let mut t = fed(config, "uv");
    reserve(&mut t, 0, "ab");
    let occupied = occupy(&mut t, 'a');
    assert_eq!(told(&occupied.effects), ["b: prompt 1 queued 1"]);
    assert_eq!(take(&mut t).as_deref(), Some("a"));
    publish(&mut t, 1);
    assert_eq!(reserve(&mut t, 1, "c").len(), 2);
    assert_eq!(t.policy_version(), Version(1));
}

#[test]
fn the_same_prompt_may_be_fed_again_in_another_pass() {
    let mut t = fed(with_queue(1, 0), "uu");
    for letter in ['a', 'b'] {
        let version = t.policy_version().0;
        reserve(&mut t, version, &letter.to_string());
        occupy(&mut t, letter);
        train(&mut t);
    }
    assert_eq!(t.prompt_counts().trained, 2);
}
