use attempt_ledger_core::Stop;

/// What a stop word means; `None` for a word that is not known.
///
/// One table for all wires, since no word means two things on two of them. An unknown word is kept
/// as it came and the content is judged: it is never mapped to a known one.
pub(crate) fn meaning(word: &str) -> Option<Stop> {
    Some(match word {
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "STOP" | "COMPLETE"
        | "STOP_SEQUENCE" | "completed" | "tool_calls" | "function_call" | "tool_use"
        | "TOOL_CALL" | "FINISH" | "FINISHED" | "STOP_CRITERIA_MET" | "endoftext"
        | "pause_turn" | "compaction" | "load" | "unload" | "word" | "stopped_eos"
        | "stopped_word" | "NO_IMAGE" => Stop::Plain,
        "length"
        | "max_tokens"
        | "MAX_TOKENS"
        | "model_length"
        | "limit"
        | "stopped_limit"
        | "max_output_tokens"
        | "model_context_window_exceeded"
        | "CONTINUATION"
        | "LENGTH"
        | "ERROR_LIMIT"
        | "max_messages" => Stop::Cap,
        "content_filter"
        | "sensitive"
        | "refusal"
        | "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR"
        | "ESCALATION"
        | "JAILBREAK"
        | "PUP_LIMITED_DISABLED"
        | "guardrail_intervened"
        | "content_filtered"
        | "CONTENT_FILTERED"
        | "ERROR_TOXIC" => Stop::Policy,
        "error"
        | "abort"
        | "network_error"
        | "insufficient_system_resource"
        | "ERROR"
        | "TIMEOUT"
        | "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "MALFORMED_RESPONSE"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE"
        | "OTHER"
        | "IMAGE_OTHER"
        | "FINISH_REASON_UNSPECIFIED"
        | "USER_CANCEL"
        | "malformed_model_output"
        | "malformed_tool_use"
        | "failed"
        | "cancelled" => Stop::Failure,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_matched_whole_and_with_their_case() {
        assert_eq!(meaning("stop"), Some(Stop::Plain));
        assert_eq!(meaning("length"), Some(Stop::Cap));
        assert_eq!(meaning("content_filter"), Some(Stop::Policy));
        assert_eq!(meaning("insufficient_system_resource"), Some(Stop::Failure));
        for unknown in ["", "Stop", "stopped", "stop ", "repetition"] {
            assert_eq!(meaning(unknown), None, "{unknown:?}");
        }
    }
}
