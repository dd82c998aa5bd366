//! JSON text to canonical JSON text, without a tree in between.
//!
//! A value is written as it is read; an object whose members turn out to be out of order has their
//! bytes put in order when it ends. Numbers are kept as text until they are written, so that no
//! digit is lost on the way.

use std::ops::Range;

/// How deep arrays and objects may be nested. As in most readers, and safe for any stack.
const MAX_DEPTH: usize = 128;

/// Why JSON text has no canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// It is not JSON, or more follows the value.
    #[error("is not one JSON value: byte {at} is not what may stand there")]
    Syntax {
        /// Offset of the first byte that may not stand where it is.
        at: usize,
    },
    /// It is not UTF-8, or a string holds half of a surrogate pair.
    #[error("holds text that is not Unicode, near byte {at}")]
    NotUnicode {
        /// Its offset.
        at: usize,
    },
    /// An object has two members of one name.
    #[error("an object that ends at byte {at} has two members of one name")]
    DuplicateName {
        /// Where the object ends.
        at: usize,
    },
    /// A number is beyond what a double can hold.
    #[error("the number that ends at byte {at} is too large")]
    NumberTooLarge {
        /// Where the number ends.
        at: usize,
    },
    /// Arrays and objects are nested more than 128 deep.
    #[error("is nested more than 128 deep at byte {at}")]
    TooDeep {
        /// Where the bound is passed.
        at: usize,
    },
}

/// The canonical form of JSON text by RFC 8785, except that integers beyond 2^53 keep their digits.
///
/// Equal values give equal bytes, whatever their white space, order of members, escapes and ways
/// to write a number.
///
/// ```
/// use attempt_ledger_core::canonical_json;
///
/// let text = canonical_json(br#"{ "b": 1.0, "a": "\u00e9", "c": 12345678901234567890 }"#)?;
/// assert_eq!(text, r#"{"a":"é","b":1,"c":12345678901234567890}"#.as_bytes());
/// # Ok::<(), attempt_ledger_core::JsonError>(())
/// ```
///
/// # Errors
/// [`JsonError`] says why the text has no canonical form.
pub fn canonical_json(text: &[u8]) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::with_capacity(text.len());
    write_canonical::<Rfc8785>(text, &[], &mut out)?;
    Ok(out)
}

