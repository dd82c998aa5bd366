use std::fmt;

/// Text from elsewhere, made safe to print: what could move a cursor, break a line, reorder or hide
/// text is written as its code point.
///
/// ```
/// use attempt_ledger_core::Escaped;
///
/// assert_eq!(Escaped("gpt\u{1b}[2J\u{202e}x").to_string(), r"gpt\u{1b}[2J\u{202e}x");
/// assert_eq!(Escaped("naïve 你好").to_string(), "naïve 你好");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some((at, c)) = rest.char_indices().find(|&(_, c)| is_unprintable(c)) {
            let (before, after) = rest.split_at(at);
            write!(f, "{before}\\u{{{:x}}}", u32::from(c))?;
            rest = after.get(c.len_utf8()..).unwrap_or_default();
        }
        f.write_str(rest)
    }
}

/// C0, DEL and C1 controls, separators of lines, and what marks or changes the direction of text.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        for c in (0..=0x2fff).chain([0xfeff]).filter_map(char::from_u32) {
            let text = format!("a{c}{c}b");
            let safe = Escaped(&text).to_string();
            assert!(!safe.chars().any(is_unprintable), "{c:?}");
            assert_eq!(safe == text, !is_unprintable(c), "{c:?}");
        }
        for bad in
            ["\n", "\r", "\t", "\u{7f}", "\u{9b}", "\u{2028}", "\u{202e}", "\u{2069}", "\u{200f}"]
        {
            assert!(Escaped(bad).to_string().starts_with("\\u{"), "{bad:?}");
        }
    }
}
