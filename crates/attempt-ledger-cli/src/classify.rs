//! `classify`: the verdict of recorded responses.

use crate::{
    args,
    failure::{Exit, Failure},
    out::Out,
};

pub(crate) fn classify(_args: &args::Classify, _out: &mut Out) -> Result<Exit, Failure> {
    Err(Failure::usage("not there yet"))
}
