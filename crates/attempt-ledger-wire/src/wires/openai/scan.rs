use std::borrow::Cow;

use memchr::memchr2;

/// Bytes of a frame that are remembered, at most.
const MAX_FRAME: usize = 1024;

/// Finds the text of a chunk that says nothing else, without a full parse.
///
/// Nearly all chunks of a stream are such ones: choice 0, a piece of text, everything else null or
/// of no meaning. They are scanned by hand, and only when each part is of a plain form; whatever
/// else comes is left to the full parse. What is taken here means there what it means here (a test
/// compares them): the same syntax is accepted, and every field that could mean something is null.
///
/// What comes before the text is the same in chunk after chunk, mostly, so the last one's is
/// remembered, and where it is found again the scan begins behind it.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The last chunk's bytes up to the opening quote of its text, and what was seen there.
    before: Vec<u8>,
    seen: Seen,
    /// Its bytes from the closing quote on.
    after: Vec<u8>,
}

/// Fields that were met, each of which may come once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    top: u16,
    choice: u16,
    delta: u16,
    /// The text is the choice's own, not its delta's.
    direct: bool,
}

/// Where in the data a string's inside is.
#[derive(Clone, Copy)]
struct Inside {
    start: usize,
    end: usize,
    escaped: bool,
}

impl Scan {
    /// Hands out the text and the reasoning of a chunk that says nothing else; false if it must be
    /// parsed.
    pub(crate) fn text_of(&mut self, data: &[u8], take: impl FnOnce(&str, &str)) -> bool {
        let mut cursor = Cursor { data, at: 0, seen: Seen::default(), thought: None };
        let known = !self.before.is_empty() && data.starts_with(&self.before);
        let inside = if known {
            cursor.at = self.before.len();
            cursor.seen = self.seen;
            cursor.string()
        } else {
            match cursor.up_to_text() {
                Some(Start::Text(inside)) => Some(inside),
                // Thinking, a role, or nothing at all.
                Some(Start::NoText) if cursor.behind_delta().is_some() => {
                    let Some(thought) = cursor.thought() else { return false };
                    take("", &thought);
                    return true;
                }
                Some(Start::NoText) | None => None,
            }
        };
        let Some(inside) = inside else { return false };
        let Some(after) = data.get(inside.end..) else { return false };
        let seen = cursor.seen;
        let same_end = known && after == self.after;
        if !same_end && cursor.behind_text().is_none() {
            return false;
        }
        let Some(text) = inside.text(data) else { return false };
        let Some(thought) = cursor.thought() else { return false };
        take(&text, &thought);
        // What is remembered is skipped, so there is no reasoning in it.
        if !same_end && cursor.thought.is_none() {
            self.remember(data.get(..inside.start).unwrap_or_default(), after, seen, known);
        }
        true
    }

    /// Bytes allocated.
    pub(crate) fn held(&self) -> usize {
        self.before.capacity() + self.after.capacity()
    }

    fn remember(&mut self, before: &[u8], after: &[u8], seen: Seen, known: bool) {
        if before.len() + after.len() > MAX_FRAME {
            return;
        }
        if !known {
            replace(&mut self.before, before);
            self.seen = seen;
        }
        replace(&mut self.after, after);
    }
}

fn replace(held: &mut Vec<u8>, with: &[u8]) {
    held.clear();
    held.reserve_exact(with.len());
    held.extend_from_slice(with);
}

impl Inside {
    fn text(self, data: &[u8]) -> Option<Cow<'_, str>> {
        if self.escaped {
            let quoted = data.get(self.start.checked_sub(1)?..self.end + 1)?;
            return serde_json::from_slice::<String>(quoted).ok().map(Cow::Owned);
        }
        std::str::from_utf8(data.get(self.start..self.end)?).ok().map(Cow::Borrowed)
    }
}

struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
    seen: Seen,
    /// Reasoning in the delta, if it is not empty.
    thought: Option<Inside>,
}

/// What the fields before the text led to.
enum Start {
    Text(Inside),
    /// The delta has ended without one.
    NoText,
}

