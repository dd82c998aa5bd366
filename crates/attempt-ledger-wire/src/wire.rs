use std::{fmt, str::FromStr};

use attempt_ledger_core::{Label, Verdict};

use crate::{
    event::Event,
    gather::Gather,
    request::{Asked, RequestFacts},
    wires::{anthropic, cohere, converse, gemini, invoke, llama, ollama, openai, plain, responses},
};

/// What a wire's file says of it.
pub(crate) struct Spec {
    /// Its name, in rows and on the command line.
    pub(crate) name: &'static str,
    /// Endings of the paths it is served under; `*` stands for any run without a slash. One behind
    /// `!` is served otherwise, although it fits.
    pub(crate) paths: &'static [&'static str],
    /// Names of the fields that count the tokens of prompt and answer.
    pub(crate) usage: (&'static str, &'static str),
    /// Its JSON may be a list of events that is delivered piecewise.
    pub(crate) lists: bool,
    /// What it says a status means where it differs from the common rule.
    pub(crate) statuses: &'static [(u16, Verdict)],
    /// Reads what a request asks for; `None` if it does not understand it.
    pub(crate) request: fn(&Asked<'_>) -> Option<RequestFacts>,
}

/// The decoder of a wire: turns what came into facts.
pub(crate) trait Reader: Default {
    /// Servers and proxies send its streams under media types that say nothing of lines.
    const MAY_BE_LINES: bool = false;

    /// One event of a stream. False when nothing after it is to be read.
    fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool;

    /// The whole body of a 2xx that is one document. `cut` says that its transfer broke, so that a
    /// document that does not parse proves nothing.
    fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather);

    /// Bytes allocated for what it remembers.
    fn held(&self) -> usize {
        0
    }
}

/// The table of wires: what each is called here, its decoder and its particulars.
///
/// Where the paths of two fit, the first counts.
macro_rules! wires {
    ($($(#[doc = $doc:literal])+ $wire:ident: $reader:ty, $spec:expr;)+) => {
        /// A provider's format of requests and answers.
        ///
        /// ```
        /// use attempt_ledger_wire::Wire;
        ///
        /// assert_eq!(Wire::detect("/api/v1/chat/completions"), Wire::OpenAiChat);
        /// assert_eq!("openai-completions".parse(), Ok(Wire::OpenAiCompletions));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Wire {
            $($(#[doc = $doc])+ $wire,)+
        }

        impl Wire {
            /// Every wire.
            pub const ALL: &'static [Wire] = &[$(Wire::$wire),+];

            /// What it is, in a sentence.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Wire::$wire => concat!($($doc),+).trim_ascii(),)+
                }
            }

            pub(crate) const fn spec(self) -> &'static Spec {
                match self {
                    $(Wire::$wire => &$spec,)+
                }
            }
        }

        /// The decoder of the response that is read.
        pub(crate) enum AnyReader {
            $($wire($reader),)+
        }

        impl AnyReader {
            pub(crate) fn of(wire: Wire) -> Self {
                match wire {
                    $(Wire::$wire => AnyReader::$wire(<$reader>::default()),)+
                }
            }

            pub(crate) const fn may_be_lines(&self) -> bool {
                match self {
                    $(AnyReader::$wire(_) => <$reader as Reader>::MAY_BE_LINES,)+
                }
            }

            pub(crate) fn event(&mut self, event: &Event<'_>, gather: &mut Gather) -> bool {
                match self {
                    $(AnyReader::$wire(reader) => reader.event(event, gather),)+
                }
            }

            pub(crate) fn document(&mut self, body: &[u8], cut: bool, gather: &mut Gather) {
                match self {
                    $(AnyReader::$wire(reader) => reader.document(body, cut, gather),)+
                }
            }

            pub(crate) fn held(&self) -> usize {
                match self {
                    $(AnyReader::$wire(reader) => reader.held(),)+
                }
            }
        }
    };
}

