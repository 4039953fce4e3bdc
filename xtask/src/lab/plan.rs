//! Selects which tests run on which kernels. Tests that are not named in this file run on every supported kernel.
use crate::lab::kernels::{BUILT, SYSTEMD, Series};
use crate::lab::results::Outcome;
use crate::lanes::{BUILT_KERNEL, LONG, SYSTEMD_HOST};

/// The oldest kernel that cgscope fully supports, see `Feature::LoopHelper`.
const OLDEST_SUPPORTED: Series = Series(5, 17);

/// Tests that run only on the host: a reason, and the prefixes of the full test names.
const HOST_ONLY: [(&str, &[&str]); 5] = [
    (
        "asserts times or shares of time, or compares readings of the same seconds, and emulation is too slow for that",
        &[
            "bad_input::a_target_that_exits",
            "coarse::five_thousand",
            "coarse::the_sums_equal_those_of_the_exact_mode",
            "cost::",
            "kill::a_kill_at_any_instant_loses",
            "kill::a_kill_with_bpf",
            "offcpu::beside_offcputime",
            "sample::a_sample_of_5000_threads",
            "screen_cost::",
            "serve::hostile::",
            "serve::intervals::",
            "serve::many::",
            "serve::scale::",
            "stat::objects_and_text_agree",
            "stat::side_by_side",
            "stat_classes::a_command_that_sleeps",
            // On other kernels, `offcpu::` checks the same.
            "stat_classes::a_pool_that_waits",
            "stat_classes::sleepers_that_exit",
            "stat_command_unseen::the_terminal",
            "stat_offcpu::the_stacks_of_a_command",
            "whatif::",
        ],
    ),
    (
        "asserts that the screen answers within seconds; the screen is the same on every kernel",
        &["overview::", "screen::", "views::"],
    ),
    ("runs fifty commands and screens, which depend on the kernel in other tests", &["documented::"]),
    (
        "needs a block device, which the machine lacks",
        &["offcpu::writes_to_a_disk", "sample::a_walk_of_proc", "sample::every_thread_of_a_blend"],
    ),
    (
        "needs large programs, such as Python, a browser or the Debian archive; the result is the same on every kernel",
        &[
            "export::",
            "field_case_2::",
            "fleet::",
            "metrics_page::",
            "packages::",
            "report::",
            "runtimes::",
            "serve::access::a_request",
            "serve::access::requests_for",
            "serve::prometheus::",
            "shared::a_task_is",
        ],
    ),
];

/// Tests that also run on unsupported kernels, which are older. On supported kernels, these tests run on the same kernels as
/// [`ENDS`].
const BELOW_AND_ENDS: [&str; 3] = ["coarse::", "coarse_fallback::", "sample::the_coarse_mode"];

/// Tests that hardly depend on the kernel. They run only on the oldest and the newest kernel; with `--all` they run on every
/// kernel.
const ENDS: [&str; 4] = ["serve::", "bad_input::", "record::", "bytes::"];

/// Tests that expect no wait with the cause `irq`.
const WITHOUT_IRQ_TIME: [&str; 2] =
    ["ledger::far::a_long_wait_after_a_wakeup", "ledger::moved::six_loops_in_three_cgroups"];

/// Returns the outcome of a test that is known before the run: `Unfinished` if the test has to run on this kernel.
///
/// `ends` is true if the kernel is the oldest or newest supported kernel of the run, or if the user requested every test.
pub(crate) fn outcome(test: &str, kernel: Series, ends: bool) -> Outcome {
    match (test.starts_with(SYSTEMD_HOST), kernel == SYSTEMD) {
        (true, true) => return Outcome::Unfinished,
        (true, false) => return Outcome::Elsewhere("needs systemd as the first process (`systemd`)"),
        (false, true) => return Outcome::Elsewhere("does not need systemd"),
        (false, false) => {}
    }
    if test.contains(LONG) {
        return Outcome::HostOnly("takes minutes");
    }
    if test.starts_with(BUILT_KERNEL) {
        let elsewhere = Outcome::Elsewhere("needs the kernel that the lab builds (`scx`)");
        return if kernel == BUILT { Outcome::Unfinished } else { elsewhere };
    }
    if kernel == BUILT && WITHOUT_IRQ_TIME.iter().any(|name| test.starts_with(name)) {
        return Outcome::Elsewhere("asserts shares, of which interrupts take a part on this kernel");
    }
    let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| test.starts_with(beginning));
    if let Some((reason, _)) = HOST_ONLY.iter().find(|(_, tests)| begins(tests)) {
        return Outcome::HostOnly(reason);
    }
    let runs_below = begins(&BELOW_AND_ENDS);
    if !is_supported(kernel) {
        return if runs_below {
            Outcome::Unfinished
        } else {
            Outcome::Elsewhere("the kernel is older than the supported ones")
        };
    }
    if (runs_below || begins(&ENDS)) && !ends {
        return Outcome::Elsewhere("runs on the oldest and the newest kernel; on all with --all");
    }
    Outcome::Unfinished
}

pub(crate) fn is_supported(kernel: Series) -> bool {
    kernel >= OLDEST_SUPPORTED
}

#[cfg(test)]
mod tests {
    use super::{Outcome, outcome};
    use crate::lab::kernels::{BUILT, SYSTEMD, Series};

    #[test]
    fn the_ledger_runs_on_every_supported_kernel() {
        for kernel in [Series(6, 1), Series(6, 12), Series(7, 2)] {
            assert_eq!(outcome("ledger::a", kernel, false), Outcome::Unfinished);
            assert_ne!(outcome("coarse::a", kernel, false), Outcome::Unfinished);
        }
        assert_ne!(outcome("ledger::a", Series(5, 10), true), Outcome::Unfinished);
        assert_eq!(outcome("coarse::a", Series(5, 10), false), Outcome::Unfinished);
    }

    #[test]
    fn tests_that_hardly_depend_on_the_kernel_run_on_the_oldest_and_the_newest() {
        assert_eq!(outcome("record::b", Series(6, 1), true), Outcome::Unfinished);
        assert_ne!(outcome("record::b", Series(6, 12), false), Outcome::Unfinished);
    }

    #[test]
    fn tests_of_the_built_kernel_run_only_there() {
        assert_eq!(outcome("built_kernel::a::b", BUILT, false), Outcome::Unfinished);
        assert!(matches!(outcome("built_kernel::a::b", Series(7, 2), true), Outcome::Elsewhere(_)));
        assert_eq!(outcome("ledger::a", BUILT, false), Outcome::Unfinished);
    }

    #[test]
    fn tests_of_systemd_run_only_there_and_no_others() {
        assert_eq!(outcome("systemd_host::a", SYSTEMD, false), Outcome::Unfinished);
        for (test, kernel) in
            [("systemd_host::a", Series(7, 2)), ("ledger::a", SYSTEMD), ("built_kernel::a", SYSTEMD)]
        {
            assert!(matches!(outcome(test, kernel, true), Outcome::Elsewhere(_)), "{test}");
        }
    }

    #[test]
    fn times_are_measured_only_on_the_host() {
        assert!(matches!(outcome("cost::a", Series(7, 2), true), Outcome::HostOnly(_)));
    }
}
