//! For reqwest-middleware's client: the call above its retry, and the ledger beneath.

mod attempt;
mod body;
mod call;
mod error;
mod redirects;
mod rest;
mod retry;

pub use attempt::LedgerMiddleware;
pub use call::CallMiddleware;
pub use error::{Misplaced, NoCase};
pub use retry::RetryMiddleware;
