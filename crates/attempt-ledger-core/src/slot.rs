use std::{fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

use crate::{CaseId, RunId};

/// Whose attempts a slot counts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// The model under test.
    #[default]
    Subject,
    /// A model called by a grader; never part of the subject's series.
    Grader,
}

impl Role {
    /// The word in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Subject => "subject",
            Role::Grader => "grader",
        }
    }
}

/// What ordinals count within.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// The run: the unit of freshness.
    pub run: RunId,
    /// The case that is measured.
    pub case: CaseId,
    /// Which sample of the case, from 1.
    pub epoch: u32,
    /// Which model call within the case, from 1.
    pub step: u32,
    /// Whose attempts are counted.
    pub role: Role,
}

impl Slot {
    /// The subject's first epoch and step of a case.
    pub fn new(run: RunId, case: CaseId) -> Self {
        Slot { run, case, epoch: 1, step: 1, role: Role::Subject }
    }

    /// The same slot at another epoch.
    #[must_use]
    pub fn epoch(self, epoch: u32) -> Self {
        Slot { epoch, ..self }
    }

    /// The same slot at another step.
    #[must_use]
    pub fn step(self, step: u32) -> Self {
        Slot { step, ..self }
    }

    /// The same slot for another role.
    #[must_use]
    pub fn role(self, role: Role) -> Self {
        Slot { role, ..self }
    }
}

impl fmt::Display for Slot {
    /// `case` alone where nothing else is out of the ordinary, else with what is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.case)?;
        if self.epoch != 1 {
            write!(f, " epoch {}", self.epoch)?;
        }
        if self.step != 1 {
            write!(f, " step {}", self.step)?;
        }
        if self.role != Role::Subject {
            write!(f, " ({})", self.role.as_str())?;
        }
        Ok(())
    }
}

/// The number of an attempt within its slot: 1, 2, 3, ... Never reused, never reset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ordinal(NonZeroU32);

impl Ordinal {
    /// The first attempt's: the only one whose grade is ever published.
    pub const FIRST: Ordinal = Ordinal(NonZeroU32::MIN);

    /// The ordinal with this number; `None` for 0.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Ordinal)
    }

    /// Its number, 1 or more.
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// Whether this is the first attempt's.
    pub fn is_first(self) -> bool {
        self == Self::FIRST
    }

    /// The next one; `None` after 2^32 - 1.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Ordinal)
    }
}

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why an attempt was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The first attempt of its call, in a slot that had none.
    Initial,
    /// A later attempt of its call, made when none other was open.
    Retry,
    /// A later attempt of its call, made while another was still open.
    Hedge,
    /// The first attempt of a later call of the slot.
    Recall,
    /// No call was above it to say.
    #[default]
    Unknown,
}

impl Cause {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Initial => "initial",
            Cause::Retry => "retry",
            Cause::Hedge => "hedge",
            Cause::Recall => "recall",
            Cause::Unknown => "unknown",
        }
    }
}
