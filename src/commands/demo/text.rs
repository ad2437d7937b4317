//! Numbers and times as people read them.

use std::time::Duration;

/// A count with its thousands grouped: `12,345`.
pub(super) fn grouped(count: u64) -> String {
    grouped_digits(&count.to_string())
}

/// A rate, rounded to whole numbers, with its thousands grouped.
pub(super) fn grouped_rate(rate: f64) -> String {
    grouped_digits(&format!("{rate:.0}"))
}

fn grouped_digits(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time in seconds with one decimal: `3.2 s`.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// `1 reservation`, `2 reservations`, `3 batches`, `4 entries`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    let count_text = grouped(count);
    if count == 1 {
        return format!("1 {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) => format!("{count_text} {stem}ies"),
        None if noun.ends_with("ch") => format!("{count_text} {noun}es"),
        None => format!("{count_text} {noun}s"),
    }
}

/// How much of `whole` is `part`, in whole per cent; nothing of nothing is 0.
pub(super) fn percent(part: Duration, whole: Duration) -> String {
    let share = if whole.is_zero() {
        0.0
    } else {
        part.as_secs_f64() / whole.as_secs_f64()
    };
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        let texts = [0, 7, 999, 1_000, 38_912, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "7", "999", "1,000", "38,912", "1,234,567"]);
    }

    #[test]
    fn rates_are_rounded() {
        assert_eq!([0.4, 4_452.7].map(grouped_rate), ["0", "4,453"]);
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(1, "reservation"), "1 reservation");
        assert_eq!(counted(1_200, "reservation"), "1,200 reservations");
        assert_eq!(counted(0, "batch"), "0 batches");
        assert_eq!(counted(4, "entry"), "4 entries");
    }

    #[test]
    fn shares_are_whole_per_cent() {
        assert_eq!(percent(Duration::from_secs(1), Duration::from_secs(3)), "33 %");
        assert_eq!(percent(Duration::ZERO, Duration::ZERO), "0 %");
    }
}
