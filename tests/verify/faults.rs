//! A checker must be able to fail: each kind of fault, planted into a good log.

use serde_json::{Value, json};

use crate::logs::{LogFile, events, page, small_job, verify};
use crate::planting::{is_found, position, renumber};
use crate::support::Ledger;

/// The log of a small job.
async fn good_log() -> Option<Vec<Value>> {
    let ledger = Ledger::start().await?;
    let run = small_job(&ledger.client()).await;
    Some(events(&run, 0).await)
}

#[tokio::test]
async fn bound_an_entry_of_a_version_that_is_too_old_for_its_buffer() {
    let Some(mut log) = good_log().await else { return };
    let reserve = position(&log, "reserve", 1);
    log[reserve]["version"] = json!(0);
    for effect in log[reserve]["effects"].as_array_mut().expect("a list") {
        effect["version"] = json!(0);
    }

    is_found(&log, "bound", reserve as u64 + 1).await;
}

#[tokio::test]
async fn once_an_entry_that_is_trained_twice() {
    let Some(log) = good_log().await else { return };
    // In the place of h, which is trained in the third batch, stands a, which was in the first.
    let of = |reserve: usize, entry: usize| {
        let event = &log[position(&log, "reserve", reserve)];
        event["ids"][entry].as_str().expect("an id").to_owned()
    };
    let (a, h) = (of(0, 0), of(2, 1));
    let text = Value::from(log.clone()).to_string().replace(&h, &a);
    let spoilt: Vec<Value> = serde_json::from_str(&text).expect("JSON");

    is_found(&spoilt, "once", position(&log, "take", 2) as u64 + 1).await;
}

#[tokio::test]
async fn capacity_two_entries_in_one_slot() {
    let Some(mut log) = good_log().await else { return };
    let reserve = position(&log, "reserve", 1);
    log[reserve]["effects"][1]["to"] = log[reserve]["effects"][0]["to"].clone();

    is_found(&log, "capacity", reserve as u64 + 1).await;
}

#[tokio::test]
async fn packed_a_reservation_that_could_sit_in_a_later_slot() {
    let Some(mut log) = good_log().await else { return };
    // e goes to the front of buffer 2 and not to its rear, as if there were no reason to leave the front free.
    let reserve = position(&log, "reserve", 1);
    log[reserve]["effects"].as_array_mut().expect("a list").truncate(1);
    log[reserve]["ids"].as_array_mut().expect("a list").truncate(1);
    log[reserve]["effects"][0]["to"]["slot"] = json!(0);

    is_found(&log, "packed", reserve as u64 + 1).await;
}

#[tokio::test]
async fn earliest_an_entry_that_stays_behind_when_it_finishes() {
    let Some(mut log) = good_log().await else { return };
    // a stays in buffer 1, and nobody moves for it.
    let occupy = position(&log, "occupy", 0);
    let occupied = log[occupy]["effects"]
        .as_array()
        .expect("a list")
        .last()
        .expect("one")
        .clone();
    let mut stays = occupied.clone();
    stays["to"] = occupied["from"].clone();
    log[occupy]["effects"] = json!([stays]);

    is_found(&log, "earliest", occupy as u64 + 1).await;
}

#[tokio::test]
async fn versions_one_that_is_skipped() {
    let Some(mut log) = good_log().await else { return };
    let publish = position(&log, "publish", 1);
    log[publish]["version"] = json!(3);

    is_found(&log, "versions", publish as u64 + 1).await;
}

#[tokio::test]
async fn versions_weights_that_are_used_before_they_are_published() {
    let Some(mut log) = good_log().await else { return };
    let publish = position(&log, "publish", 1);
    log.remove(publish);
    renumber(&mut log);

    is_found(&log, "versions", position(&log, "reserve", 2) as u64 + 1).await;
}

#[tokio::test]
async fn versions_a_batch_that_is_taken_out_of_turn() {
    let Some(mut log) = good_log().await else { return };
    let take = position(&log, "take", 1);
    log[take]["version"] = json!(2);

    is_found(&log, "versions", take as u64 + 1).await;
}

