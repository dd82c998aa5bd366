use super::{READ_BYTES, RuleError, invalid};

/// Bytes that a compiled pattern takes, at most, and as many again for its search.
const SIZE: usize = 1 << 20;

/// A regular expression: matched in time linear in the text, whatever both are.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(regex::Regex);

impl Pattern {
    pub(crate) fn new(pattern: &str) -> Result<Self, RuleError> {
        let built = regex::RegexBuilder::new(pattern).size_limit(SIZE).dfa_size_limit(SIZE).build();
        built.map(Pattern).map_err(|error| {
            invalid(
                format!("{pattern:?} is no regular expression that can be used"),
                Some(error.into()),
            )
        })
    }

    /// Whether it is found in `text`; `None` when that is too long to be searched.
    pub(crate) fn is_in(&self, text: &str) -> Option<bool> {
        (text.len() <= READ_BYTES).then(|| self.0.is_match(text))
    }
}
