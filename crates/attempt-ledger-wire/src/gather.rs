use attempt_ledger_core::{
    Content, Digest, Facts, Fault, InBandError, Label, Stop, ToolCall, Uninspected, Usage,
    answer_of_parts,
};
use sha2::{Digest as _, Sha256};

use crate::{Evidence, error::ReportedError, stop};

/// Tool calls that one answer may hold before its body counts as unreadable.
pub(crate) const MAX_CALLS: usize = 1024;

/// Collects what a decoder finds: facts for the verdict, hashes for the row.
///
/// The text itself is held only when it is to be handed to graders.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) facts: Facts,
    pub(crate) progress: u64,
    text: Sha256,
    refusal: Option<Sha256>,
    calls: Vec<Call>,
    finish: Option<Label>,
    reasoning_chars: u64,
    response_id: Option<Label>,
    usage: Usage,
    choices: u128,
    kept: Option<Content>,
    /// Bytes that may still be kept.
    room: usize,
    accept_done: bool,
}

/// How a tool call is told from the others of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKey {
    /// By the number the wire gives it.
    Index(u64),
    /// By its id alone, since the server sends no number.
    Id(u64),
    /// It goes on with the newest one.
    Newest,
    /// The one call of the form that came before tool calls.
    Legacy,
}

#[derive(Debug)]
struct Call {
    key: CallKey,
    /// Its id, where it has a number too.
    id: Option<u64>,
    name: Sha256,
    arguments: Sha256,
}

impl Gather {
    pub(crate) fn new(facts: Facts, keep: bool, room: usize, accept_done: bool) -> Self {
        Gather {
            facts,
            progress: 0,
            text: Sha256::new(),
            refusal: None,
            calls: Vec::new(),
            finish: None,
            reasoning_chars: 0,
            response_id: None,
            usage: Usage::default(),
            choices: 0,
            kept: keep.then(Content::default),
            room,
            accept_done,
        }
    }

    /// Whether what arrives still counts.
    pub(crate) fn is_open(&self) -> bool {
        self.facts.fault.is_none() && self.facts.uninspected.is_none() && !self.facts.done
    }

