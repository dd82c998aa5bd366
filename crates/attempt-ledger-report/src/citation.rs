use std::{collections::HashMap, error::Error, fmt};

use attempt_ledger_core::{
    AttemptId, AttemptRow, Escaped, Folded, GraderAttempts, Role, RunId, Slot, Verdict,
};

/// A grade that cites an attempt which cannot be what it rests on: nothing is published of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadCitation {
    /// The slot of the graded attempt.
    pub slot: Slot,
    /// The graded attempt.
    pub attempt: AttemptId,
    /// The grader's name.
    pub grader: String,
    /// The attempt that is cited.
    pub cited: AttemptId,
    /// What is wrong with it.
    pub fault: CitationFault,
}

/// Why an attempt cannot be what a grade rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CitationFault {
    /// The ledger does not have it.
    Missing,
    /// Its role is not `grader`.
    NoGrader,
    /// It is of another run.
    OtherRun,
}

impl fmt::Display for BadCitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.fault {
            CitationFault::Missing => "which is not in this ledger",
            CitationFault::NoGrader => "which is no grader's",
            CitationFault::OtherRun => "which is of another run",
        };
        let BadCitation { slot, attempt, grader, cited, .. } = self;
        write!(
            f,
            "the grade that {} gave attempt {attempt} of case {} rests on attempt {cited}, {why}",
            Escaped(grader),
            Escaped(&slot.to_string())
        )
    }
}

impl Error for BadCitation {}

/// Follows every citation of the grades of `run`'s subject; how many of the cited attempts have no end.
pub(crate) fn citations(folded: &Folded, run: &RunId) -> Result<u64, Box<BadCitation>> {
    let subject = |row: &&AttemptRow| row.role == Role::Subject && row.run.as_ref() == Some(run);
    let mut by_id: Option<HashMap<AttemptId, &AttemptRow>> = None;
    let mut endless = 0;
    for row in folded.rows.iter().filter(subject) {
        let grade = row.grade.iter().map(|grade| (&grade.grader, &grade.grader_attempts));
        let others = row.other_grades.iter().map(|other| (&other.grader, &other.grader_attempts));
        for (grader, attempts) in grade.chain(others) {
            let GraderAttempts::Cited(cited) = attempts else { continue };
            // Most ledgers cite nothing, and need no index.
            let rows = by_id
                .get_or_insert_with(|| folded.rows.iter().map(|row| (row.attempt, row)).collect());
            for &cited in cited {
                let fault = match rows.get(&cited) {
                    None => Some(CitationFault::Missing),
                    Some(found) if found.role != Role::Grader => Some(CitationFault::NoGrader),
                    Some(found) if found.run != row.run => Some(CitationFault::OtherRun),
                    Some(found) => {
                        let ended = found.verdict.is_some_and(|verdict| verdict != Verdict::Lost);
                        endless += u64::from(!ended);
                        None
                    }
                };
                if let (Some(fault), Some(slot)) = (fault, row.slot()) {
                    let (attempt, grader) = (row.attempt, grader.clone());
                    return Err(Box::new(BadCitation { slot, attempt, grader, cited, fault }));
                }
            }
        }
    }
    Ok(endless)
}
