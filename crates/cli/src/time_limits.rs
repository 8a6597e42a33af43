//! Time limits of the commands for answers of processes and mounts on this machine.
//!
//! The answering process waits only for a processor, so the limits are short. On an overloaded
//! machine `SHEEN_TIMEOUT_FACTOR` makes them longer.

use std::time::Duration;

/// Environment variable: a number from 1 to [`FACTOR_MAX`] by which each limit is multiplied.
const FACTOR_ENV: &str = "SHEEN_TIMEOUT_FACTOR";
const FACTOR_MAX: u32 = 1000;

/// Returns the limit times `SHEEN_TIMEOUT_FACTOR`. A value that is not a number counts as 1.
pub fn scaled(limit: Duration) -> Duration {
    limit * factor(std::env::var(FACTOR_ENV).ok().as_deref())
}

fn factor(value: Option<&str>) -> u32 {
    value.and_then(|value| value.trim().parse::<u32>().ok()).map_or(1, |factor| factor.clamp(1, FACTOR_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_factor_is_bounded_and_defaults_to_one() {
        let values = [None, Some(""), Some("x"), Some("0"), Some(" 20 "), Some("5000"), Some("-3")];
        assert_eq!(values.map(factor), [1, 1, 1, 1, 20, 1000, 1]);
    }
}
