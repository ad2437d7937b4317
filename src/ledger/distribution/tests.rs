use super::*;

fn sums(entries: f64, tokens: f64, staleness: f64, queued_ms: f64) -> [f64; 6] {
    [entries, entries, tokens, staleness, entries, queued_ms]
}

fn figures(fields: &[(&str, u64, [f64; 6])]) -> Figures {
    let fields = fields.iter().map(|(kind, tokens, sums)| {
        let bucket = (0..2_000).find(|field| Bucket::from_field(&field.to_string()) == Some(Bucket::of(*tokens)));
        (format!("{kind}:{}", bucket.expect("a bucket")), *sums)
    });
    Figures::from_fields(fields.collect())
}

fn lengths(distribution: &Distribution) -> Vec<u64> {
    distribution
        .quarters
        .iter()
        .map(|quarter| quarter.up_to_tokens)
        .collect()
}

#[test]
fn each_quarter_has_a_quarter_of_what_finished() {
    let figures = figures(&[
        ("finished", 1, sums(2.0, 2.0, 0.0, 0.0)),
        ("finished", 2, sums(2.0, 4.0, 0.0, 0.0)),
        ("finished", 3, sums(2.0, 6.0, 0.0, 0.0)),
        ("finished", 4, sums(2.0, 8.0, 0.0, 0.0)),
        ("trained", 1, sums(2.0, 2.0, 0.0, 10.0)),
        ("trained", 4, sums(1.0, 4.0, 3.0, 80.0)),
        ("filtered", 3, sums(1.0, 3.0, 1.0, 5.0)),
    ]);

    let distribution = distribution(9, &figures);

    assert_eq!(lengths(&distribution), [1, 2, 3, 4]);
    let longest = &distribution.quarters[3];
    assert_eq!((longest.finished.entries, longest.trained.entries), (2, 1));
    assert_eq!(longest.trained.mean_staleness, Some(3.0));
    assert_eq!(longest.trained.mean_queued_ms, Some(80.0));
    assert_eq!(distribution.quarters[2].filtered.entries, 1);
    assert_eq!(distribution.admitted.entries, 9);
    assert_eq!(distribution.admitted.mean_tokens, Some(2.5));
    assert_eq!(distribution.admitted.mean_staleness, Some(1.0));
}

#[test]
fn where_most_lengths_are_the_same_they_are_in_the_first_quarter_that_reaches_them() {
    let figures = figures(&[
        ("finished", 7, sums(9.0, 63.0, 0.0, 0.0)),
        ("finished", 8, sums(1.0, 8.0, 0.0, 0.0)),
    ]);

    let distribution = distribution(10, &figures);

    assert_eq!(lengths(&distribution), [7, 7, 7, 8]);
    let entries: Vec<_> = distribution
        .quarters
        .iter()
        .map(|quarter| quarter.finished.entries)
        .collect();
    assert_eq!(entries, [9, 0, 0, 1]);
}

#[test]
fn entries_without_a_length_are_in_the_totals_and_in_no_quarter() {
    let without = [3.0, 0.0, 0.0, 6.0, 0.0, 0.0];
    let fields = vec![
        ("discarded:-".to_owned(), without),
        ("by_reason:lease_expired".to_owned(), without),
    ];

    let distribution = distribution(5, &Figures::from_fields(fields));

    assert_eq!(distribution.quarters, []);
    let share = Share {
        entries: 3,
        mean_tokens: None,
        mean_staleness: Some(2.0),
        mean_queued_ms: None,
    };
    assert_eq!(distribution.discarded, share);
    assert_eq!(distribution.by_reason["lease_expired"], share);
}

#[test]
fn what_an_older_server_did_not_count_as_finished_still_has_a_quarter() {
    let figures = figures(&[("trained", 5, sums(4.0, 20.0, 0.0, 0.0))]);

    assert_eq!(lengths(&distribution(4, &figures)), [5, 5, 5, 5]);
}
