//! The arguments of `cargo xtask lab`.
use crate::lab::kernels::{self, Series};
use crate::lab::vm::Cpus;
use crate::lanes::{BUILT_KERNEL, SYSTEMD_HOST};
use crate::steps::Failure;

/// A short selection of tests: sums, migrations, every cause, and readings that several viewers share.
const PART: [&str; 3] = ["truth::sums_are_equal_for_two_busy", "ledger::all_causes", "shared::"];

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(super) kernels: Vec<Series>,
    /// Whether the user named the kernels. Then each of these kernels must exist.
    pub(super) named: bool,
    pub(super) shell: bool,
    pub(super) list: bool,
    pub(super) all: bool,
    pub(super) cpus: Cpus,
    /// A shell script that runs instead of the tests.
    pub(super) script: Option<String>,
    pub(super) filters: Vec<String>,
}

impl Request {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut request = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let usage = |words: &str| Failure::Usage(format!("`{word}` {words}"));
            match word.as_str() {
                "--shell" => request.shell = true,
                "--list" => request.list = true,
                "--all" => request.all = true,
                "--cpus" => {
                    let cpus = words.next().and_then(|text| Cpus::parse(text));
                    request.cpus = cpus.ok_or_else(|| {
                        usage("needs a number from 2 to 255, or `ONLINE/POSSIBLE`: `--cpus 4/255`")
                    })?;
                }
                "--script" => {
                    let file = words.next().cloned();
                    request.script = Some(file.ok_or_else(|| usage("needs a file: `lab --script FILE`"))?);
                }
                "--" => break,
                kernel => {
                    let series = Series::parse(kernel).ok_or_else(|| {
                        usage("is not an option of `lab` or a kernel series such as `6.12`")
                    })?;
                    request.kernels.push(series);
                }
            }
        }
        request.filters = words.cloned().collect();
        request.named = !request.kernels.is_empty();
        if !request.named {
            request.kernels = kernels::DEFAULT.to_vec();
            if request.shell {
                return Err(Failure::Usage(
                    "`lab --shell` needs a kernel: `cargo xtask lab --shell 6.12`".into(),
                ));
            }
        }
        request.kernels.sort_unstable();
        request.kernels.dedup();
        Ok(request)
    }

    /// Returns a request for the oldest and the newest kernel. Its tests show the differences between these kernels. If
    /// `is_long`, adds the kernel that the lab builds and the machine with systemd. Otherwise keeps only those tests that
    /// together take a minute or two.
    pub(crate) fn for_checks(is_long: bool) -> Self {
        let mut kernels = vec![kernels::OLDEST, kernels::NEWEST];
        let mut filters = PART.to_vec();
        if is_long {
            kernels.extend([kernels::BUILT, kernels::SYSTEMD]);
            filters = vec!["truth::", "ledger::", "shared::", BUILT_KERNEL, SYSTEMD_HOST];
        }
        let filters = filters.into_iter().map(str::to_owned).collect();
        Self { kernels, named: true, filters, ..Self::default() }
    }

    pub(crate) fn keep_kernels(&mut self, is_kept: impl FnMut(&Series) -> bool) {
        self.kernels.retain(is_kept);
    }

    /// Returns the first filter that matches none of the tests.
    pub(super) fn without_a_test(&self, tests: &[String]) -> Option<&str> {
        let fits = |filter: &str| tests.iter().any(|test| test.contains(filter));
        self.filters.iter().map(String::as_str).find(|filter| !fits(filter))
    }

    pub(super) fn has(&self, test: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| test.contains(filter.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Request, Series, kernels};

    fn parse(line: &str) -> Option<Request> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Request::parse(&words).ok()
    }

    #[test]
    fn without_arguments_tests_run_on_every_kernel() {
        let request = parse("").expect("valid arguments");
        assert_eq!(request.kernels, kernels::DEFAULT);
        assert!(request.has("truth::a") && !request.all);
    }

    #[test]
    fn kernels_and_tests_can_be_chosen() {
        let request = parse("7.2 6.1 -- truth ledger::a").expect("valid arguments");
        assert_eq!(request.kernels, [Series(6, 1), Series(7, 2)]);
        assert!(request.has("truth::b") && request.has("ledger::a_b") && !request.has("ledger::c"));
    }

    #[test]
    fn cpus_can_be_chosen() {
        assert_eq!(parse("7.2 --cpus 64 -- hotplug").expect("valid arguments").cpus.online, 64);
        assert_eq!(parse("7.2 --cpus"), None);
        assert_eq!(parse("7.2 --cpus 5000"), None);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(parse("newest"), None);
        assert_eq!(parse("--shell"), None);
    }
}
