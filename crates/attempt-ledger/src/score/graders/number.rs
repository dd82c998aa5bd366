use std::collections::HashMap;

use attempt_ledger_core::{CaseId, GraderInfo};

use super::{info, nothing_expected, right};
use crate::{
    BoxError, GradeInput, Graded, Grader, RuleError,
    rule::{PerCase, invalid},
};

/// 1 when the last number in the answer text is the expected one, within a tolerance; else 0, and 0
/// without any number.
///
/// A number is made of ASCII digits, with commas between groups of three (`1,234,567`) or without, a
/// fraction behind a point (`2.5`, `.5`), and an exponent (`6e23`). A `+`, `-` or `−` belongs to it
/// unless a letter, a digit or a closing bracket stands before that: `3-4` ends in 4. It does not begin
/// within a word, so that `H2` has none. One beyond what a 64-bit float holds is infinite, and
/// equals no expected number; `NaN` and `inf` are words. `-0` is 0.
///
/// ```
/// use attempt_ledger::{CaseId, NumberGrader};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let expected = [(CaseId::new("case-7")?, 42.0)].into_iter().collect();
/// let grader = NumberGrader::new(expected)?.tolerance(0.5)?;
/// assert_eq!(NumberGrader::last_number("12 + 30 makes 42."), Some(42.0));
/// # let _ = grader;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NumberGrader {
    expected: PerCase<f64>,
    absolute: f64,
    relative: f64,
}

impl NumberGrader {
    /// With the expected number of each case, and no tolerance.
    ///
    /// # Errors
    /// When one is not finite.
    pub fn new(expected: HashMap<CaseId, f64>) -> Result<Self, RuleError> {
        let finite = |n: f64| match n.is_finite() {
            true => Ok(n),
            false => Err(invalid(format!("the expected number {n} is not finite"), None)),
        };
        let expected = PerCase::each(expected, finite)?;
        Ok(NumberGrader { expected, absolute: 0.0, relative: 0.0 })
    }

    /// With the expected answer of each case as text, of which the last number counts.
    ///
    /// # Errors
    /// When one has no number, or one that is not finite.
    pub fn from_text(expected: HashMap<CaseId, String>) -> Result<Self, RuleError> {
        let number = |text: String| match last_number(&text).filter(|n| n.is_finite()) {
            Some(number) => Ok(number),
            None => Err(invalid("the expected answer has no number to compare with", None)),
        };
        let expected = PerCase::each(expected, number)?;
        Ok(NumberGrader { expected, absolute: 0.0, relative: 0.0 })
    }

    /// How far the number may be from the expected one.
    ///
    /// # Errors
    /// When it is negative or not finite.
    pub fn tolerance(self, absolute: f64) -> Result<Self, RuleError> {
        Ok(NumberGrader { absolute: tolerance(absolute)?, ..self })
    }

    /// How far the number may be from the expected one, as a share of that: 0.01 for 1%. Of both
    /// tolerances the wider holds.
    ///
    /// # Errors
    /// When it is negative or not finite.
    pub fn relative_tolerance(self, share: f64) -> Result<Self, RuleError> {
        Ok(NumberGrader { relative: tolerance(share)?, ..self })
    }

    /// The number of a text that counts: the last one.
    pub fn last_number(text: &str) -> Option<f64> {
        last_number(text)
    }

    fn is_near(&self, given: f64, expected: f64) -> bool {
        let allowed = self.absolute.max(self.relative * expected.abs());
        // Decimal fractions have no exact binary form: 1.1 is 0.1 away from 1.0, and a bit more.
        let rounding =
            if allowed > 0.0 { 4.0 * f64::EPSILON * given.abs().max(expected.abs()) } else { 0.0 };
        given.is_finite() && (given - expected).abs() <= allowed + rounding
    }
}

impl Grader for NumberGrader {
    fn info(&self) -> GraderInfo {
        let version = match (self.absolute, self.relative) {
            (0.0, 0.0) => "1".to_owned(),
            (absolute, 0.0) => format!("1-{absolute}"),
            (absolute, relative) => format!("1-{absolute}-{relative}"),
        };
        info("number", &version)
    }

    async fn grade(&self, input: GradeInput) -> Result<Graded, BoxError> {
        let expected = self.expected.get(&input.slot.case);
        let expected = *expected.ok_or_else(|| nothing_expected(&input, "expected number"))?;
        let given = last_number(&input.content.text);
        Ok(right(given.is_some_and(|given| self.is_near(given, expected))))
    }
}

fn tolerance(wide: f64) -> Result<f64, RuleError> {
    if wide.is_finite() && wide >= 0.0 {
        return Ok(wide);
    }
    Err(invalid(format!("a tolerance of {wide} is none; it is a finite number, 0 or more"), None))
}

/// One pass from the left: each number that is found replaces the one before.
fn last_number(text: &str) -> Option<f64> {
    let mut last = None;
    let mut rest = text;
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        let begins = before.is_none_or(|b: char| !b.is_alphanumeric() && b != '_');
        match begins.then(|| Scanned::of(rest, before)).flatten() {
            Some(Scanned { digits, len }) => {
                // Every such text is a number to Rust, too large ones an infinite one.
                last = digits.parse().ok().or(last);
                before = rest.get(..len).and_then(|number| number.chars().next_back());
                rest = rest.get(len..).unwrap_or_default();
            }
            None => {
                before = Some(c);
                rest = rest.get(c.len_utf8()..).unwrap_or_default();
            }
        }
    }
    last
}

/// A number at the beginning of a text.
struct Scanned {
    /// As Rust reads it.
    digits: String,
    /// Bytes of the text that it takes.
    len: usize,
}

impl Scanned {
    fn of(text: &str, before: Option<char>) -> Option<Scanned> {
        let mut digits = String::new();
        let (sign, mut at) = match text.chars().next()? {
            '+' => (true, 1),
            '-' => (true, 1),
            '−' => (true, '−'.len_utf8()),
            _ => (false, 0),
        };
        if sign {
            if before.is_some_and(|b| b.is_alphanumeric() || matches!(b, ')' | ']' | '}' | '_')) {
                return None;
            }
            if !text.starts_with('+') {
                digits.push('-');
            }
        }
        let bytes = text.as_bytes();
        let digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
        let run = |from: usize| (from..).take_while(|&i| digit(i)).count();

        let whole = run(at);
        digits.push_str(text.get(at..at + whole)?);
        at += whole;
        // Groups count only where all of them are of three.
        if (1..=3).contains(&whole) {
            while bytes.get(at) == Some(&b',') && run(at + 1) == 3 {
                digits.push_str(text.get(at + 1..at + 4)?);
                at += 4;
            }
        }
        let fraction = if bytes.get(at) == Some(&b'.') { run(at + 1) } else { 0 };
        if whole == 0 && fraction == 0 {
            return None;
        }
        if fraction > 0 {
            digits.push_str(text.get(at..=at + fraction)?);
            at += 1 + fraction;
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let exponent = run(at + 1 + sign);
            if exponent > 0 {
                digits.push_str(text.get(at..at + 1 + sign + exponent)?);
                at += 1 + sign + exponent;
            }
        }
        Some(Scanned { digits, len: at })
    }
}
