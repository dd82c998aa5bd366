use memchr::memchr;

/// Bytes of a template, at most.
const MAX_LEN: usize = 1536;

/// The last chunk that said nothing but text, with a hole where the text was.
///
/// Chunks of a stream differ in little but that text. A chunk with the same bytes around the hole,
/// and in it a string's inside, parses to the same values in every other field: so nothing but the
/// text needs to be read. Anything else is left to the full parse.
#[derive(Debug, Default)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    /// Where the hole is: behind the opening quote, before the closing one. 0: no template.
    hole: usize,
}

impl Template {
    /// Hands out the text of a chunk that differs from the template in nothing else; false if it
    /// must be parsed.
    pub(crate) fn text_of(&self, data: &[u8], take: impl FnOnce(&str)) -> bool {
        if self.hole == 0 {
            return false;
        }
        let Some((before, after)) = self.bytes.split_at_checked(self.hole) else { return false };
        let Some(rest) = data.strip_prefix(before) else { return false };
        let Some(inside) = rest.strip_suffix(after) else { return false };
        if inside.iter().any(|b| matches!(b, b'"' | b'\\' | 0..0x20)) {
            return self.escaped(data, inside.len(), take);
        }
        let Ok(text) = std::str::from_utf8(inside) else { return false };
        take(text);
        true
    }

    /// Remembers `data`, whose only meaning is `text`, a part of it.
    pub(crate) fn learn(&mut self, data: &[u8], text: Option<&str>) {
        let Some(text) = text.filter(|text| data.len() - text.len() <= MAX_LEN) else { return };
        let start = (text.as_ptr() as usize).wrapping_sub(data.as_ptr() as usize);
        let end = start.wrapping_add(text.len());
        if data.get(start..end) != Some(text.as_bytes())
            || start.checked_sub(1).and_then(|quote| data.get(quote)) != Some(&b'"')
            || data.get(end) != Some(&b'"')
        {
            return;
        }
        let (Some(before), Some(after)) = (data.get(..start), data.get(end..)) else { return };
        self.bytes.clear();
        self.bytes.reserve_exact(before.len() + after.len());
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(after);
        self.hole = start;
    }

    /// Bytes allocated.
    pub(crate) fn held(&self) -> usize {
        self.bytes.capacity()
    }

    fn escaped(&self, data: &[u8], len: usize, take: impl FnOnce(&str)) -> bool {
        // With its quotes: an unescaped one inside ends the string early, which is an error here.
        let quoted = data.get(self.hole - 1..self.hole + len + 1).unwrap_or_default();
        if memchr(b'\\', quoted).is_none() {
            return false;
        }
        match serde_json::from_slice::<String>(quoted) {
            Ok(text) => {
                take(&text);
                true
            }
            Err(_) => false,
        }
    }
}
