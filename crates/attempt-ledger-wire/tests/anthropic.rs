//! Anthropic's Messages beyond the recorded responses: what relays and compatible servers send,
//! what the model's newer blocks look like, and what its requests ask for.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]

mod requests {
    use attempt_ledger_core::Effect;
    use attempt_ledger_wire::{RequestFacts, Wire, read_request};
    use http::Method;

    fn read(path: &str, body: &str) -> RequestFacts {
        read_request(Wire::AnthropicMessages, &Method::POST, path, Some(body.as_bytes()))
    }

    fn messages(body: &str) -> RequestFacts {
        read("/v1/messages", body)
    }

    #[test]
    fn a_request_is_read() {
        let facts = messages(
            r#"{"model":"m","stream":true,"max_tokens":5,"temperature":1,"metadata":{"user_id":"u"},
               "system":[{"type":"text","text":"h\u00e9y","cache_control":{"type":"ephemeral"}}],
               "tools":[{"name":"f","input_schema":{}},{"type":"custom","name":"g"},
                        {"type":null,"name":"h"}],
               "thinking":{"type":"enabled","budget_tokens":1024},
               "mcp_servers":[ ],"container":null,
               "messages":[{"role":"user","content":"ab"},
               {"role":"assistant","content":[{"type":"thinking","thinking":"unread","text":"no"},
                 {"type":"tool_use","id":"t","name":"f","input":{"text":"unread"}}]},
               {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"cd"},
                 {"type":"tool_result","tool_use_id":"t",
                  "content":[{"type":"text","text":"ef"},{"type":"image","source":{}}]},
                 {"type":"text","text":"g"}]}]}"#,
        );
        let want = RequestFacts {
            model: Some("m".into()),
            stream: Some(true),
            tools: 3,
            cap: Some(5),
            prompt_chars: 3 + 2 + 2 + 2 + 1,
            understood: true,
            effect: Effect::ReadOnly,
        };
        assert_eq!(facts, want);
        assert_eq!(messages(r#"{"system":"four"}"#).prompt_chars, 4);
        assert_eq!(messages("{}").stream, Some(false));
    }

    /// What the server runs, or may run, is done twice when it is asked twice.
    #[test]
    fn all_that_may_act_writes() {
        for body in [
            r#"{"tools":[{"type":"web_search_20250305","name":"web_search"}]}"#,
            r#"{"tools":[{"name":"f"},{"type":"mcp_toolset","mcp_server_name":"x"}]}"#,
            r#"{"mcp_servers":[{"type":"url","url":"https://x.test","name":"x"}]}"#,
            r#"{"container":"container_1"}"#,
            r#"{"container":{"skills":[{"type":"anthropic"}]}}"#,
        ] {
            let facts = messages(body);
            assert_eq!((facts.understood, facts.effect), (true, Effect::Writes), "{body}");
        }
        for body in [r#"{"container":""}"#, r#"{"container":{ },"mcp_servers":null,"tools":[]}"#] {
            assert_eq!(messages(body).effect, Effect::ReadOnly, "{body}");
        }
        for body in [
            r#"{"model":"m","model":"n"}"#,
            r#"{"tools":[],"tools":[{"type":"bash_20250124"}]}"#,
            r#"{"tools":[{"type":"custom","type":"web_search_20250305"}]}"#,
            r#"{"mcp_servers":[],"mcp_servers":[{"url":"x"}]}"#,
            r#"{"tools":{"name":"f"}}"#,
            r#"{"stream":"yes"}"#,
            r#"{"model":"m""#,
            "[1]",
            "",
        ] {
            assert_eq!(messages(body), RequestFacts::default(), "{body}");
            assert_eq!(messages(body).effect, Effect::Writes, "{body}");
        }
    }

    #[test]
    fn at_vertex_and_bedrock_the_path_says_model_and_stream() {
        let vertex = "/v1/projects/p/locations/l/publishers/anthropic/models/";
        let body = r#"{"anthropic_version":"vertex-2023-10-16","messages":[]}"#;
        for (path, model, stream) in [
            (format!("{vertex}c-4%40v1:rawPredict"), "c-4@v1", false),
            (format!("{vertex}c-4@v1:streamRawPredict?alt=sse"), "c-4@v1", true),
            ("/model/us.anthropic.c-v1%3A0/invoke".to_owned(), "us.anthropic.c-v1:0", false),
            (
                "/model/arn%3Aaws%3Ab%3Ar%3A1%3Ainference-profile%2Fus.anthropic.c\
                 /invoke-with-response-stream"
                    .to_owned(),
                "arn:aws:b:r:1:inference-profile/us.anthropic.c",
                true,
            ),
        ] {
            let facts = read(&path, body);
            assert_eq!(Wire::detect(&path), Wire::AnthropicMessages, "{path}");
            assert_eq!(
                (facts.model.as_deref(), facts.stream),
                (Some(model), Some(stream)),
                "{path}"
            );
            assert_eq!((facts.understood, facts.effect), (true, Effect::ReadOnly));
        }
    }
}
