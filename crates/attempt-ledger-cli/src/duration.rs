//! Durations on the command line.

use std::time::Duration;

use jiff::SignedDuration;

/// The longest that any clock may be set to: a year.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Reads `90s`, `2m`, `500ms`, `1h 30m`; from one millisecond to 365 days.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    const FORM: &str = "write a number with its unit, such as 90s, 2m or 500ms";
    let parsed: SignedDuration = text.parse().map_err(|_| format!("is not a duration; {FORM}"))?;
    let duration = Duration::try_from(parsed).map_err(|_| format!("is negative; {FORM}"))?;
    if duration < Duration::from_millis(1) {
        return Err("is too short; the least is 1ms".into());
    }
    if duration > LONGEST {
        return Err("is too long; the most is 365 days (8760h)".into());
    }
    Ok(duration)
}

/// A duration for people: `15m 30s`, in whole seconds from one on.
pub(crate) fn shown(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds == 0 {
        return format!("{}ms", duration.as_millis());
    }
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let words = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}"));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_bounds() {
        for (text, millis) in
            [("90s", 90_000), ("2m", 120_000), ("500ms", 500), ("1h 30m", 5_400_000), ("1ms", 1)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(shown(Duration::from_secs(90_061)), "1d 1h 1m 1s");
        assert_eq!(shown(Duration::from_millis(250)), "250ms");
        for bad in ["", "5", "0s", "-1s", "1s ago", "999999999999999999h", "9000h", "1ns", "soon"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
