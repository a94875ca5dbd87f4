#!/usr/bin/env bash
# Tells the story of one agent, with real commands and their real output, in a store that is
# removed at the end. Fails if any step does something else than the text says.
#   usage: scripts/demo.sh [DORMOUSE]      the program [default: $DORMOUSE, or the one built here]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=${1:-${DORMOUSE:-${CARGO_TARGET_DIR:-$root/target}/debug/dormouse}}
guest=$root/target/guests/notes.wasm

fail() { echo "demo: $*" >&2; exit 1; }

[ -x "$program" ] || fail "$program is not there: \`make demo\` builds it first"
[ -f "$guest" ] || fail "$guest is not there: \`make demo\` builds it first"
program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export DORMOUSE_STORE=$scratch/store
# what the host lacks is no part of the story: a warning would stand in every command's output
export DORMOUSE_LOG=error
cd "$(dirname "$guest")"

bold= plain=
if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; fi
chapter() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; shift; printf '  %s\n' "$@"; echo; }

# `show ARGS...`: runs `dormouse ARGS...`, shows both, and leaves the output in $output and the
# exit status in $status.
show() {
  local words=() word
  for word in "$@"; do
    case $word in *[!A-Za-z0-9._/:@=-]*) words+=("\"$word\"") ;; *) words+=("$word") ;; esac
  done
  echo "    \$ dormouse ${words[*]}"
  status=0
  output=$("$program" "$@" 2>&1) || status=$?
  [ -z "$output" ] || sed 's/^/    /' <<<"$output"
}

# `expect TEXT`: the command ended well, and its output holds TEXT; `expect_only`: it is TEXT.
expect() {
  [ "$status" = 0 ] || fail "that command should have ended well, and its exit status is $status"
  case $output in *"$1"*) ;; *) fail "the output should have held: $1" ;; esac
}
expect_only() { expect "$1"; [ "$output" = "$1" ] || fail "the output should have been: $1"; }
refused() {
  [ "$status" != 0 ] || fail "that should have been refused"
  case $output in *"$1"*) ;; *) fail "the refusal should have said: $1" ;; esac
}
# `row NAME WORD...`: in the listing just shown, the line of NAME holds each WORD.
row() {
  local line name=$1 word
  line=$(grep -E "^$name " <<<"$output") || fail "the listing should have had a line for $name"
  shift
  for word in "$@"; do
    grep -qw -- "$word" <<<"$line" || fail "the line of $name should have said: $word"
  done
}

echo "Each command below is a process of its own, which ends before the next one starts."

chapter "1. An agent, and its first turns" \
  "scribe is an ordinary WebAssembly program. It keeps notes in a list in its memory, and it" \
  "counts along the Fibonacci numbers with an iterator. It has no code to save or load either."
show new scribe notes.wasm
expect "created scribe"
show send scribe "note tea is in the blue tin"
expect_only "kept note 1"
for number in 0 1 1 2; do
  show send scribe next
  expect_only "$number"
done

chapter "2. It sleeps" \
  "Memory, open files and folders are on disk together, as one generation. Nothing is running."
show pause scribe
expect "paused scribe as generation"
[[ $output =~ generation\ ([0-9]+) ]] || fail "the pause should have named its generation"
paused=${BASH_REMATCH[1]}
show ps
row scribe paused

chapter "3. It wakes in another process" \
  "The memory comes back as it was: the list is there, and the iterator goes on after 0 1 1 2."
show resume scribe
expect "resumed scribe at generation $paused"
show send scribe list
expect_only "1. tea is in the blue tin"
show send scribe next
expect_only "3"

chapter "4. Three forks go different ways" \
  "Each begins with all that scribe has in memory and on disk, and then lives on its own."
show fork scribe --count 3
for fork in 1 2 3; do expect "forked scribe into scribe-fork-$fork"; done
show send scribe-fork-1 "note buy green tea"
expect_only "kept note 2"
show send scribe-fork-2 "note buy coffee instead"
expect_only "kept note 2"
show send scribe-fork-1 list
expect_only $'1. tea is in the blue tin\n2. buy green tea'
show send scribe-fork-2 list
expect_only $'1. tea is in the blue tin\n2. buy coffee instead'
show send scribe-fork-3 list
expect_only "1. tea is in the blue tin"
show send scribe list
expect_only "1. tea is in the blue tin"

chapter "5. A mistake, and the way back" \
  "scribe notes something wrong, and is taken back to the generation of its sleep: the memory" \
  "forgets, and the iterator is where it was. What happened is still written in the journal."
show send scribe "note the tin is empty"
expect_only "kept note 2"
show rewind scribe "$paused"
expect "rewound scribe to generation $paused"
show send scribe list
expect_only "1. tea is in the blue tin"
show send scribe next
expect_only "3"
show zone cat scribe:/memory/episodic/journal.log
expect_only $'note 1: tea is in the blue tin\nnote 2: the tin is empty'

chapter "6. What happened cannot be changed" \
  "The journal lies in episodic memory, which takes new lines at the end and nothing else. The" \
  "disk enforces that: here against the agent itself, and then against whoever operates it."
show send scribe "write /memory/episodic/journal.log nothing happened"
refused "not permitted"
show zone rm scribe:/memory/episodic/journal.log
refused "episodic memory is append-only"
show zone cat scribe:/memory/episodic/journal.log
expect_only $'note 1: tea is in the blue tin\nnote 2: the tin is empty'

chapter "7. What is there now" \
  "Four agents, the three forks with scribe as their parent; and the generations of scribe, each" \
  "of which it can be taken back to, or forked from. The star marks where it stands."
show ps
row scribe asleep
row scribe-fork-1 asleep scribe
row scribe-fork-2 asleep scribe
row scribe-fork-3 asleep scribe
show generations scribe
expect "rewound to $paused"

printf '\nThe store was temporary and is gone now. README.md has a tour to try this yourself.\n'
