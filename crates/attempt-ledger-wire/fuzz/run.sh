#!/usr/bin/env bash
# Runs every target, or those that are named, for so many seconds each, one after another:
#   crates/attempt-ledger-wire/fuzz/run.sh SECONDS [TARGET ...]
# Needs a nightly toolchain and `cargo install cargo-fuzz`. Prints a line a target; an input that
# fails a target is left in `artifacts/TARGET`, and the exit status is 1.
set -euo pipefail
cd "$(dirname "$0")"
seconds=$1
shift
cargo run --quiet --release --bin seeds
if [ $# -eq 0 ]; then
  set -- $(cargo +nightly fuzz list | grep -v '^seeds$')
fi
failed=0
for target in "$@"; do
  log=$(mktemp)
  # No sanitizer: there is no unsafe code to watch, and the time is better spent on inputs.
  if cargo +nightly fuzz run --sanitizer none "$target" -- -max_total_time="$seconds" \
      -dict=corpus/words.dict -max_len=16384 -timeout=20 -rss_limit_mb=1024 \
      -print_final_stats=1 >"$log" 2>&1; then
    verdict='no crash'
  else
    verdict=CRASH
    failed=1
    tail -n 30 "$log" >&2
  fi
  printf '%-20s %4s s  %12s executions  %s\n' "$target" "$seconds" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$verdict"
  rm -f "$log"
done
exit "$failed"
