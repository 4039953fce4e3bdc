//! Folded stacks, the input of flamegraph.pl and inferno: `comm;[kind, state];outermost;...;innermost ns`.

use std::collections::BTreeMap;

use cgscope_collect::KernelSymbols;
use cgscope_model::{BlockedKind, BlockedState};

use super::stacks::{BlockedAt, Stacks};

const NO_STACK: &str = "[no stack]";
const NO_NAME: &str = "[unknown]";

/// A line for each stack, sorted. Stacks with the same names share a line.
pub fn lines(stacks: &Stacks, symbols: &KernelSymbols) -> Vec<String> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (place, time) in stacks.places() {
        *lines.entry(line(&place, symbols)).or_default() += time.ns;
    }
    lines.into_iter().map(|(stack, ns)| format!("{stack} {ns}")).collect()
}

fn line(place: &BlockedAt, symbols: &KernelSymbols) -> String {
    let mut names: Vec<&str> = functions(place, symbols).collect();
    names.reverse();
    if names.is_empty() {
        names.push(NO_STACK);
    }
    // A semicolon would end the name.
    let comm = place.comm.replace(';', ":");
    format!("{comm};{};{}", blocked(kind(place, symbols), place.state), names.join(";"))
}

/// The function names of a stack, the innermost first.
pub fn functions<'a>(place: &'a BlockedAt, symbols: &'a KernelSymbols) -> impl Iterator<Item = &'a str> {
    place.stack.iter().map(|addr| symbols.caller(*addr).unwrap_or(NO_NAME))
}

/// What kind of thing the tasks are blocked on.
pub fn kind(place: &BlockedAt, symbols: &KernelSymbols) -> BlockedKind {
    BlockedKind::of(place.state, place.stack.iter().map(|addr| symbols.caller(*addr)))
}

fn blocked(kind: BlockedKind, state: BlockedState) -> String {
    format!("[{}, {}]", kind.name(), state.name())
}

/// Whether [`lines`] may have written this line.
pub fn is_ours(line: &str) -> bool {
    let all =
        || BlockedKind::ALL.into_iter().flat_map(|kind| BlockedState::ALL.map(|state| blocked(kind, state)));
    let has_ns = line.rsplit_once(' ').is_some_and(|(_, ns)| ns.parse::<u64>().is_ok());
    has_ns && line.split(';').nth(1).is_some_and(|frame| all().any(|ours| ours == frame))
}