wires! {
    /// Chat completions, of OpenAI and of all that speak like it.
    OpenAiChat: openai::Reader, openai::CHAT;
    /// The older text completions.
    OpenAiCompletions: openai::Reader, openai::COMPLETIONS;
    /// OpenAI's Responses, also as others serve them.
    OpenAiResponses: responses::Reader, responses::RESPONSES;
    /// Anthropic's Messages, also as Vertex and Bedrock serve them.
    AnthropicMessages: anthropic::Reader, anthropic::MESSAGES;
    /// Gemini's `generateContent`, of the Gemini API and of Vertex AI.
    Gemini: gemini::Reader, gemini::GEMINI;
    /// Ollama's own chat and generation.
    Ollama: ollama::Reader, ollama::OLLAMA;
    /// llama.cpp's own completion.
    LlamaCompletion: llama::Reader, llama::COMPLETION;
    /// Cohere's chat, version 2.
    Cohere: cohere::Reader, cohere::CHAT;
    /// Bedrock's Converse.
    BedrockConverse: converse::Reader, converse::CONVERSE;
    /// Bedrock's InvokeModel: each vendor's own answers, in frames when streamed.
    BedrockInvoke: invoke::Reader, invoke::INVOKE;
    /// No protocol that is known here: the body is the content.
    Plain: plain::Reader, plain::PLAIN;
}

impl Wire {
    /// Its name, in rows and on the command line.
    pub const fn as_str(self) -> &'static str {
        self.spec().name
    }

    /// Its name, as rows hold it.
    pub fn label(self) -> Label {
        Label::new(self.as_str())
    }

    /// Endings of the paths it is served under; `*` stands for any run without a slash. One behind
    /// `!` is served otherwise, although it fits.
    pub const fn paths(self) -> &'static [&'static str] {
        self.spec().paths
    }

    /// Names of the fields that rows call `usage.input` and `usage.output`.
    ///
    /// The numbers are the wire's own, and wires count differently: OpenAI's completion tokens hold
    /// those of reasoning, Gemini's candidates' do not; Anthropic's input leaves out what was read
    /// from or written to its cache. Numbers of two wires cannot be compared without a rule.
    pub const fn usage_fields(self) -> (&'static str, &'static str) {
        self.spec().usage
    }

    /// The wire that is served under `path`, by how the path ends; else [`Wire::Plain`].
    ///
    /// The host is not looked at: the same wire is served by many. A query behind the path does
    /// not matter.
    pub fn detect(path: &str) -> Wire {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let path = path.strip_suffix('/').unwrap_or(path);
        let served = |wire: &Wire| {
            let fits = |end: &&str| ends_with(path, end.strip_prefix('!').unwrap_or(end));
            let mut fitting = wire.paths().iter().filter(|end| fits(end)).peekable();
            fitting.peek().is_some() && fitting.all(|end| !end.starts_with('!'))
        };
        Wire::ALL.iter().copied().find(served).unwrap_or(Wire::Plain)
    }
}