/// What a field's value has to be for the chunk to say nothing but text.
enum Rule {
    /// Anything plain: the field is not read.
    Any,
    /// Null: any other value would mean something.
    Null,
    /// A string other than `error`.
    NotError,
    /// Null or an empty string.
    NoWord,
    /// The number 0.
    Zero,
    /// Handled by its object.
    Own,
    /// The same, or null.
    OwnOrNull,
}

impl<'a> Cursor<'a> {
    /// The reasoning that was met.
    fn thought(&self) -> Option<Cow<'a, str>> {
        self.thought.map_or(Some(Cow::Borrowed("")), |inside| inside.text(self.data))
    }

    /// From the start to behind the text.
    fn up_to_text(&mut self) -> Option<Start> {
        self.byte(b'{')?;
        loop {
            match self.top_field()? {
                true => break,
                false => self.byte(b',')?,
            }
        }
        // Within `choices`.
        self.byte(b'[')?;
        self.byte(b'{')?;
        loop {
            let (own, is_text) = self.choice_field()?;
            if is_text {
                self.seen.direct = true;
                return self.open_string().map(Start::Text);
            }
            if own {
                break;
            }
            self.byte(b',')?;
        }
        // Within `delta`.
        self.byte(b'{')?;
        self.space();
        if self.data.get(self.at) == Some(&b'}') {
            self.at += 1;
            return Some(Start::NoText);
        }
        while !self.delta_field()? {
            if !self.next_or_end(b'}')? {
                return Some(Start::NoText);
            }
        }
        self.open_string().map(Start::Text)
    }

    /// From behind the text to the end of the chunk.
    fn behind_text(&mut self) -> Option<()> {
        if !self.seen.direct {
            while self.next_or_end(b'}')? {
                if self.delta_field()? {
                    return None;
                }
            }
        }
        self.behind_delta()
    }

    /// From behind the delta, or the choice's own text, to the end of the chunk.
    fn behind_delta(&mut self) -> Option<()> {
        while self.next_or_end(b'}')? {
            if self.choice_field()?.0 {
                return None;
            }
        }
        self.byte(b']')?;
        while self.next_or_end(b'}')? {
            if self.top_field()? {
                return None;
            }
        }
        self.space();
        (self.at == self.data.len()).then_some(())
    }

    /// One field of the chunk; true before the value of `choices`.
    fn top_field(&mut self) -> Option<bool> {
        let key = self.key()?;
        let (bit, rule) = match self.data.get(key.start..key.end)? {
            b"choices" => (0, Rule::Own),
            b"usage" => (1, Rule::Null),
            b"x_groq" => (2, Rule::Null),
            b"error" => (3, Rule::Null),
            b"base_resp" => (4, Rule::Null),
            b"object" => (5, Rule::NotError),
            b"type" => (6, Rule::NotError),
            b"code" => (7, Rule::Null),
            b"message" => (8, Rule::Null),
            _ => (15, Rule::Any),
        };
        once(&mut self.seen.top, bit)?;
        self.value(rule)
    }

    /// One field of the choice; true before the value of `delta` or, with true again, of `text`.
    fn choice_field(&mut self) -> Option<(bool, bool)> {
        let key = self.key()?;
        let name = self.data.get(key.start..key.end)?;
        let (bit, rule) = match name {
            b"delta" => (0, Rule::Own),
            b"text" => (1, Rule::Own),
            b"index" => (2, Rule::Zero),
            b"message" => (3, Rule::Null),
            b"finish_reason" => (4, Rule::NoWord),
            b"native_finish_reason" => (5, Rule::Null),
            b"error" => (6, Rule::Null),
            _ => (15, Rule::Any),
        };
        once(&mut self.seen.choice, bit)?;
        let own = self.value(rule)?;
        Some((own, own && bit == 1))
    }

    /// One field of the delta; true before the value of `content`.
    fn delta_field(&mut self) -> Option<bool> {
        let key = self.key()?;
        let (bit, rule) = match self.data.get(key.start..key.end)? {
            b"content" => (0, Rule::OwnOrNull),
            b"refusal" => (1, Rule::NoWord),
            b"tool_calls" => (2, Rule::Null),
            b"function_call" => (3, Rule::Null),
            b"reasoning_content" => (4, Rule::Any),
            b"reasoning" => (5, Rule::Any),
            _ => (15, Rule::Any),
        };
        once(&mut self.seen.delta, bit)?;
        self.space();
        if matches!(bit, 4 | 5) && self.data.get(self.at) == Some(&b'"') {
            let thought = self.open_string()?;
            if thought.start < thought.end && self.thought.replace(thought).is_some() {
                // Which of the two counts is for the full parse.
                return None;
            }
            return Some(false);
        }
        self.value(rule)
    }

    /// A field's name and the colon behind it. Names with escapes are not for here.
    fn key(&mut self) -> Option<Inside> {
        let key = self.open_string()?;
        if key.escaped || !self.data.get(key.start..key.end)?.is_ascii() {
            return None;
        }
        self.byte(b':')?;
        Some(key)
    }

    /// A value as the rule says; true if it is for its object to read.
    fn value(&mut self, rule: Rule) -> Option<bool> {
        self.space();
        match (rule, *self.data.get(self.at)?) {
            (Rule::Own, _) => return Some(true),
            (Rule::Any | Rule::Null | Rule::NoWord | Rule::OwnOrNull, b'n') => {
                self.word(b"null")?;
            }
            (Rule::OwnOrNull, _) => return Some(true),
            (Rule::Any, b't') => self.word(b"true")?,
            (Rule::Any, b'f') => self.word(b"false")?,
            (Rule::Any, b'0'..=b'9') => self.digits()?,
            (Rule::Zero, b'0') => self.digits()?,
            (Rule::Any, b'"') => {
                self.open_string()?;
            }
            (Rule::NoWord, b'"') => self.word(b"\"\"")?,
            (Rule::NotError, b'"') => {
                let word = self.open_string()?;
                let word = (!word.escaped).then(|| self.data.get(word.start..word.end))??;
                (word != b"error" && word.is_ascii()).then_some(())?;
            }
            _ => return None,
        }
        Some(false)
    }

    /// A whole number without sign, and nothing behind it that could go on with it.
    fn digits(&mut self) -> Option<()> {
        let rest = self.data.get(self.at..)?;
        let len = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let leading_zero = len > 1 && rest.first() == Some(&b'0');
        let ends = matches!(rest.get(len)?, b',' | b'}' | b' ');
        self.at += len;
        (ends && !leading_zero).then_some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.data.get(self.at..)?.starts_with(word).then(|| self.at += word.len())
    }

    /// True at a comma, false at the closing bracket; past either.
    fn next_or_end(&mut self, close: u8) -> Option<bool> {
        self.space();
        let byte = *self.data.get(self.at)?;
        self.at += 1;
        match byte {
            b',' => Some(true),
            _ if byte == close => Some(false),
            _ => None,
        }
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        self.space();
        (self.data.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    fn space(&mut self) {
        while self.data.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
    }

    fn open_string(&mut self) -> Option<Inside> {
        self.byte(b'"')?;
        self.string()
    }

    /// From behind the opening quote to behind the closing one.
    fn string(&mut self) -> Option<Inside> {
        let start = self.at;
        let mut escaped = false;
        loop {
            let rest = self.data.get(self.at..)?;
            let len = memchr2(b'"', b'\\', rest)?;
            let (run, rest) = rest.split_at(len);
            if run.iter().fold(false, |control, b| control | (*b < 0x20)) {
                return None;
            }
            self.at += len;
            if rest.first() == Some(&b'"') {
                let end = self.at;
                self.at += 1;
                return Some(Inside { start, end, escaped });
            }
            escaped = true;
            self.at += match rest.get(1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                b'u' if rest.get(2..6)?.iter().all(u8::is_ascii_hexdigit) => 6,
                _ => return None,
            };
        }
    }
}

/// Notes that a field came; `None` if it came before. Bit 15 stands for all that are not read.
fn once(seen: &mut u16, bit: u16) -> Option<()> {
    let mask = 1 << bit;
    let again = *seen & mask != 0 && bit != 15;
    *seen |= mask;
    (!again).then_some(())
}
