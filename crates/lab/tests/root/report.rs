//! The HTML report of a real load, opened in a browser and compared with `report --json`.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

use crate::{
    bench::{json_lines, run, stderr, stdout},
    browser::Browser,
    files::Dir,
    load::{Cgroup, Load},
};

/// A recording of loops under a quota, of loops without a quota, and of a process with a hostile name.
struct Recorded {
    dir: Dir,
    file: String,
    quota: String,
}

/// This name has 15 characters, because the kernel truncates longer names.
const HOSTILE: &str = "</script><i>&\"'";

impl Recorded {
    fn new() -> Self {
        let dir = Dir::new("page");
        let file = dir.file("a.rec");
        let cgroup = Cgroup::new("page");
        cgroup.limit(30_000, 100_000);
        let rename = "printf %s \"$0\" > /proc/$$/comm; while :; do :; done";
        let _loads = [
            Load::busy_loop(Some(&cgroup)),
            Load::busy_loop(Some(&cgroup)),
            Load::busy_loop(None),
            Load::busy_loop(None),
            Load::start("sh", &["-c", rename, HOSTILE], None),
        ];
        let output = run(&["record", "-o", &file, "-d", "6", "-i", "0.5"]);
        assert!(output.status.success(), "{}", stderr(&output));
        Self { dir, file, quota: cgroup.name.clone() }
    }

    fn page(&self) -> String {
        let page = self.dir.file("a.html");
        let output = run(&["report", &self.file, "--html", &page]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stdout(&output), "", "the result is in the file, not on standard output");
        format!("file://{page}")
    }

    fn intervals(&self) -> Vec<Value> {
        json_lines(&run(&["report", "--json", &self.file]))
    }
}

fn total(intervals: &[Value], figure: &str) -> u64 {
    intervals.iter().map(|interval| interval["total"][figure].as_u64().expect("a figure")).sum()
}

/// Returns the total waiting time of each process over all intervals, ns. The key is the process id.
fn waited_by_process(intervals: &[Value]) -> BTreeMap<u64, u64> {
    let mut waited = BTreeMap::new();
    for task in intervals.iter().flat_map(|interval| interval["tasks"].as_array().expect("tasks")) {
        let ns = task["wait"]["total_ns"].as_u64().expect("a sum");
        *waited.entry(task["tgid"].as_u64().expect("an id")).or_default() += ns;
    }
    waited
}

/// Returns the text of the first cell and the value of cell `n` for each row of a table.
fn column(browser: &mut Browser, table: &str, n: u32) -> Vec<(String, Value)> {
    let cells = browser.eval(&format!(
        "[...document.querySelectorAll('#{table} tbody tr')].map((row) => [row.cells[0].textContent, \
         row.cells[{n}].dataset.value === undefined ? null : Number(row.cells[{n}].dataset.value)])"
    ));
    let cells = cells.as_array().expect("rows").iter();
    cells.map(|cell| (cell[0].as_str().expect("a name").to_owned(), cell[1].clone())).collect()
}

fn click_heading(browser: &mut Browser, table: &str, n: u32) {
    browser.eval(&format!("document.querySelectorAll('#{table} th button')[{n}].click()"));
}

#[test]
fn a_page_of_a_real_load_has_the_figures_of_the_objects_and_requests_nothing() {
    let recorded = Recorded::new();
    let intervals = recorded.intervals();
    let page = recorded.page();
    let mut browser = Browser::start();
    browser.set_screen(1_200, 900, "light");
    browser.open(&page);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.requests(), std::slice::from_ref(&page), "only the page itself");

    let waited = browser.eval("Number(document.querySelector('#tiles dd').dataset.value)");
    assert_eq!(waited.as_u64(), Some(total(&intervals, "total_ns")));
    let counts = "[...document.querySelectorAll('#lengths tbody tr')].map((row) => Number(row.cells[1].dataset.value))";
    let counts = browser.eval(counts);
    let waits: u64 = counts.as_array().expect("rows").iter().map(|n| n.as_u64().expect("a count")).sum();
    assert_eq!(waits, total(&intervals, "count"));

    let expected = waited_by_process(&intervals);
    browser.eval(
        "[...document.querySelectorAll('#processes .controls .link')].forEach((button) => button.click())",
    );
    let mut compared = 0;
    for (name, ns) in column(&mut browser, "processes", 1) {
        let pid = name.split(' ').next().and_then(|pid| pid.parse::<u64>().ok());
        let Some(expected) = pid.and_then(|pid| expected.get(&pid)) else { continue };
        assert_eq!(ns.as_u64(), Some(*expected), "{name}");
        compared += 1;
    }
    assert!(compared >= 5, "{compared} processes");

    let findings = browser.eval("document.querySelector('.findings').textContent");
    assert!(findings.as_str().is_some_and(|said| said.contains(&recorded.quota)), "{findings}");
    // Other tests that run at the same time can also have cgroups with quotas.
    let quotas =
        browser.eval("[...document.querySelectorAll('#quotas h3')].map((heading) => heading.textContent)");
    assert!(
        quotas.as_array().is_some_and(|quotas| quotas.contains(&recorded.quota.as_str().into())),
        "{quotas}"
    );
}

