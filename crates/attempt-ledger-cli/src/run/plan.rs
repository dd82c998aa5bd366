//! What is planned, what of it this command runs, and in which order.

use std::collections::{HashMap, HashSet};

use attempt_ledger_core::{CaseId, Digest, RunId, Slot};

use super::cases::Case;
use crate::{args, failure::Failure};

/// One sample of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    pub(super) case: &'a Case,
    /// Which sample of the case it is, from 1.
    pub(super) epoch: u32,
}

impl Sample<'_> {
    pub(super) fn slot(&self, run: &RunId) -> Slot {
        Slot::new(run.clone(), self.case.id.clone()).epoch(self.epoch)
    }
}

/// Every epoch of these cases: all cases once before any of them a second time, so that a run that
/// is stopped has sampled all cases alike.
pub(super) fn samples(cases: Vec<&Case>, epochs: u32) -> impl Iterator<Item = Sample<'_>> {
    (1..=epochs)
        .flat_map(move |epoch| cases.clone().into_iter().map(move |case| Sample { case, epoch }))
}

/// The cases that are run now, in their order. The others stay planned.
pub(super) fn part<'a>(args: &args::Run, cases: &'a [Case]) -> Result<Vec<&'a Case>, Failure> {
    let mut chosen = named(args, cases)?;
    if let Some(seed) = args.seed {
        shuffle(&mut chosen, seed);
    }
    if let Some(limit) = args.limit {
        chosen.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    Ok(chosen)
}

/// The cases that --case names, or all.
fn named<'a>(args: &args::Run, cases: &'a [Case]) -> Result<Vec<&'a Case>, Failure> {
    if args.case.is_empty() {
        return Ok(cases.iter().collect());
    }
    let known: HashMap<&CaseId, &Case> = cases.iter().map(|case| (&case.id, case)).collect();
    let unknown: HashSet<&CaseId> = args.case.iter().filter(|id| !known.contains_key(id)).collect();
    if let Some(id) = args.case.iter().find(|id| unknown.contains(id)) {
        return Err(Failure::usage(format_args!(
            "{} has no case {id}, which --case names",
            args.cases.display()
        ))
        .hint("name a case by its \"id\" in the file"));
    }
    let wanted: HashSet<&CaseId> = args.case.iter().collect();
    Ok(cases.iter().filter(|case| wanted.contains(&case.id)).collect())
}

/// An order that only the seed and the ids decide: neither the order of the lines nor a case that is
/// added moves the others.
fn shuffle(cases: &mut [&Case], seed: u64) {
    cases.sort_by_cached_key(|case| Digest::of(format!("{seed} {}", case.id).as_bytes()).hex());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(id: &str) -> Case {
        Case {
            id: CaseId::new(id).expect("an id"),
            fixture: Digest::of(b""),
            expected: None,
            body: bytes::Bytes::new(),
            asks: Digest::of(b""),
        }
    }

    fn ids(cases: &[Case], seed: u64) -> Vec<String> {
        let mut all: Vec<&Case> = cases.iter().collect();
        shuffle(&mut all, seed);
        all.iter().map(|case| case.id.to_string()).collect()
    }

    #[test]
    fn a_seed_is_an_order_of_its_own_which_the_file_does_not_shape() {
        let mut cases: Vec<Case> = (0..50).map(|n| case(&format!("case-{n}"))).collect();
        let first = ids(&cases, 1);
        assert_ne!(first, ids(&cases, 2));
        assert_ne!(first, cases.iter().map(|case| case.id.to_string()).collect::<Vec<_>>());
        cases.reverse();
        assert_eq!(first, ids(&cases, 1));
        // A case that comes new stands somewhere between the others.
        cases.push(case("new"));
        let more: Vec<String> = ids(&cases, 1).into_iter().filter(|id| id != "new").collect();
        assert_eq!(first, more);
    }

    #[test]
    fn every_case_is_sampled_before_any_is_again() {
        let cases = [case("a"), case("b")];
        let all = samples(cases.iter().collect(), 2);
        let all: Vec<String> =
            all.map(|sample| format!("{}{}", sample.case.id, sample.epoch)).collect();
        assert_eq!(all, ["a1", "b1", "a2", "b2"]);
    }
}
