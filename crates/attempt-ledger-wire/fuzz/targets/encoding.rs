#![cfg_attr(fuzzing, no_main)]

attempt_ledger_wire_fuzz::target!(attempt_ledger_wire_fuzz::encoding);
