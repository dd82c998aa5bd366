//! `policy`: the table by which attempts are repeated.

use crate::{
    failure::{Exit, Failure},
    out::Out,
};

pub(crate) fn policy(out: &mut Out) -> Result<Exit, Failure> {
    write!(out, "{}", attempt_ledger_core::render_table())?;
    Ok(Exit::Fine)
}