    pub(crate) fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.text.update(text.as_bytes());
        self.facts.text_chars += text.chars().count() as u64;
        self.facts.has_text = self.facts.has_text || text.chars().any(|c| !c.is_whitespace());
        if self.may_keep(text.len())
            && let Some(kept) = &mut self.kept
        {
            kept.text.push_str(text);
        }
    }

    /// Reasoning or thinking that is shown beside the answer; of it only the length is kept.
    pub(crate) fn reasoning(&mut self, text: &str) {
        self.reasoning_chars(text.chars().count() as u64);
    }

    /// Code points of such reasoning.
    pub(crate) fn reasoning_chars(&mut self, count: u64) {
        self.reasoning_chars += count;
    }

    /// The provider's id of the response; the first one that is not empty.
    pub(crate) fn response_id(&mut self, id: &str) {
        if self.response_id.is_none() && !id.is_empty() {
            self.response_id = Some(Label::new(id));
        }
    }

    pub(crate) fn refusal(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.facts.refusal = true;
        self.refusal.get_or_insert_with(Sha256::new).update(text.as_bytes());
        if self.may_keep(text.len())
            && let Some(kept) = &mut self.kept
        {
            kept.refusal.get_or_insert_default().push_str(text);
        }
    }

    pub(crate) fn call(&mut self, key: CallKey, name: &str, arguments: &str) {
        let found = match key {
            CallKey::Newest => self.calls.len().checked_sub(1),
            _ => self.calls.iter().rposition(|call| call.key == key),
        };
        self.call_at(found, key, None, name, arguments);
    }

    /// A piece of a call that has a number, and an id on some of its pieces.
    ///
    /// Some servers number every call 0, so that a new id under a known number begins another call
    /// if a name comes with it; without one it does not, since others make up an id a piece. One
    /// that repeats id and name says nothing new by the name.
    pub(crate) fn numbered_call(&mut self, n: u64, id: Option<u64>, name: &str, arguments: &str) {
        let key = CallKey::Index(n);
        let found = self.calls.iter().rposition(|call| call.key == key);
        let known = found.and_then(|at| self.calls.get(at)).and_then(|call| call.id);
        match (known, id) {
            (Some(known), Some(id)) if known == id => self.call_at(found, key, None, "", arguments),
            (Some(_), Some(_)) if !name.is_empty() => self.call_at(None, key, id, name, arguments),
            _ => self.call_at(found, key, id, name, arguments),
        }
    }

    fn call_at(
        &mut self,
        found: Option<usize>,
        key: CallKey,
        id: Option<u64>,
        name: &str,
        arguments: &str,
    ) {
        if found.is_none() && self.calls.len() == MAX_CALLS {
            return self.uninspected(Uninspected::Size);
        }
        let at = found.unwrap_or_else(|| {
            let call = Call { key, id, name: Sha256::new(), arguments: Sha256::new() };
            self.calls.push(call);
            self.facts.tool_calls += 1;
            if let Some(kept) = &mut self.kept {
                kept.tool_calls.push(ToolCall::default());
            }
            self.calls.len() - 1
        });
        if let Some(call) = self.calls.get_mut(at) {
            call.id = call.id.or(id);
            call.name.update(name.as_bytes());
            call.arguments.update(arguments.as_bytes());
        }
        if self.may_keep(name.len() + arguments.len())
            && let Some(call) = self.kept.as_mut().and_then(|kept| kept.tool_calls.get_mut(at))
        {
            call.name.push_str(name);
            call.arguments.push_str(arguments);
        }
    }

    /// The last word wins; an empty one says "not finished".
    pub(crate) fn stop_word(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        if self.finish.as_ref().is_none_or(|known| known.as_str() != word) {
            self.finish = Some(Label::new(word));
        }
        let meaning = stop::meaning(word);
        self.facts.unknown_stop = meaning.is_none();
        self.facts.stop = Some(meaning.unwrap_or(Stop::Plain));
    }

    /// The wire says that the answer is finished, without a word for why.
    pub(crate) fn stop(&mut self) {
        self.facts.stop.get_or_insert(Stop::Plain);
    }

    /// Whether a call of this key came.
    pub(crate) fn has_call(&self, key: CallKey) -> bool {
        self.calls.iter().any(|call| call.key == key)
    }

    /// A run that was accepted goes on; `state` is its state.
    pub(crate) fn runs_on(&mut self, state: &str) {
        self.finish = Some(Label::new(state));
        self.facts.pending = true;
    }

    /// The last value that was reported wins, each for itself.
    pub(crate) fn usage(&mut self, input: Option<u64>, output: Option<u64>) {
        self.usage.input = input.or(self.usage.input);
        self.usage.output = output.or(self.usage.output);
    }

    /// What another party counted: it stands where the wire itself gave nothing.
    pub(crate) fn usage_beside(&mut self, input: Option<u64>, output: Option<u64>) {
        self.usage.input = self.usage.input.or(input);
        self.usage.output = self.usage.output.or(output);
    }

    /// A choice of this index came. An index beyond what any API offers is not counted.
    pub(crate) fn choice(&mut self, index: u64) {
        self.choices(u32::try_from(index).ok().and_then(|at| 1u128.checked_shl(at)).unwrap_or(0));
    }

    /// Choices came, those of the indexes whose bits are set.
    pub(crate) fn choices(&mut self, bits: u128) {
        if bits & !self.choices != 0 {
            self.choices |= bits;
            self.facts.choices = self.choices.count_ones();
        }
    }

    /// Whether an answer stands that an error can no longer take away.
    pub(crate) fn answered(&self) -> bool {
        self.facts.stop_seen() && self.facts.usable()
    }

    /// An error that a stream reports: one behind an answer that stands is only noted.
    pub(crate) fn reported(&mut self, reported: ReportedError) {
        if self.answered() {
            self.late_error(reported.error);
        } else {
            self.error(reported);
        }
    }

    pub(crate) fn error(&mut self, reported: ReportedError) {
        self.facts.retry_after_ms = self.facts.retry_after_ms.or(reported.retry_after_ms);
        self.facts.fault.get_or_insert(Fault::Error(reported.error));
    }

    pub(crate) fn late_error(&mut self, error: InBandError) {
        self.facts.late_error.get_or_insert(error);
    }

    pub(crate) fn malformed(&mut self) {
        self.facts.fault.get_or_insert(Fault::Malformed);
    }

    /// What is complete does not parse, or holds more than is read.
    pub(crate) fn unread(&mut self, error: &serde_json::Error) {
        if crate::json::is_over(error) {
            self.uninspected(Uninspected::Size);
        } else {
            self.malformed();
        }
    }

    pub(crate) fn uninspected(&mut self, why: Uninspected) {
        self.facts.uninspected.get_or_insert(why);
    }

    /// The wire's done marker came.
    pub(crate) fn done(&mut self) {
        if self.accept_done && self.is_open() {
            self.stop();
        }
        self.facts.done = true;
    }

    pub(crate) fn evidence(&mut self, streamed: bool) -> Evidence {
        let digest = |state: &Sha256| Digest::from_bytes(state.clone().finalize().into());
        let text = (self.facts.text_chars > 0).then(|| digest(&self.text));
        let refusal = self.refusal.as_ref().map(digest);
        let calls = self.calls.iter().map(|call| (digest(&call.name), digest(&call.arguments)));
        let content = self.kept.take().map(|mut kept| {
            kept.finish_reason = self.finish.clone();
            kept
        });
        Evidence {
            finish_reason: self.finish.clone(),
            content_sha256: text,
            answer_sha256: answer_of_parts(self.finish.as_ref(), refusal, text, calls),
            content_chars: self.facts.text_chars,
            reasoning_chars: self.reasoning_chars,
            response_id: self.response_id.clone(),
            tool_calls: self.facts.tool_calls,
            usage: self.usage,
            events: streamed.then_some(self.progress),
            content,
        }
    }

    fn may_keep(&mut self, len: usize) -> bool {
        if self.kept.is_none() {
            return false;
        }
        match self.room.checked_sub(len) {
            Some(left) => self.room = left,
            None => {
                self.kept = None;
                self.uninspected(Uninspected::Size);
            }
        }
        self.kept.is_some()
    }
}

/// A call's id, shortened.
pub(crate) fn id_hash(id: &str) -> u64 {
    Sha256::digest(id.as_bytes()).iter().take(8).fold(0, |n, &b| n << 8 | u64::from(b))
}
