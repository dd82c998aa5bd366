use crate::Label;

/// What the model said: handed to graders by value, stored nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The answer text, untrimmed; empty when there was none.
    pub text: String,
    /// Tool calls in order.
    pub tool_calls: Vec<ToolCall>,
    /// The refusal's text, where the wire has a field for it.
    pub refusal: Option<String>,
    /// The provider's stop word.
    pub finish_reason: Option<Label>,
}

/// One tool call of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// The function's name.
    pub name: String,
    /// Its arguments as the model wrote them: JSON text, usually.
    pub arguments: String,
}