/// Appends the form of `text` that `S` describes, without the members of the outermost object
/// whose names are in `skip`. After an error, `out` is as it was.
pub(crate) fn write_canonical<S: Style>(
    text: &[u8],
    skip: &[&str],
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    if let Err(e) = str::from_utf8(text) {
        return Err(JsonError::NotUnicode { at: e.valid_up_to() });
    }
    let start = out.len();
    let mut writer = Writer::<S> {
        text,
        at: 0,
        out: std::mem::take(out),
        members: Vec::new(),
        scratch: Vec::new(),
        skip,
        style: std::marker::PhantomData,
    };
    let result = writer.document();
    *out = writer.out;
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// What differs between canonical forms.
pub(crate) trait Style {
    /// Between members, and between elements.
    const COMMA: &'static [u8];
    /// Between a name and its value.
    const COLON: &'static [u8];
    /// Whether everything outside printable ASCII is escaped.
    const ASCII: bool;
    /// Whether the last of several members of one name stands, instead of an error.
    const LAST_WINS: bool;
    /// Writes a number that is not an integer literal; `None` when the form has no such number.
    fn float(number: f64, out: &mut Vec<u8>) -> Option<()>;
    /// What names are ordered by, from their UTF-16 units.
    fn order(units: Vec<u16>) -> Vec<u32>;
}

/// RFC 8785.
pub(crate) struct Rfc8785;

impl Style for Rfc8785 {
    const COMMA: &'static [u8] = b",";
    const COLON: &'static [u8] = b":";
    const ASCII: bool = false;
    const LAST_WINS: bool = false;

    fn float(number: f64, out: &mut Vec<u8>) -> Option<()> {
        if !number.is_finite() {
            return None;
        }
        out.extend_from_slice(ryu_js::Buffer::new().format_finite(number).as_bytes());
        Some(())
    }

    fn order(units: Vec<u16>) -> Vec<u32> {
        units.into_iter().map(u32::from).collect()
    }
}

/// Python's `json.dumps(json.loads(text), sort_keys=True)`.
pub(crate) struct Python;

impl Style for Python {
    const COMMA: &'static [u8] = b", ";
    const COLON: &'static [u8] = b": ";
    const ASCII: bool = true;
    const LAST_WINS: bool = true;

    fn float(number: f64, out: &mut Vec<u8>) -> Option<()> {
        python_repr(number, out);
        Some(())
    }

    fn order(units: Vec<u16>) -> Vec<u32> {
        char::decode_utf16(units)
            .map(|c| c.map_or_else(|half| u32::from(half.unpaired_surrogate()), u32::from))
            .collect()
    }
}

/// Writes a float as Python's `repr` does: the shortest digits that read back as the same number,
/// with an exponent below 1e-4 and from 1e16 on.
fn python_repr(number: f64, out: &mut Vec<u8>) {
    if number.is_infinite() {
        out.extend_from_slice(if number > 0.0 { b"Infinity" } else { b"-Infinity" });
        return;
    }
    // ECMAScript has the same shortest digits, an even one where two are as near; the standard
    // library's differ there.
    let mut buffer = ryu_js::Buffer::new();
    let plain = buffer.format_finite(number.abs());
    let (mantissa, exponent) = plain.split_once('e').unwrap_or((plain, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0');
    // Of the first significant digit.
    let exponent = match significant {
        "" => 0,
        _ => {
            let places = all.len() - significant.len() + 1;
            let point =
                i32::try_from(whole.len()).unwrap_or(0) - i32::try_from(places).unwrap_or(0);
            point + exponent.parse::<i32>().unwrap_or(0)
        }
    };
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let digits = significant.trim_end_matches('0');
    let (first, rest) = digits.split_at_checked(1).unwrap_or(("0", ""));
    let text = match usize::try_from(exponent) {
        _ if !(-4..16).contains(&exponent) => {
            let dot = if rest.is_empty() { "" } else { "." };
            let exponent_sign = if exponent < 0 { '-' } else { '+' };
            format!("{sign}{first}{dot}{rest}e{exponent_sign}{:02}", exponent.unsigned_abs())
        }
        Ok(exponent) => {
            let whole: String = rest.chars().chain(std::iter::repeat('0')).take(exponent).collect();
            let fraction = rest.get(exponent..).filter(|f| !f.is_empty()).unwrap_or("0");
            format!("{sign}{first}{whole}.{fraction}")
        }
        Err(_) => {
            let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
            format!("{sign}0.{zeros}{first}{rest}")
        }
    };
    out.extend_from_slice(text.as_bytes());
}

struct Writer<'a, S> {
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
    /// Members of all objects that are open, the innermost's last.
    members: Vec<Member>,
    scratch: Vec<u8>,
    skip: &'a [&'a str],
    style: std::marker::PhantomData<S>,
}

/// A member of an object, as offsets within what is written.
#[derive(Clone)]
struct Member {
    start: usize,
    name_end: usize,
    end: usize,
    /// The name's bytes order as the name does.
    plain: bool,
}

impl<S: Style> Writer<'_, S> {
    fn document(&mut self) -> Result<(), JsonError> {
        self.value(0)?;
        if self.peek().is_some() { Err(self.syntax()) } else { Ok(()) }
    }

    /// The next byte that is not white space, which is passed over.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    fn syntax(&self) -> JsonError {
        JsonError::Syntax { at: self.at }
    }

    fn value(&mut self, depth: usize) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            _ => Err(self.syntax()),
        }
    }

    fn enter(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth >= MAX_DEPTH {
            return Err(JsonError::TooDeep { at: self.at });
        }
        self.at += 1;
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), JsonError> {
        self.enter(depth)?;
        self.out.push(b'[');
        if self.peek() != Some(b']') {
            loop {
                self.value(depth + 1)?;
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        self.out.extend_from_slice(S::COMMA);
                    }
                    Some(b']') => break,
                    _ => return Err(self.syntax()),
                }
            }
        }
        self.at += 1;
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), JsonError> {
        self.enter(depth)?;
        self.out.push(b'{');
        let first = self.members.len();
        let mut ordered = true;
        if self.peek() != Some(b'}') {
            loop {
                if self.peek() != Some(b'"') {
                    return Err(self.syntax());
                }
                let start = self.out.len();
                let escaped = self.string()?;
                let name_end = self.out.len();
                // From U+E000 on, the order of UTF-8 is not that of UTF-16.
                let plain = !escaped && inner(&self.out, start..name_end).iter().all(|&b| b < 0xee);
                ordered = ordered && plain && self.follows(first, start..name_end);
                if self.peek() != Some(b':') {
                    return Err(self.syntax());
                }
                self.at += 1;
                self.out.extend_from_slice(S::COLON);
                self.value(depth + 1)?;
                self.members.push(Member { start, name_end, end: self.out.len(), plain });
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        self.out.extend_from_slice(S::COMMA);
                    }
                    Some(b'}') => break,
                    _ => return Err(self.syntax()),
                }
            }
        }
        self.at += 1;
        if !ordered || depth == 0 && !self.skip.is_empty() {
            self.put_in_order(first, depth == 0)?;
        }
        self.members.truncate(first);
        self.out.push(b'}');
        Ok(())
    }

    /// Whether `name` comes after that of the newest member of the object whose members begin at
    /// `first`; both plain.
    fn follows(&self, first: usize, name: Range<usize>) -> bool {
        match self.members.get(first..).and_then(<[Member]>::last) {
            Some(last) => inner(&self.out, last.start..last.name_end) < inner(&self.out, name),
            None => true,
        }
    }

    /// Sorts the members of the object that ends here, and leaves out what is to be skipped.
    fn put_in_order(&mut self, first: usize, outermost: bool) -> Result<(), JsonError> {
        let Writer { out, members, scratch, skip, at, .. } = self;
        let members = members.get_mut(first..).unwrap_or_default();
        let Some(body) = members.first().map(|m| m.start) else { return Ok(()) };
        if members.iter().all(|m| m.plain) {
            members.sort_by(|a, b| {
                inner(out, a.start..a.name_end).cmp(inner(out, b.start..b.name_end))
            });
        } else {
            members.sort_by_cached_key(|m| S::order(units(inner(out, m.start..m.name_end))));
        }
        scratch.clear();
        for (i, member) in members.iter().enumerate() {
            let name = inner(out, member.start..member.name_end);
            // The sort is stable: of several members of one name the last one stands last.
            if members.get(i + 1).is_some_and(|m| inner(out, m.start..m.name_end) == name) {
                if S::LAST_WINS {
                    continue;
                }
                return Err(JsonError::DuplicateName { at: *at });
            }
            if outermost && skip.iter().any(|s| s.as_bytes() == name) {
                continue;
            }
            if !scratch.is_empty() {
                scratch.extend_from_slice(S::COMMA);
            }
            scratch.extend_from_slice(out.get(member.start..member.end).unwrap_or_default());
        }
        out.truncate(body);
        out.extend_from_slice(scratch);
        Ok(())
    }

    /// Writes a string; tells whether it holds an escape, before or now.
    fn string(&mut self) -> Result<bool, JsonError> {
        let mut run = self.at;
        let mut at = self.at + 1;
        let mut escaped = false;
        loop {
            at = find_special::<S>(self.text, at);
            self.at = at;
            match self.text.get(at) {
                Some(b'"') => {
                    at += 1;
                    self.copy(run..at);
                    break;
                }
                Some(b'\\') => {
                    escaped = true;
                    match self.text.get(at + 1) {
                        // These are canonical as they are.
                        Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                        Some(b'/') => {
                            self.copy(run..at);
                            run = at + 1;
                            at += 2;
                        }
                        Some(b'u') => {
                            self.copy(run..at);
                            let (c, end) = self.unicode_escape(at)?;
                            self.character(c);
                            at = end;
                            run = end;
                        }
                        _ => return Err(self.syntax()),
                    }
                }
                Some(0x7f..) if S::ASCII => {
                    self.copy(run..at);
                    let c = str::from_utf8(self.text.get(at..).unwrap_or_default())
                        .ok()
                        .and_then(|rest| rest.chars().next())
                        .ok_or(JsonError::NotUnicode { at })?;
                    escaped = true;
                    self.character(c);
                    at += c.len_utf8();
                    run = at;
                }
                _ => return Err(self.syntax()),
            }
        }
        self.at = at;
        Ok(escaped)
    }

    fn copy(&mut self, range: Range<usize>) {
        self.out.extend_from_slice(self.text.get(range).unwrap_or_default());
    }

    /// Reads `\uXXXX`, or two that are a surrogate pair; gives the character and where it ends.
    fn unicode_escape(&self, at: usize) -> Result<(char, usize), JsonError> {
        let unit = |at: usize| {
            let digits = self.text.get(at + 2..at + 6)?;
            digits.iter().try_fold(0_u32, |n, &b| Some(n << 4 | char::from(b).to_digit(16)?))
        };
        let high = unit(at).ok_or(JsonError::Syntax { at })?;
        if let Some(c) = char::from_u32(high) {
            return Ok((c, at + 6));
        }
        let half = JsonError::NotUnicode { at };
        if self.text.get(at + 6..at + 8) != Some(b"\\u") {
            return Err(half);
        }
        let low = unit(at + 6).ok_or(JsonError::Syntax { at: at + 6 })?;
        if !(0xdc00..0xe000).contains(&low) {
            return Err(half);
        }
        // A low half first gives a number beyond Unicode.
        let c = char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or(half)?;
        Ok((c, at + 12))
    }

    /// Writes a character as this form does within a string.
    fn character(&mut self, c: char) {
        let short = match c {
            '"' => b'"',
            '\\' => b'\\',
            '\u{8}' => b'b',
            '\t' => b't',
            '\n' => b'n',
            '\u{c}' => b'f',
            '\r' => b'r',
            _ if c < ' ' || S::ASCII && c > '~' => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    self.out.extend_from_slice(b"\\u");
                    for shift in [12, 8, 4, 0] {
                        let digit = char::from_digit(u32::from(*unit >> shift & 0xf), 16);
                        self.out.push(digit.map_or(b'0', |d| d as u8));
                    }
                }
                return;
            }
            _ => {
                self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return;
            }
        };
        self.out.extend_from_slice(&[b'\\', short]);
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let begin = self.at;
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        match self.text.get(self.at) {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        let mut integer = true;
        if self.text.get(self.at) == Some(&b'.') {
            integer = false;
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            integer = false;
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        match self.text.get(begin..self.at).unwrap_or_default() {
            b"-0" => self.out.push(b'0'),
            digits if integer => self.out.extend_from_slice(digits),
            digits => {
                let too_large = JsonError::NumberTooLarge { at: self.at };
                let number = str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
                S::float(number.ok_or(too_large)?, &mut self.out).ok_or(too_large)?;
            }
        }
        Ok(())
    }

    /// Passes over one digit or more.
    fn digits(&mut self) -> Result<(), JsonError> {
        let begin = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == begin { Err(self.syntax()) } else { Ok(()) }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if self.text.get(self.at..self.at + word.len()) != Some(word) {
            return Err(self.syntax());
        }
        self.at += word.len();
        self.out.extend_from_slice(word);
        Ok(())
    }
}

