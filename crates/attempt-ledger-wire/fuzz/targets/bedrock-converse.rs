#![cfg_attr(fuzzing, no_main)]

attempt_ledger_wire_fuzz::target!(|input| attempt_ledger_wire_fuzz::response(
    "bedrock-converse",
    input
));
