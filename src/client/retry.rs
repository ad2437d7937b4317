//! When a failed call is repeated.

use std::time::Duration;

use rand::Rng;

use super::ClientError;

/// The pause before the second attempt; it doubles from there on.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// For how long a call that fails for a passing reason is repeated.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    give_up_after: Duration,
}

impl Retry {
    /// Goes on for half a minute: enough for a server or its database to come back.
    pub fn patient() -> Self {
        Self {
            give_up_after: Duration::from_secs(30),
        }
    }

    /// One attempt and no more, for those who measure.
    pub fn never() -> Self {
        Self {
            give_up_after: Duration::ZERO,
        }
    }

    /// How long to wait after the `failures`-th failure, `elapsed` after the first attempt; `None` to give up.
    pub(super) fn pause_after(self, failures: u32, elapsed: Duration, error: &ClientError) -> Option<Duration> {
        if !error.is_transient() || elapsed >= self.give_up_after {
            return None;
        }
        let asked_for = match error {
            ClientError::Refused { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let doubled = FIRST_PAUSE * 2_u32.saturating_pow(failures.saturating_sub(1).min(10));
        // Clients that failed together must not come back together.
        let jitter = rand::rng().random_range(0.5..1.0);
        Some(doubled.min(LONGEST_PAUSE).mul_f64(jitter).max(asked_for))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> ClientError {
        ClientError::TimedOut {
            call: "GET /".to_owned(),
            after: Duration::from_secs(1),
        }
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_end() {
        let retry = Retry::patient();
        for (failures, longest_ms) in [(1, 50), (2, 100), (4, 400), (9, 2_000), (u32::MAX, 2_000)] {
            let pause = retry.pause_after(failures, Duration::ZERO, &lost()).unwrap();
            let longest = Duration::from_millis(longest_ms);
            assert!(
                pause >= longest / 2 && pause <= longest,
                "after {failures} failures: {pause:?}"
            );
        }
        assert_eq!(retry.pause_after(3, Duration::from_secs(30), &lost()), None);
    }

    #[test]
    fn what_can_not_succeed_later_is_not_repeated() {
        let error = ClientError::Url { url: String::new() };
        assert_eq!(Retry::patient().pause_after(1, Duration::ZERO, &error), None);
        assert_eq!(Retry::never().pause_after(1, Duration::ZERO, &lost()), None);
    }

    #[test]
    fn the_server_is_not_asked_again_before_it_wishes() {
        let busy = ClientError::Refused {
            call: String::new(),
            status: 503,
            code: "database_unavailable".to_owned(),
            reason: None,
            first_seq: None,
            detail: String::new(),
            retry_after: Some(Duration::from_secs(3)),
        };
        assert_eq!(
            Retry::patient().pause_after(1, Duration::ZERO, &busy),
            Some(Duration::from_secs(3))
        );
    }
}