/// The bytes of a written string without its quotes.
fn inner(out: &[u8], string: Range<usize>) -> &[u8] {
    match out.get(string) {
        Some([_, inner @ .., _]) => inner,
        _ => &[],
    }
}

/// The UTF-16 units of a written string.
fn units(written: &[u8]) -> Vec<u16> {
    let text = str::from_utf8(written).unwrap_or_default();
    let mut units = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => match chars.next() {
                Some('b') => '\u{8}',
                Some('t') => '\t',
                Some('n') => '\n',
                Some('f') => '\u{c}',
                Some('r') => '\r',
                Some('u') => {
                    let digits = chars.by_ref().take(4).filter_map(|d| d.to_digit(16));
                    let unit = digits.fold(0, |n, d| n << 4 | d);
                    units.push(u16::try_from(unit).unwrap_or_default());
                    continue;
                }
                Some(other) => other,
                None => break,
            },
            c => c,
        };
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    units
}

/// Where the next byte is that ends a run of a string: a quote, a backslash, a control character,
/// and, when only ASCII is written, what is not printable ASCII. The text's length without one.
fn find_special<S: Style>(text: &[u8], from: usize) -> usize {
    let special = |b: u8| b == b'"' || b == b'\\' || b < 0x20 || S::ASCII && b >= 0x7f;
    let mut rest = text.get(from..).unwrap_or_default();
    if !S::ASCII {
        while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
            let hits = special_in_word(u64::from_le_bytes(*chunk));
            if hits != 0 {
                return text.len() - rest.len() + hits.trailing_zeros() as usize / 8;
            }
            rest = after;
        }
    }
    let at = text.len() - rest.len();
    at + rest.iter().position(|&b| special(b)).unwrap_or(rest.len())
}

/// The high bit of each special byte of eight, exact up to and including the lowest one.
fn special_in_word(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    let below = |limit: u64, x: u64| x.wrapping_sub(ONES * limit) & !x;
    let zero = |x: u64| below(1, x);
    let quote = zero(word ^ (ONES * u64::from(b'"')));
    let backslash = zero(word ^ (ONES * u64::from(b'\\')));
    (below(0x20, word) | quote | backslash) & HIGHS
}

#[cfg(test)]
mod tests;
