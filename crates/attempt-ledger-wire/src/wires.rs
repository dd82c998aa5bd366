//! One file a wire: what its requests ask for and what its answers mean.

pub(crate) mod anthropic;
pub(crate) mod cohere;
pub(crate) mod converse;
pub(crate) mod gemini;
pub(crate) mod invoke;
pub(crate) mod llama;
pub(crate) mod ollama;
pub(crate) mod openai;
pub(crate) mod plain;
pub(crate) mod responses;
