use std::{cmp::Reverse, collections::BTreeMap};

use attempt_ledger_core::Label;
use serde::Serialize;

/// A stop word that is not a known one, so that the content alone decided its attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownStopWord {
    /// The word as the provider sent it; hashed where it is no plain word.
    pub word: Label,
    /// The wire it came on.
    pub wire: Label,
    /// How many attempts it ended.
    pub attempts: u64,
}

/// Words that a list names at most; servers send few, unless one sends what is no word at all.
pub(crate) const LISTED: usize = 16;

/// Different words that are counted at most, so that no server can make a tally grow for ever.
const COUNTED: usize = 4096;

/// How often each unknown stop word came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words(BTreeMap<(Label, Label), u64>);

impl Words {
    pub(crate) fn count(&mut self, word: &Label, wire: &Label) {
        let key = (word.clone(), wire.clone());
        if let Some(attempts) = self.0.get_mut(&key) {
            *attempts += 1;
        } else if self.0.len() < COUNTED {
            self.0.insert(key, 1);
        }
    }

    /// The most frequent first, equals by their names; and how many words are not in this list.
    pub(crate) fn listed(&self) -> (Vec<UnknownStopWord>, usize) {
        let words = self.0.iter().map(|((word, wire), &attempts)| UnknownStopWord {
            word: word.clone(),
            wire: wire.clone(),
            attempts,
        });
        let mut words: Vec<_> = words.collect();
        // They stand by name already, and the sort is stable.
        words.sort_by_key(|word| Reverse(word.attempts));
        let unlisted = words.len().saturating_sub(LISTED);
        words.truncate(LISTED);
        (words, unlisted)
    }
}
