use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use attempt_ledger_core::{
    Digest, Grade, GradeRefused, GraderInfo, Ordinal, RefusedWhy, SessionId, answer_sha256,
};
use attempt_ledger_store::{Ledger, StoreError};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{GradeInput, Graded, Grader, GradingScope};
use crate::{BoxError, config::deadline};

/// How a grader judged an answer.
pub(super) enum Judged {
    /// A grade within its range.
    Grade(Grade),
    /// A grade that nobody may accept.
    Refused(GradeRefused),
    /// None.
    Failed(BoxError),
    /// None within its limit.
    TimedOut,
}

/// Asks the grader, for as long as it may take, and binds what it says to the answer it was given, and
/// to the calls it made through the ledger of that session.
pub(super) async fn judge<G: Grader>(
    grader: &G,
    info: GraderInfo,
    limit: Duration,
    input: GradeInput,
    answer: Digest,
    session: SessionId,
) -> Judged {
    let attempt = input.attempt;
    let scope = GradingScope::new(input.slot.clone(), session);
    let input = input.within(scope.clone());
    let at = deadline(Instant::now(), limit);
    let graded = timeout_at(at, scope.clone().run(grader.grade(input))).await;
    // A grader that blocks its thread is ready before the timer is looked at.
    let Graded { score, attempts } = match graded {
        Ok(Ok(graded)) if Instant::now() <= at => graded,
        Ok(Err(error)) => return Judged::Failed(error),
        _ => return Judged::TimedOut,
    };
    let why = if !score.is_finite() {
        Some(RefusedWhy::NotFinite)
    } else if score < info.low || score > info.high {
        Some(RefusedWhy::OutOfRange)
    } else {
        None
    };
    if let Some(why) = why {
        let score = score.is_finite().then_some(score);
        return Judged::Refused(GradeRefused { attempt, why, score, grader: info.name });
    }
    Judged::Grade(Grade {
        attempt,
        score,
        grader: info.name,
        grader_version: info.version,
        answer_sha256: answer,
        grader_attempts: scope.rests_on(attempts),
    })
}

/// Grades an answer that was kept, after its run: ordinal one's grade becomes its score, a later
/// one's a diagnostic. The grade is bound to the very content that the grader was given, so that the
/// ledger refuses it where the attempt's answer was another; it refuses a second score as well.
///
/// The grader runs in a task of its own for at most `limit`, which ends when this future is dropped,
/// and each row is awaited for `ack_limit`.
///
/// # Errors
/// [`LateGradeError`]: the attempt stays without this grade.
pub async fn grade_late<G: Grader>(
    ledger: &Ledger,
    grader: Arc<G>,
    input: GradeInput,
    limit: Duration,
    ack_limit: Duration,
) -> Result<f64, LateGradeError> {
    let answer = answer_sha256(&input.content);
    let first = input.ordinal.is_none_or(Ordinal::is_first);
    let (info, session) = (grader.info(), ledger.session());
    // A panic is the grader's, as when it grades while the run goes on.
    let mut task = JoinSet::new();
    task.spawn(async move { judge(&*grader, info, limit, input, answer, session).await });
    let ack = |ack| async move {
        let timed_out = StoreError::TimedOut { limit: ack_limit };
        timeout(ack_limit, ack).await.unwrap_or(Err(timed_out))
    };
    // Only an empty set has no next.
    let Some(judged) = task.join_next().await else {
        return Err(LateGradeError::TimedOut { limit });
    };
    match judged {
        Err(error) => Err(LateGradeError::Grader(error.into())),
        Ok(Judged::Failed(error)) => Err(LateGradeError::Grader(error)),
        Ok(Judged::TimedOut) => Err(LateGradeError::TimedOut { limit }),
        Ok(Judged::Refused(refused)) => {
            let why = refused.why;
            ack(ledger.refuse_grade(refused)).await.map_err(LateGradeError::Ledger)?;
            Err(LateGradeError::Refused(why))
        }
        Ok(Judged::Grade(grade)) => {
            let score = grade.score;
            let accepted = if first { ledger.score(grade) } else { ledger.diagnostic(grade) };
            match ack(accepted).await {
                Ok(()) => Ok(score),
                Err(StoreError::Refused(why)) => Err(LateGradeError::Refused(why)),
                Err(error) => Err(LateGradeError::Ledger(error)),
            }
        }
    }
}

/// Why [`grade_late`] gave no grade.
#[derive(Debug)]
#[non_exhaustive]
pub enum LateGradeError {
    /// The grader failed or panicked.
    Grader(BoxError),
    /// The grader took longer than it may.
    TimedOut {
        /// How long it may take.
        limit: Duration,
    },
    /// The grade was not accepted, which the ledger recorded.
    Refused(RefusedWhy),
    /// The ledger did not record it.
    Ledger(StoreError),
}

impl fmt::Display for LateGradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LateGradeError::Grader(_) => f.write_str("the grader failed"),
            LateGradeError::TimedOut { limit } => {
                write!(f, "the grader gave no grade within {limit:?}")
            }
            LateGradeError::Refused(why) => {
                write!(f, "the grade was refused ({}) and that was recorded", why.as_str())
            }
            LateGradeError::Ledger(_) => f.write_str("the ledger did not record the grade"),
        }
    }
}

impl StdError for LateGradeError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            LateGradeError::Grader(error) => Some(&**error),
            LateGradeError::Ledger(error) => Some(error),
            LateGradeError::TimedOut { .. } | LateGradeError::Refused(_) => None,
        }
    }
}
