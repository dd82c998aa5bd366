use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Label, RateLimit};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word in JSON, on the command line and in reports.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = String;
            fn from_str(word: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|v| v.as_str() == word).ok_or_else(|| {
                    let words: Vec<_> = Self::ALL.iter().map(|v| v.as_str()).collect();
                    format!("{word:?} is none of {}", words.join(", "))
                })
            }
        }
    };
}

words! {
    /// The typed outcome of an attempt.
    ///
    /// Decided from types, status, headers and decoded fields; never from the text of a message.
    Verdict {
        /// Usable content, complete.
        Ok = "ok",
        /// As `ok`, but a check of the user's failed.
        OffTarget = "off_target",
        /// The model or a policy declined.
        Refused = "refused",
        /// The token cap was hit.
        Truncated = "truncated",
        /// Finished, and nothing usable in it.
        Empty = "empty",
        /// A stream ended without a stop reason though its transfer did not break.
        Unterminated = "unterminated",
        /// A 2xx that is not the wire's protocol.
        Malformed = "malformed",
        /// An error object, error event or failure stop word inside a 2xx.
        ProviderError = "provider_error",
        /// The server asked to be called less or later.
        Throttled = "throttled",
        /// A 5xx, 408 or 424.
        ServerError = "server_error",
        /// Connecting or transferring failed.
        Transport = "transport",
        /// A local clock expired. The remote side may have done the work.
        Deadline = "deadline",
        /// Another 4xx: the caller's mistake.
        Rejected = "rejected",
        /// A 3xx that was not followed.
        Redirected = "redirected",
        /// A background run was accepted; not an answer yet.
        Pending = "pending",
        /// A 2xx whose body could not be read by the decoder.
        Uninspected = "uninspected",
        /// Refused locally before it was sent.
        Shed = "shed",
        /// Dropped by its caller, or held by its reader past the total clock.
        Abandoned = "abandoned",
        /// Opened and never closed; its writer is gone.
        Lost = "lost",
    }
}

/// Which published number an attempt belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Series {
    /// The model's answers.
    Quality,
    /// Faults of availability.
    Availability,
    /// Neither; counted beside.
    Neither,
}

impl Verdict {
    /// The series the verdict belongs to.
    pub const fn series(self) -> Series {
        use Verdict as V;
        match self {
            V::Ok | V::OffTarget | V::Refused | V::Truncated | V::Empty => Series::Quality,
            V::Unterminated
            | V::Malformed
            | V::ProviderError
            | V::Throttled
            | V::ServerError
            | V::Transport
            | V::Deadline => Series::Availability,
            V::Rejected
            | V::Redirected
            | V::Pending
            | V::Uninspected
            | V::Shed
            | V::Abandoned
            | V::Lost => Series::Neither,
        }
    }

    /// Whether the model answered: such a verdict, and only such, is graded.
    pub const fn is_content(self) -> bool {
        matches!(self.series(), Series::Quality)
    }

    /// Whether this is a fault of availability.
    pub const fn is_fault(self) -> bool {
        matches!(self.series(), Series::Availability)
    }
}

words! {
    /// What is known about the remote side.
    Remote {
        /// No byte of the request can have been processed.
        NotReached = "not_reached",
        /// It may have run, or be running.
        Unknown = "unknown",
        /// It answered.
        Answered = "answered",
    }
}

words! {
    /// A local clock.
    Clock {
        /// Until the response head.
        Head = "head",
        /// Until the first content.
        FirstContent = "first_content",
        /// Between bytes of the body.
        Idle = "idle",
        /// Between protocol events.
        Progress = "progress",
        /// The attempt's own total.
        Total = "total",
        /// What was left of the call's budget.
        Budget = "budget",
    }
}

words! {
    /// Where in its life an attempt was when it ended.
    Phase {
        /// Before the request was handed to the inner service.
        Open = "open",
        /// While connecting.
        Connect = "connect",
        /// While sending, or waiting for the response head.
        Head = "head",
        /// While reading the body.
        Body = "body",
    }
}

words! {
    /// What failed below an attempt, by the type of its error: mostly of a `transport` verdict, but
    /// `limit` is `shed`, `elapsed` a `deadline`, `enhance_your_calm` `throttled` and `redirect`
    /// `redirected`.
    TransportKind {
        /// The name could not be resolved.
        Dns = "dns",
        /// The connection was refused, or could not be made.
        Connect = "connect",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The connection was reset.
        Reset = "reset",
        /// The connection was closed before a complete head.
        Closed = "closed",
        /// The body ended before its framing said so.
        Cut = "cut",
        /// The bytes were not HTTP.
        Protocol = "protocol",
        /// The connection went away before the request was written.
        Canceled = "canceled",
        /// The server refused the HTTP/2 stream before processing it: by a reset that says so, or by
        /// a graceful goodbye that does not cover it.
        RefusedStream = "refused_stream",
        /// The server asked over HTTP/2 to be called less.
        EnhanceYourCalm = "enhance_your_calm",
        /// The transport's own time limit passed.
        Timeout = "timeout",
        /// A timeout layer of the caller's own, or one of the client's settings, expired beneath the
        /// ledger.
        Elapsed = "elapsed",
        /// Sending the request's body failed on the caller's side.
        RequestBody = "request_body",
        /// A local limit refused it.
        Limit = "limit",
        /// A body was longer than a limit of the caller's own.
        BodyLimit = "body_limit",
        /// The client beneath stopped at a redirect.
        Redirect = "redirect",
        /// An error of a type that is not known here.
        Unclassified = "unclassified",
    }
}

