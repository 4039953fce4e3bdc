//! The texts about time in which a task could run and no other task kept it from its CPU.

use super::{Rule, Short, about, finding, rate};
use crate::{
    findings::{Context, Finding},
    units::duration,
    words::percent,
};

pub(crate) fn real_time_limit(context: &Context, node: usize, ns: u64) -> Finding {
    let path = context.path(node);
    let own = &context.tree.nodes()[node].own;
    let says = format!(
        "its real-time or deadline tasks waited {} ({} of the waiting of its tasks) because they had used up their runtime",
        duration(ns),
        percent(ns, own.waited_ns),
    );
    let short = Short::new(
        "has tasks out of real-time or deadline runtime",
        rate(ns, context.interval.duration_ns),
        "raise their runtime, or let them sleep",
    );
    let advice = "raise the runtime (real-time tasks: cpu.rt_runtime_us, or the sysctl kernel.sched_rt_runtime_us; deadline \
                  tasks: chrt --deadline --sched-runtime), or find out why these tasks run for so long";
    about(path, finding(Rule::RealTimeLimit, ns, short, says, advice))
}

pub(crate) fn interrupts(context: &Context, ns: u64, waited_ns: u64) -> Finding {
    let says = format!(
        "tasks waited {} ({} of all waiting) while interrupts had their CPUs",
        duration(ns),
        percent(ns, waited_ns)
    );
    let short = Short::new(
        "tasks wait behind interrupts",
        format!("{}, {} of all waiting", rate(ns, context.interval.duration_ns), percent(ns, waited_ns)),
        "spread the interrupts over more CPUs (/proc/interrupts)",
    );
    let advice = "find the interrupts in /proc/interrupts and /proc/softirqs, and spread them over more CPUs (irqbalance, \
                  /proc/irq/N/smp_affinity), or pin the tasks to other CPUs";
    finding(Rule::Interrupts, ns, short, says, advice)
}

pub(crate) fn stolen_time(context: &Context, ns: u64, waited_ns: u64) -> Finding {
    let says = format!(
        "tasks waited {} ({} of all waiting) while the hypervisor had their CPUs for something else",
        duration(ns),
        percent(ns, waited_ns)
    );
    let short = Short::new(
        "the hypervisor takes CPU time from this machine",
        format!("{}, {} of all waiting", rate(ns, context.interval.duration_ns), percent(ns, waited_ns)),
        "move this virtual machine to a less busy host",
    );
    let advice = "move this virtual machine to a less busy host, or to an offer with CPUs of its own; limits and weights within \
                  this machine do not help";
    finding(Rule::StolenTime, ns, short, says, advice)
}