#[test]
fn a_page_replaces_an_older_page_and_no_other_file() {
    let dir = Dir::new("replaced");
    let file = dir.file("a.rec");
    let output = run(&["record", "-o", &file, "-i", "0.1", "--", "sleep", "0.5"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = dir.file("a.html");
    for _ in 0..2 {
        let output = run(&["report", &file, "--html", &page]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let written = fs::read_to_string(&page).expect("a page");
    let printed = run(&["report", &file, "--html", "-"]);
    assert_eq!(stdout(&printed), written);

    let before = fs::read(&file).expect("a recording");
    let refused = run(&["report", &file, "--html", &file]);
    assert_eq!(refused.status.code(), Some(2));
    let words = stderr(&refused);
    assert!(words.contains("something other than a report page") && words.lines().count() == 1, "{words}");
    assert_eq!(fs::read(&file).expect("a recording"), before);
}

mod long {
    use super::*;

    #[test]
    fn charts_of_the_report_work_in_light_and_dark_and_describe_the_part_under_the_pointer() {
        let recorded = Recorded::new();
        let page = recorded.page();
        let mut browser = Browser::start();
        let mut papers = Vec::new();
        for (scheme, width) in [("light", 1_200), ("dark", 1_200), ("dark", 400)] {
            browser.set_screen(width, 900, scheme);
            browser.open(&page);
            papers.push(browser.eval("getComputedStyle(document.body).backgroundColor"));
            let overflow = browser.eval("document.documentElement.scrollWidth - innerWidth");
            assert_eq!(overflow, 0, "{scheme} {width}: the page is not wider than the window");
            browser.eval("document.querySelector('#heat .plot').focus()");
            browser.eval(
                "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))",
            );
            for chart in ["causes", "heat", "running"] {
                let said = browser.eval(&format!("document.querySelector('#{chart} .readout').textContent"));
                assert!(said.as_str().is_some_and(|said| said.contains("UTC")), "{chart}: {said}");
            }
            let picture = browser.picture("#heat svg");
            assert_eq!(browser.complaints(), Vec::<String>::new());
            let (colours, commonest) = browser.colours(&picture);
            assert!(
                colours > 12 && commonest < 0.9,
                "{scheme} {width}: {colours} colours, {commonest} of one"
            );
        }
        assert_ne!(papers[0], papers[1], "light and dark differ");
    }

    #[test]
    fn a_click_sorts_tables_of_the_report_and_typing_filters_them() {
        let recorded = Recorded::new();
        let page = recorded.page();
        let mut browser = Browser::start();
        browser.open(&page);
        let values = |browser: &mut Browser, n| -> Vec<u64> {
            column(browser, "threads", n).iter().map(|(_, value)| value.as_u64().expect("a figure")).collect()
        };
        let waited = values(&mut browser, 1);
        assert!(waited.len() > 3 && waited.is_sorted_by(|a, b| a >= b), "the longest first: {waited:?}");
        click_heading(&mut browser, "threads", 1);
        let ascending = values(&mut browser, 1);
        assert!(ascending.is_sorted() && ascending != waited, "{ascending:?}");
        click_heading(&mut browser, "threads", 5);
        let waits = values(&mut browser, 5);
        assert!(waits.is_sorted_by(|a, b| a >= b), "{waits:?}");
        let sorted =
            browser.eval("[...document.querySelectorAll('#threads th')].map((head) => head.ariaSort)[5]");
        assert_eq!(sorted, "descending");

        browser.eval(
            "(() => { const filter = document.querySelector('#threads input'); filter.value = '</SCRIPT>'; \
             filter.dispatchEvent(new Event('input')); })()",
        );
        let found = column(&mut browser, "threads", 1);
        assert!((1..waited.len()).contains(&found.len()), "{found:?}");
        assert!(found.iter().all(|(name, _)| name.contains(HOSTILE)), "{found:?}");
        assert_eq!(browser.eval("document.querySelectorAll('i').length"), 0);
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}
