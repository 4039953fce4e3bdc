//! The length of a union of time spans that end in order.

use crate::verifier::{get, set};

/// Spans that a union keeps apart; older ones are merged.
pub const SPANS: usize = 4;

/// A span of time, of which `len_ns` belong to the union. The rest are gaps, whose places are not known.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// ns of `rq->clock`.
    pub start_ns: u64,
    /// ns of `rq->clock`.
    pub end_ns: u64,
    /// 0: no span.
    pub len_ns: u64,
}

/// The union of spans so far: its length, and its latest spans. New spans end no earlier than those before, except after a switch that
/// the hook did not see.
///
/// State is read and written as volatile, for the verifier's sake: see [`look_back`](crate::look_back).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Union {
    /// Length of the union, ns.
    pub total_ns: u64,
    /// By how much `total_ns` may be off at most, ns: spans began within a merged span, whose gaps have no known place.
    pub uncertain_ns: u64,
    /// The latest spans, from the newest to the oldest, apart from each other. The oldest one may be several merged spans.
    pub spans: [Span; SPANS],
}

impl Union {
    /// Adds a span. `quiet_ns`: neither this span nor a later one begins before this time.
    #[inline(always)]
    pub fn add(&mut self, start_ns: u64, end_ns: u64, len_ns: u64, quiet_ns: u64) {
        let mut new = Span { start_ns, end_ns, len_ns };
        if get(&mut self.spans[0].end_ns) <= quiet_ns {
            self.spans.iter_mut().for_each(|span| set(&mut span.len_ns, 0));
        }
        let mut known_ns = 0;
        for _ in 0..SPANS {
            let Some(old) = self.overlapped(new.start_ns) else { break };
            known_ns += old.len_ns;
            new = self.joined(old, new);
            self.drop_newest();
        }
        self.push(new);
        self.total_ns = get(&mut self.total_ns) + new.len_ns - known_ns;
    }

    /// The newest span, if it reaches to `start_ns`.
    #[inline(always)]
    fn overlapped(&mut self, start_ns: u64) -> Option<Span> {
        let old = read(&mut self.spans[0]);
        (old.len_ns != 0 && old.end_ns >= start_ns).then_some(old)
    }

    /// Joins two spans that overlap or touch. Where gaps of one may be covered by the other, takes the mean of the most and the least.
    #[inline(always)]
    fn joined(&mut self, old: Span, new: Span) -> Span {
        let (start_ns, from_ns) = sorted(old.start_ns, new.start_ns);
        let (to_ns, end_ns) = sorted(old.end_ns, new.end_ns);
        let shared_ns = to_ns.saturating_sub(from_ns);
        let (least_of_old, most_of_old) = old.part(shared_ns);
        let (least_of_new, most_of_new) = new.part(shared_ns);
        let least_ns = (least_of_old + least_of_new).saturating_sub(shared_ns);
        let (most_ns, _) = sorted(most_of_old, most_of_new);
        let overlap_ns = least_ns.midpoint(most_ns);
        self.uncertain_ns = get(&mut self.uncertain_ns) + most_ns - overlap_ns;
        Span { start_ns, end_ns, len_ns: old.len_ns + new.len_ns - overlap_ns }
    }

    #[inline(always)]
    fn drop_newest(&mut self) {
        for at in 1..SPANS {
            let span = read(&mut self.spans[at]);
            write(&mut self.spans[at - 1], span);
        }
        set(&mut self.spans[SPANS - 1].len_ns, 0);
    }

    /// Makes `new` the newest span. If there is no place left, merges the two oldest.
    #[inline(always)]
    fn push(&mut self, new: Span) {
        let last = SPANS - 1;
        let (mut before, oldest) = (read(&mut self.spans[last - 1]), read(&mut self.spans[last]));
        if oldest.len_ns != 0 {
            before = Span { start_ns: oldest.start_ns, len_ns: before.len_ns + oldest.len_ns, ..before };
        }
        write(&mut self.spans[last], before);
        for at in (1..last).rev() {
            let span = read(&mut self.spans[at - 1]);
            write(&mut self.spans[at], span);
        }
        write(&mut self.spans[0], new);
    }
}

impl Span {
    /// How much of the union lies in a part of the span that is `shared_ns` long, at least and at most.
    #[inline(always)]
    fn part(&self, shared_ns: u64) -> (u64, u64) {
        // A reader without the lock may see the end of one span with the start of another.
        let gaps_ns = self.end_ns.wrapping_sub(self.start_ns).saturating_sub(self.len_ns);
        let (most_ns, _) = sorted(self.len_ns, shared_ns);
        (shared_ns.saturating_sub(gaps_ns), most_ns)
    }
}

/// The lesser and the greater of two numbers.
#[inline(always)]
fn sorted(a: u64, b: u64) -> (u64, u64) {
    if a < b { (a, b) } else { (b, a) }
}

#[inline(always)]
fn read(span: &mut Span) -> Span {
    Span { start_ns: get(&mut span.start_ns), end_ns: get(&mut span.end_ns), len_ns: get(&mut span.len_ns) }
}

#[inline(always)]
fn write(span: &mut Span, new: Span) {
    set(&mut span.start_ns, new.start_ns);
    set(&mut span.end_ns, new.end_ns);
    set(&mut span.len_ns, new.len_ns);
}
