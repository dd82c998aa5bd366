use std::{fmt, str::FromStr};

use attempt_ledger_core::Label;

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
    /// Chat completions, of OpenAI and of all that speak like it.
    OpenAiChat,
    /// The older text completions.
    OpenAiCompletions,
    /// No protocol that is known here: the body is the content.
    Plain,
}

/// What the decoder and the request reader of a wire are, and where it is found.
struct Spec {
    wire: Wire,
    name: &'static str,
    /// Endings of the paths it is served under.
    paths: &'static [&'static str],
    family: Family,
}

/// Which code reads a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    OpenAi,
    Plain,
}

const SPECS: [Spec; 3] = [
    Spec {
        wire: Wire::OpenAiChat,
        name: "openai-chat",
        paths: &["/chat/completions"],
        family: Family::OpenAi,
    },
    Spec {
        wire: Wire::OpenAiCompletions,
        name: "openai-completions",
        paths: &["/completions"],
        family: Family::OpenAi,
    },
    Spec { wire: Wire::Plain, name: "plain", paths: &[], family: Family::Plain },
];

impl Wire {
    /// Every wire.
    pub const ALL: &'static [Wire] = &[Wire::OpenAiChat, Wire::OpenAiCompletions, Wire::Plain];

    /// Its name, in rows and on the command line.
    pub const fn as_str(self) -> &'static str {
        self.spec().name
    }

    /// Its name, as rows hold it.
    pub fn label(self) -> Label {
        Label::new(self.as_str())
    }

    /// The wire that is served under `path`, by how the path ends; else [`Wire::Plain`].
    ///
    /// The host is not looked at: the same wire is served by many. A query behind the path does
    /// not matter.
    pub fn detect(path: &str) -> Wire {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let path = path.strip_suffix('/').unwrap_or(path);
        let served = |spec: &&Spec| spec.paths.iter().any(|end| path.ends_with(end));
        SPECS.iter().find(served).map_or(Wire::Plain, |spec| spec.wire)
    }

    pub(crate) const fn family(self) -> Family {
        self.spec().family
    }

    const fn spec(self) -> &'static Spec {
        match self {
            Wire::OpenAiChat => &SPECS[0],
            Wire::OpenAiCompletions => &SPECS[1],
            Wire::Plain => &SPECS[2],
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
        SPECS.iter().find(|spec| spec.name == name).map(|spec| spec.wire).ok_or_else(|| {
            let names: Vec<_> = SPECS.iter().map(|spec| spec.name).collect();
            format!("{name:?} is no wire: {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wire_has_its_own_line_in_the_table() {
        assert_eq!(Wire::ALL.len(), SPECS.len());
        for &wire in Wire::ALL {
            assert_eq!(wire.spec().wire, wire);
            assert_eq!(wire.as_str().parse(), Ok(wire));
            assert_eq!(wire.label().as_str(), wire.as_str());
        }
        assert!("chat".parse::<Wire>().expect_err("one spelling").contains("openai-chat"));
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
            ("", Wire::Plain),
        ] {
            assert_eq!(Wire::detect(path), wire, "{path}");
        }
    }
}