/// Whether `path` ends as `pattern` says, in which `*` stands for any run without a slash.
fn ends_with(path: &str, pattern: &str) -> bool {
    let Some((before, last)) = pattern.rsplit_once('*') else { return path.ends_with(pattern) };
    let Some(mut path) = path.strip_suffix(last) else { return false };
    loop {
        if ends_with(path, before) {
            return true;
        }
        match path.char_indices().next_back() {
            Some((at, c)) if c != '/' => path = &path[..at],
            _ => return false,
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Wire {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Wire::ALL.iter().copied().find(|wire| wire.as_str() == name).ok_or_else(|| {
            let names: Vec<_> = Wire::ALL.iter().map(|wire| wire.as_str()).collect();
            format!("{name:?} is no wire: {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wire_is_called_by_its_name() {
        for &wire in Wire::ALL {
            assert_eq!(wire.as_str().parse(), Ok(wire));
            assert_eq!(wire.label().as_str(), wire.as_str());
        }
        assert!("chat".parse::<Wire>().expect_err("one spelling").contains("openai-chat"));
    }

    /// The tables in the documentation are of these wires, all of them, in this order.
    #[test]
    fn the_documentation_shows_these_wires() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
        let page = |path: &str| std::fs::read_to_string(format!("{root}{path}")).expect("a page");
        let code = |names: &[&str]| match names {
            [] | [""] => "-".to_owned(),
            names => names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "),
        };
        let (front, readme) = (page("docs/wires.md"), page("../../README.md"));
        let rows = |text: &str, cells: usize| -> Vec<Vec<String>> {
            let lines = text.lines().filter(|line| line.starts_with("| `"));
            let cut = |line: &str| {
                line.split(" | ").map(|c| c.trim_matches(['|', ' ']).to_owned()).collect()
            };
            let of_a_wire = |row: &Vec<String>| {
                row.len() == cells
                    && row.first().is_some_and(|n| n.trim_matches('`').parse::<Wire>().is_ok())
            };
            lines.map(cut).filter(of_a_wire).collect()
        };
        let want: Vec<_> = Wire::ALL
            .iter()
            .map(|wire| {
                let (input, output) = wire.usage_fields();
                let usage = if input.is_empty() { code(&[]) } else { code(&[input, output]) };
                let about = wire.about().trim_end_matches('.').to_owned();
                [code(&[wire.as_str()]), about, code(wire.paths()), usage]
            })
            .collect();
        let found: Vec<_> = rows(&front, 5)
            .into_iter()
            .map(|row| [row[0].clone(), row[1].clone(), row[2].clone(), row[4].clone()])
            .collect();
        assert_eq!(found, want, "docs/wires.md");
        let short: Vec<_> = want.into_iter().map(|[name, about, ..]| vec![name, about]).collect();
        assert_eq!(rows(&readme, 2), short, "README.md");
    }

    #[test]
    fn a_wire_is_known_by_the_end_of_its_path() {
        for (path, wire) in [
            ("/v1/chat/completions", Wire::OpenAiChat),
            ("/openai/deployments/d/chat/completions?api-version=1", Wire::OpenAiChat),
            ("/chat/completions/", Wire::OpenAiChat),
            ("/v1/completions", Wire::OpenAiCompletions),
            ("/v1/fim/completions", Wire::OpenAiCompletions),
            ("/v1/chatcompletions", Wire::Plain),
            ("/v1/models", Wire::Plain),
            ("/completion", Wire::LlamaCompletion),
            ("/infill", Wire::LlamaCompletion),
            ("/openai/v1/responses", Wire::OpenAiResponses),
            ("/v1/responses/resp_1", Wire::OpenAiResponses),
            ("/v1/responses/resp_1/input_items", Wire::Plain),
            ("/v1/messages?beta=true", Wire::AnthropicMessages),
            ("/anthropic/v1/messages/", Wire::AnthropicMessages),
            ("/v1/messages/count_tokens", Wire::Plain),
            ("/v1/messages/batches", Wire::Plain),
            ("/v1/threads/t/messages", Wire::Plain),
            ("/v1/publishers/anthropic/models/count-tokens:rawPredict", Wire::Plain),
            ("/model/eu.anthropic.m-v1%3A0/invoke", Wire::AnthropicMessages),
            ("/model/meta.m/invoke-with-response-stream", Wire::BedrockInvoke),
            ("/model/anthropic.m/converse-stream", Wire::BedrockConverse),
            ("/model/vendor.embed-text-v2%3A0/invoke", Wire::Plain),
            ("/model/vendor.rerank-v1%3A0/invoke", Wire::Plain),
            ("/model/vendor.image-generator-v1/invoke", Wire::Plain),
            ("/model/vendor.m/count-tokens", Wire::Plain),
            ("/v1beta/models/g-1:streamGenerateContent?alt=sse", Wire::Gemini),
            ("/v1/projects/p/locations/l/publishers/google/models/g:generateContent", Wire::Gemini),
            ("/v1/projects/p/publishers/anthropic/models/c:rawPredict", Wire::AnthropicMessages),
            ("/api/generate", Wire::Ollama),
            ("/v2/chat", Wire::Cohere),
            ("", Wire::Plain),
        ] {
            assert_eq!(Wire::detect(path), wire, "{path}");
        }
    }

    #[test]
    fn a_star_stands_for_anything_but_a_slash() {
        for (path, pattern, fits) in [
            ("/v1/models/m:generate", "/models/*:generate", true),
            ("/models/a:b:generate", "/models/*:generate", true),
            ("/models/a/b:generate", "/models/*:generate", false),
            ("/models/:generate", "/models/*:generate", true),
            ("/model/eu.vendor.m/invoke", "/model/*vendor.*/invoke", true),
            ("/model/other.m/invoke", "/model/*vendor.*/invoke", false),
            ("/model/é.vendor.é/invoke", "/model/*vendor.*/invoke", true),
            ("/x/y", "*", true),
            ("", "*", true),
            ("x", "/*", false),
        ] {
            assert_eq!(ends_with(path, pattern), fits, "{path} {pattern}");
        }
    }
}