#[tokio::test]
async fn batches_complete_one_that_is_short() {
    let Some(mut log) = good_log().await else { return };
    let occupy = position(&log, "occupy", 3);
    log.remove(occupy);
    renumber(&mut log);

    is_found(&log, "batches complete", position(&log, "take", 1) as u64 + 1).await;
}

#[tokio::test]
async fn sequence_an_event_that_is_missing() {
    let Some(mut log) = good_log().await else { return };
    let discard = position(&log, "discard", 0);
    log.remove(discard);

    is_found(&log, "sequence", discard as u64 + 2).await;
}

#[tokio::test]
async fn sequence_an_event_that_is_doubled() {
    let Some(mut log) = good_log().await else { return };
    let claim = log[position(&log, "publish", 0)].clone();
    log.insert(position(&log, "publish", 0), claim.clone());

    is_found(&log, "sequence", claim["seq"].as_u64().expect("a number")).await;
}

#[tokio::test]
async fn sequence_a_run_that_is_created_twice() {
    let Some(mut log) = good_log().await else { return };
    let created = log[0].clone();
    log.insert(5, created);
    renumber(&mut log);

    is_found(&log, "sequence", 6).await;
}

#[tokio::test]
async fn steps_an_effect_that_is_not_what_the_protocol_has() {
    let Some(log) = good_log().await else { return };
    let discard = position(&log, "discard", 1);
    let mut edited = log.clone();
    edited[discard]["effects"][0]["reason"] = json!("another");
    is_found(&edited, "steps", discard as u64 + 1).await;

    let mut doubled = log.clone();
    let occupy = position(&log, "occupy", 0);
    let effects = doubled[occupy]["effects"].as_array_mut().expect("a list");
    effects.push(effects.last().expect("one").clone());
    is_found(&doubled, "steps", occupy as u64 + 1).await;
}

#[tokio::test]
async fn the_page_for_people_names_what_was_checked_and_points_at_the_event() {
    let Some(log) = good_log().await else { return };
    let (output, good) = page(&LogFile::of(&log)).await;
    assert_eq!(output.status.code(), Some(0), "{good}");
    for line in [
        &*format!("the run: {0} events, seq 1 to {0}", log.len()),
        "  entries    8 reserved, 7 occupied (0 of them late)",
        "  discarded  failed: 1, filtered: 1",
        "  batches    3 taken, 3 published",
        "  staleness  0: 3, 1: 3",
        "  bound                 holds",
        "  replays identical     holds",
        "  sequence              holds",
    ] {
        assert!(good.lines().any(|each| each == line), "no `{line}` in:\n{good}");
    }

    let publish = position(&log, "publish", 1);
    let mut spoilt = log;
    spoilt[publish]["version"] = json!(3);
    let (output, bad) = page(&LogFile::of(&spoilt)).await;
    assert_eq!(output.status.code(), Some(1), "{bad}");
    let seq = publish + 1;
    for line in [
        &*format!("   > {seq}  publish  version 3"),
        &*format!("     {}  take  version 1", seq - 1),
        &*format!("  bound                 holds up to event {seq}; nothing behind it can be followed"),
    ] {
        assert!(bad.lines().any(|each| each == line), "no `{line}` in:\n{bad}");
    }
}

#[tokio::test]
async fn no_more_violations_are_shown_than_asked_for_and_all_are_counted() {
    let Some(mut log) = good_log().await else { return };
    for event in log.iter_mut().skip(3) {
        event["seq"] = json!(event["seq"].as_u64().expect("a number") * 2);
    }
    let file = LogFile::of(&log);

    let (_, found) = verify(&["--events", &file.name(), "--most", "2"]).await;

    let run = &found["runs"][0];
    assert_eq!(run["violations"].as_array().expect("a list").len(), 2);
    assert_eq!(run["invariants"]["sequence"], log.len() - 3);
}
