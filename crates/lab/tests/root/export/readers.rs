//! Programs that read the exports of cgscope. `cargo xtask readers` installs these programs. A test fails if a program is
//! missing, unless [`WITHOUT`] is set.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Environment variable that is set on hosts without these programs. There, a test reads an export only with the library that
/// wrote the export.
const WITHOUT: &str = "CGSCOPE_TEST_WITHOUT_READERS";

/// The installed programs. Their directory is `CGSCOPE_READERS`, or one in the user's cache.
pub(crate) struct Readers {
    place: PathBuf,
}

/// Python with DuckDB and Perfetto's message definitions.
pub(crate) struct Python(PathBuf);

/// The Java implementation of HdrHistogram.
pub(crate) struct HdrHistogram(PathBuf);

/// The Go toolchain, which includes pprof.
pub(crate) struct Go(PathBuf);

pub(crate) struct Processed {
    pub(crate) count: u64,
    pub(crate) max_ns: u64,
}

pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) flat: u64,
    pub(crate) cumulative: u64,
}

impl Readers {
    pub(crate) fn find() -> Self {
        let cache = || Path::new(&env::var_os("HOME").unwrap_or_default()).join(".cache/cgscope/readers");
        Self { place: env::var_os("CGSCOPE_READERS").map_or_else(cache, PathBuf::from) }
    }

    pub(crate) fn python(&self, what: &str) -> Option<Python> {
        there(self.place.join("python/bin/python"), what).map(Python)
    }

    pub(crate) fn hdr_histogram(&self) -> Option<HdrHistogram> {
        there(on_path("java", None)?, "Java")?;
        there(self.place.join("HdrHistogram.jar"), "the Java HdrHistogram").map(HdrHistogram)
    }

    /// Returns the path of a program that only `cargo xtask test --long` installs.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        there(self.place.join(name), name)
    }

    pub(crate) fn go(&self) -> Option<Go> {
        on_path("go", Some("/usr/local/go/bin")).map(Go)
    }
}

fn there(path: PathBuf, what: &str) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path);
    }
    missing(what);
    None
}

fn on_path(program: &str, beside: Option<&str>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(beside.map(PathBuf::from));
    let found = dirs.map(|dir| dir.join(program)).find(|file| file.is_file());
    if found.is_none() {
        missing(program);
    }
    found
}

fn missing(what: &str) {
    assert!(
        env::var_os(WITHOUT).is_some(),
        "{what} is not installed, so only cgscope's own libraries could read this export: run `cargo xtask readers`, \
         or set {WITHOUT}=1 to pass without it"
    );
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{words}", output.status);
    String::from_utf8(output.stdout).expect("its output is UTF-8")
}

impl Python {
    pub(crate) fn json(&self, script: &str, words: &[&str]) -> Value {
        let text = said(Command::new(&self.0).args(["-c", script]).args(words));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Returns the sum of each column. `table` is the text after FROM in the query.
    pub(crate) fn duckdb_sums(&self, table: &str, columns: &[&str]) -> BTreeMap<String, u64> {
        let script = include_str!("duckdb_sums.py");
        let sums = self.json(script, &[&[table], columns].concat());
        let sums = sums.as_object().expect("sums by column");
        sums.iter().map(|(column, sum)| (column.clone(), sum.as_u64().expect("a sum"))).collect()
    }

    pub(crate) fn perfetto(&self, trace: &str) -> Value {
        self.json(include_str!("perfetto.py"), &[trace])
    }
}

impl HdrHistogram {
    /// Processes the histograms with this tag. If `tag` is `None`, processes the untagged histograms.
    pub(crate) fn process(&self, log: &str, tag: Option<&str>) -> Processed {
        let mut java = Command::new("java");
        java.arg("-cp").arg(&self.0).arg("org.HdrHistogram.HistogramLogProcessor");
        java.args(["-i", log, "-outputValueUnitRatio", "1"]);
        java.args(tag.map(|tag| ["-tag", tag]).into_iter().flatten());
        let text = said(&mut java);
        // Find a line such as `#[Max = 29704191.000, Total count = 4735]`.
        let line = text.lines().find_map(|line| line.strip_prefix("#[Max")).expect("a line with the maximum");
        let numbers: Vec<u64> = line
            .trim_end_matches(']')
            .split(',')
            .filter_map(|part| part.split('=').nth(1)?.trim().parse::<f64>().ok())
            .map(|number| number as u64)
            .collect();
        let [max_ns, count] = numbers[..] else { panic!("two numbers in {line}") };
        Processed { count, max_ns }
    }
}

impl Go {
    pub(crate) fn top(&self, profile: &str, value: &str) -> Vec<Line> {
        let text = said(
            Command::new(&self.0)
                .args(["tool", "pprof", "-top", "-nodecount=0", "-nodefraction=0", "-unit=ns"])
                .arg(format!("-sample_index={value}"))
                .arg(profile)
                .env("HOME", env::var_os("HOME").unwrap_or_else(|| "/".into())),
        );
        let rows = text.lines().skip_while(|line| !line.trim_start().starts_with("flat ")).skip(1);
        rows.map(line).collect()
    }
}

/// Parses a line such as `2480ns 18.75% 97.6% 2480ns 18.75%  NAME`.
fn line(text: &str) -> Line {
    let mut rest = text.trim_start();
    let mut word = || {
        let (word, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        rest = after.trim_start();
        word.trim_end_matches("ns").to_owned()
    };
    let words: Vec<String> = (0..5).map(|_| word()).collect();
    let number = |i: usize| words[i].parse().unwrap_or_else(|_| panic!("no number in {text}"));
    Line { flat: number(0), cumulative: number(3), name: rest.to_owned() }
}
