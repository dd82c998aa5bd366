use memchr::memmem;

/// Copies JSON text with each escape of half a surrogate pair as `\ufffd`; `None` if it has none.
///
/// Servers that cut a text between UTF-16 units send such halves. The parser takes them for an
/// error, but the rest of the answer is there: as in Go's reader, the half is a replacement
/// character.
pub(crate) fn mend(json: &[u8]) -> Option<Vec<u8>> {
    memmem::find(json, b"\\u")?;
    let mut mended: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        if byte != b'\\' {
            at += 1;
            continue;
        }
        match unit(json, at) {
            Some(0xd800..=0xdbff) if matches!(unit(json, at + 6), Some(0xdc00..=0xdfff)) => {
                at += 12;
            }
            Some(0xd800..=0xdfff) => {
                let copy = mended.get_or_insert_with(|| json.to_vec());
                if let Some(digits) = copy.get_mut(at + 2..at + 6) {
                    digits.copy_from_slice(b"fffd");
                }
                at += 6;
            }
            Some(_) => at += 6,
            // Any other escape; its second byte may be a backslash.
            None => at += 2,
        }
    }
    mended
}

/// The UTF-16 unit of the escape `\uXXXX` at this place.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::mend;

    #[test]
    fn only_halves_are_replaced() {
        for (json, want) in [
            (r#""\ud83d\ude00""#, None),
            (r#""\u00e9\n""#, None),
            (r#""\\ud83d""#, None),
            (r#""\ud83d""#, Some(r#""\ufffd""#)),
            (r#""a\ude00\ud83d\ude00""#, Some(r#""a\ufffd\ud83d\ude00""#)),
            (r#""\uD83Dx""#, Some(r#""\ufffdx""#)),
            (r#""\ud83d\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (r#""\ud8"#, None),
        ] {
            let got = mend(json.as_bytes()).map(|m| String::from_utf8(m).expect("text"));
            assert_eq!(got.as_deref(), want, "{json}");
        }
    }
}