words! {
    /// The typed cause of an error that a provider reported.
    ErrorCause {
        /// Asked to be called less or later.
        Throttled = "throttled",
        /// Out of capacity, or not ready.
        Overloaded = "overloaded",
        /// A policy decision.
        Policy = "policy",
        /// Quota, credit or payment.
        Billing = "billing",
        /// Credentials or permission.
        Auth = "auth",
        /// The request is wrong.
        Request = "request",
        /// The provider failed.
        Server = "server",
        /// The provider's own time limit passed.
        Timeout = "timeout",
    }
}

words! {
    /// Who let go of an `abandoned` attempt.
    Holder {
        /// The caller dropped the call or the attempt.
        Caller = "caller",
        /// The reader of the body dropped it, or held it past the total clock.
        Reader = "reader",
    }
}

words! {
    /// Who took the time of a clock that passed.
    Staller {
        /// The other side: it was awaited.
        Upstream = "upstream",
        /// The reader of the body, who did not poll it.
        Reader = "reader",
    }
}

words! {
    /// What happened to the transfer after the stop reason; it does not change the verdict.
    AfterStop {
        /// The transfer broke.
        Cut = "cut",
        /// A clock passed.
        Clock = "clock",
        /// The reader left before the end.
        Dropped = "dropped",
        /// The provider reported an error.
        Error = "error",
    }
}

words! {
    /// Why a body could not be read by the decoder.
    Uninspected {
        /// Its content encoding is not known here.
        Encoding = "encoding",
        /// It unpacks to more than the allowed ratio.
        Ratio = "ratio",
        /// It, or one event of it, is over the bound on size.
        Size = "size",
        /// Its media type is not one this wire is read from.
        MediaType = "media_type",
    }
}

fn is_false(b: &bool) -> bool {
    !b
}

/// What else is known about how an attempt ended. Absent values are left out of JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// The clock that expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    /// That clock's limit in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_us: Option<u64>,
    /// Who took that clock's time: of the total and the budget, the greater part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled: Option<Staller>,
    /// How long the reader left the body unpolled before that clock passed, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reader_us: Option<u64>,
    /// Where the attempt was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// What failed in the transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<TransportKind>,
    /// The provider's error code or type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Label>,
    /// What that code means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<ErrorCause>,
    /// Who let go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Holder>,
    /// What happened after the stop reason, or within a non-2xx body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_stop: Option<AfterStop>,
    /// Why the decoder could not read the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uninspected: Option<Uninspected>,
    /// More was to be held back than the gate's bound allowed, so it opened early.
    #[serde(skip_serializing_if = "is_false")]
    pub gate_overflow: bool,
    /// The answer goes on in another call (a paused turn).
    #[serde(skip_serializing_if = "is_false")]
    pub continues: bool,
    /// The stop word is not a known one; the content decided.
    #[serde(skip_serializing_if = "is_false")]
    pub unknown_stop: bool,
    /// The request and the response differ in whether the answer is a stream.
    #[serde(skip_serializing_if = "is_false")]
    pub other_media: bool,
    /// How many choices the answer held, when more than one; the first decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<u32>,
    /// What the server says of another try of the same request (`x-should-retry`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub should_retry: Option<bool>,
    /// What the headers say of the server's limits on rate; evidence, and in no decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<Box<RateLimit>>,
    /// The check that made it `off_target`, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Label>,
    /// The first check that could not be evaluated, by name: it decided nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchecked: Option<Label>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip_and_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for &v in Verdict::ALL {
            assert_eq!(v.as_str().parse(), Ok(v));
            assert_eq!(serde_json::to_string(&v).expect("json"), format!("\"{v}\""));
            assert!(seen.insert(v.as_str()));
        }
        assert_eq!(seen.len(), 19);
        assert!("OK".parse::<Verdict>().expect_err("one spelling").contains("off_target"));
    }

    /// Faults of availability never enter the quality mean, and content never enters the faults.
    #[test]
    fn no_verdict_is_in_two_series() {
        let of = |s| Verdict::ALL.iter().filter(move |v| v.series() == s).count();
        assert_eq!((of(Series::Quality), of(Series::Availability), of(Series::Neither)), (5, 7, 7));
        assert!(Verdict::ALL.iter().all(|v| !(v.is_content() && v.is_fault())));
    }
}
