//! *A worked example* of the protocol, row by row, and *One move is not always enough*.

use serde_json::json;

use crate::cast::prompts;
use crate::support::Ledger;

#[tokio::test]
async fn the_worked_example_row_by_row() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 4, "max_staleness": 1, "max_concurrency": 6 });
    let run = ledger.run(config).await;

    run.reserve(0, "a b c d e f").await.ok();
    assert_eq!(run.tables().await, ". . f e | d c b a");

    run.occupy("a").await.ok();
    run.reserve(0, "g").await.ok();
    assert_eq!(run.tables().await, "A . g e | d c b f");

    run.occupy("d").await.ok();
    run.reserve(0, "h").await.ok();
    assert_eq!(run.tables().await, "A D h e | g c b f");

    run.occupy("c").await.ok();
    assert_eq!(run.reserve(0, "i").await.ok()["blocked_by"], "staleness");
    assert_eq!(run.tables().await, "A D C e | g h b f");

    run.occupy("e").await.ok();
    assert_eq!(run.tables().await, "A D C E | g h b f");
    let taken = run.take().await.ok();
    assert_eq!(prompts(&taken["batch"]["trajectories"]), "a d c e");
    assert_eq!(run.tables().await, "g h b f");

    run.occupy("f").await.ok();
    run.occupy("g").await.ok();
    assert_eq!(run.reserve(0, "i").await.ok()["blocked_by"], "staleness");
    assert_eq!(run.tables().await, "F G b h");

    run.publish(1).await.ok();
    run.reserve(1, "i j k l").await.ok();
    assert_eq!(run.tables().await, "F G b h | l k j i");

    run.occupy("j").await.ok();
    assert_eq!(run.tables().await, "F G b h | J k l i");

    run.occupy("h").await.ok();
    assert_eq!(run.tables().await, "F G H b | J k l i");

    run.occupy("k").await.ok();
    assert_eq!(run.tables().await, "F G H b | J K l i");

    run.occupy("b").await.ok();
    assert_eq!(run.tables().await, "F G H B | J K l i");
    let taken = run.take().await.ok();
    assert_eq!(prompts(&taken["batch"]["trajectories"]), "f g h b");
    assert_eq!(run.tables().await, "J K l i");

    run.occupy("l").await.ok();
    run.occupy("i").await.ok();
    assert_eq!(run.tables().await, "J K L I");
    let not_takeable = run.take().await.ok();
    assert_eq!(prompts(&not_takeable["batch"]["trajectories"]), "f g h b");

    run.publish(2).await.ok();
    let taken = run.take().await.ok();
    assert_eq!(prompts(&taken["batch"]["trajectories"]), "j k l i");
    assert_eq!(run.tables().await, ". . . .");
}

/// After a single move x would sit in buffer 2, and the trainer would wait for z.
#[tokio::test]
async fn one_move_is_not_always_enough() {
    let Some(ledger) = Ledger::start().await else { return };
    let config = json!({ "batch_size": 1, "max_staleness": 2, "initial_version": 1 });
    let run = ledger.run(config).await;

    run.reserve(1, "x w").await.ok();
    run.reserve(0, "z").await.ok();
    assert_eq!(run.tables().await, "z | w | x");

    let x = run.occupy("x").await.ok();
    assert_eq!(
        x,
        json!({ "state": "occupied", "buffer": 1, "slot": 0, "buffer_state": "ready", "late": false })
    );
    assert_eq!(run.tables().await, "X | z | w");
}
