#![doc = include_str!("../docs/front.md")]

mod client;
mod convert;
#[cfg(feature = "middleware")]
mod middleware;
mod service;

pub use client::client_builder;
#[cfg(feature = "middleware")]
pub use middleware::{CallMiddleware, LedgerMiddleware, Misplaced, NoCase, RetryMiddleware};
pub use service::{ReqwestFuture, ReqwestService};

pub use attempt_ledger;
