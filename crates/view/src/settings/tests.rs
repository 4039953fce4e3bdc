use proptest::prelude::*;

use super::*;
use crate::keys::{Command, KeyPress};

/// Returns the new text of a settings file that was `before` at the start, after these settings are saved.
fn saved(settings: &Settings, before: &str) -> String {
    match Settings::parse(before) {
        Ok((begun, _)) => Settings::save_into(before, &begun, settings).unwrap(),
        Err(_) => before.to_owned(),
    }
}

fn parsed(text: &str) -> (Settings, Vec<String>) {
    Settings::parse(text).unwrap()
}

fn key(text: &str) -> KeyPress {
    text.parse().unwrap()
}

/// Compares the effect of settings: a list that names its default sort column equals a list that names none.
fn assert_same(a: &Settings, b: &Settings) {
    let all = |settings: &Settings| {
        let sort = ListKind::ALL.iter().map(|kind| (*kind, settings.sort_of(*kind))).collect();
        Settings { sort, ..settings.clone() }
    };
    assert_eq!(all(a), all(b));
}

/// Sets every setting to a value that is not the default.
const ALL: &str = r#"view = "heatmap"
tree = false
processes = false
command_lines = true
span = "start"
unit = "ms"
mouse = false
colours = "16"
interval = "2500ms"

[sort]
cgroups = "of quota"
threads = { column = "p99", reversed = true }
states = { reversed = true }

[keys]
quit = ["x", "ctrl-c"]
pause = "Z"
snapshot = []
"#;

#[test]
fn every_setting_is_read() {
    let (settings, warnings) = parsed(ALL);
    assert!(warnings.is_empty(), "{warnings:?}");
    let expected = Settings {
        view: View::Heatmap,
        tree: false,
        processes: false,
        command_lines: true,
        sort: BTreeMap::from([
            (ListKind::Cgroups, (Column::Quota, false)),
            (ListKind::Threads, (Column::P99, true)),
            (ListKind::States, (Column::WaitTime, true)),
        ]),
        span: Span::Start,
        unit: Unit::Milli,
        mouse: false,
        colours: Some(Colours::Sixteen),
        interval: Duration::from_millis(2_500),
        keymap: settings.keymap.clone(),
    };
    assert_eq!(settings, expected);
    let keymap = &settings.keymap;
    assert_eq!(keymap.keys(Command::Quit), [key("x"), key("ctrl-c")]);
    assert_eq!(keymap.keys(Command::Pause), [key("Z")]);
    assert_eq!(keymap.keys(Command::Snapshot), []);
    assert_eq!(keymap.command(key("q")), None);
}

#[test]
fn an_empty_file_is_the_default_and_the_default_writes_nothing() {
    for text in ["", "\n", "# nothing here\n"] {
        assert_eq!(parsed(text), (Settings::default(), Vec::new()));
        assert_eq!(saved(&Settings::default(), text), text);
    }
}

#[test]
fn unchanged_settings_are_written_unchanged() {
    assert_eq!(saved(&parsed(ALL).0, ALL), ALL);
}

#[test]
fn comments_order_and_unknown_lines_are_kept() {
    let before = "# mine\nunit = \"us\" # like runqlat\nnonsense = 7\n\n# views\nview = 'numa'\n[sort] # lists\nthreads = \"p50\"   # half\n# end\n";
    let (mut settings, warnings) = parsed(before);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    settings.unit = Unit::Milli;
    settings.mouse = false;
    settings.sort.insert(ListKind::Threads, (Column::Max, false));
    settings.sort.insert(ListKind::Limits, (Column::Burst, true));
    let after = "# mine\nunit = \"ms\" # like runqlat\nnonsense = 7\n\n# views\nview = 'numa'\nmouse = false\n[sort] # lists\nthreads = \"max\"   # half\nlimits = { column = \"burst\", reversed = true }\n# end\n";
    assert_eq!(saved(&settings, before), after);
}

#[test]
fn a_setting_that_returns_to_its_default_stays_in_the_file() {
    let settings = Settings::default();
    assert_eq!(saved(&settings, "view = \"numa\"\n"), "view = \"overview\"\n");
    assert_eq!(saved(&settings, "[sort]\nthreads = \"p99\"\n"), "[sort]\nthreads = \"wait/s\"\n");
}

#[test]
fn a_new_file_has_a_heading_and_a_file_of_comments_keeps_them_on_top() {
    let settings = Settings { tree: false, ..Settings::default() };
    let new = saved(&settings, "");
    assert!(new.starts_with("# Settings that `cgscope top`") && new.ends_with("tree = false\n"), "{new}");
    assert_eq!(saved(&settings, "# mine"), "# mine\ntree = false\n");
}

#[test]
fn a_sort_in_its_own_table_stays_there() {
    let before = "[sort.threads]\n# why not\ncolumn = \"p99\"\nreversed = true\n";
    let (mut settings, _) = parsed(before);
    assert_eq!(settings.sort_of(ListKind::Threads), (Column::P99, true));
    settings.sort.insert(ListKind::Threads, (Column::P50, false));
    assert_eq!(saved(&settings, before), "[sort.threads]\n# why not\ncolumn = \"p50\"\nreversed = false\n");
}

#[test]
fn a_wrong_value_keeps_the_default_and_the_warning_lists_allowed_values() {
    for (text, line, says) in [
        ("view = \"overvew\"", 1, "view: unknown variant `overvew`, expected one of `overview`, `histogram`"),
        ("\n\nview = 3", 3, "view: wanted string or table; using the default"),
        ("tree = \"yes\"", 1, "tree: invalid type: string \"yes\", expected a boolean; using the default"),
        ("interval = \"1ms\"", 1, "between 10ms and 24h"),
        ("interval = \"soon\"", 1, "interval: must be a time like \"500ms\""),
        ("interval = nan", 1, "interval: must be a time"),
        ("interval = -1", 1, "interval: must be a time"),
        ("colours = 88", 1, "must be \"auto\", \"none\", \"16\" or \"256\""),
        ("colors = \"16\"", 1, "colors: unknown field `colors`, expected one of `view`, `tree`"),
        ("view = { a = 1 }", 1, "view: unknown variant `a`, expected one of `overview`"),
        ("# x\n[view]\na = 1", 3, "view: unknown variant `a`, expected one of `overview`"),
        ("[[sort]]\na = 1", 1, "sort must be a table: [sort]"),
        ("sort = \"p99\"", 1, "sort must be a table"),
        ("[sort]\nall = \"p99\"", 2, "sort.all: unknown variant `all`, expected one of `cgroups`"),
        ("[sort]\nlimits = \"p99\"", 2, "limits cannot be sorted by \"p99\": it has cgroup, %CPU"),
        ("[sort]\nlimits = { by = \"p99\" }", 2, "sort.limits: must be a heading like \"p99\", or { column"),
        ("[sort]\nlimits = { reversed = 1 }", 2, "sort.limits: must be a heading like \"p99\", or { column"),
        ("[sort]\nstates = \"p99\"", 2, "states cannot be sorted by \"p99\": it has no columns"),
    ] {
        let (settings, warnings) = parsed(text);
        assert_same(&settings, &Settings::default());
        let [warning] = warnings.as_slice() else { panic!("{text}: {warnings:?}") };
        assert!(
            warning.starts_with(&format!("line {line}: ")) && warning.contains(says),
            "{text}: {warning}"
        );
    }
}

#[test]
fn wrong_values_stay_in_the_file_until_the_user_changes_them() {
    let before = "view = \"overvew\"\n";
    let (mut settings, _) = parsed(before);
    assert_eq!(saved(&settings, before), before);
    settings.view = View::Numa;
    assert_eq!(saved(&settings, before), "view = \"numa\"\n");
}

#[test]
fn a_file_that_is_not_toml_is_reported_with_the_line_and_never_overwritten() {
    for (text, line) in
        [("view =", 1), ("tree = true\nview = overview\n", 2), ("a = 1\n\na = 2", 3), ("\u{0}", 1)]
    {
        let error = Settings::parse(text).unwrap_err();
        assert!(error.starts_with(&format!("line {line} is not TOML: ")) && !error.contains('\n'), "{error}");
        let other = Settings { tree: false, ..Settings::default() };
        assert_eq!(saved(&other, text), text);
    }
}

#[test]
fn a_warning_about_a_long_value_is_cut() {
    let (_, warnings) = parsed(&format!("view = \"{}\"", "é".repeat(500)));
    assert!(warnings[0].chars().count() < 250, "{}", warnings[0]);
    let (_, warnings) = parsed("view = [\n1,\n2\n]");
    assert!(warnings[0].contains("view: wanted string or table; using the default"), "{}", warnings[0]);
}

#[test]
fn a_key_of_two_commands_stays_with_the_first() {
    let (settings, warnings) = parsed("[keys]\npause = [\"x\", \"X\"]\nmouse = [\"x\"]\n");
    assert_eq!(warnings, ["line 3: mouse: x is already a key of pause, which keeps it"]);
    assert_eq!(settings.keymap.command(key("x")), Some(Command::Pause));
    assert_eq!(settings.keymap.keys(Command::Mouse), [key("m")]);
}

#[test]
fn unknown_keys_and_commands_are_reported() {
    for (text, says) in [
        ("pause = [\"space\", \"shift-a\"]", "line 2: pause: \"shift-a\" is not a key"),
        ("pause = [\"ctrl-i\"]", "is the same as tab"),
        ("pause = 7", "keys must be a list like [\"q\", \"ctrl-c\"]"),
        ("pause = [1]", "keys must be a list"),
        ("stop = [\"x\"]", "keys.stop: unknown variant `stop`, expected one of `quit`, `help`"),
    ] {
        let (settings, warnings) = parsed(&format!("[keys]\n{text}\n"));
        assert_eq!(settings, Settings::default(), "{text}");
        let [warning] = warnings.as_slice() else { panic!("{text}: {warnings:?}") };
        assert!(warning.contains(says), "{warning}");
    }
}

#[test]
fn a_command_without_keys_is_reported_unless_that_is_intended() {
    let (_, warnings) = parsed("[keys]\npause = [\"w\"]\n");
    assert_eq!(
        warnings,
        ["snapshot has no key left: give it one, or write snapshot = [] to leave it without"]
    );
    assert!(parsed("[keys]\npause = [\"w\"]\nsnapshot = []\n").1.is_empty());
}

#[test]
fn there_is_always_a_key_that_quits() {
    for text in ["quit = []", "pause = [\"q\", \"f10\", \"ctrl-c\"]", "quit = []\nhelp = [\"ctrl-c\"]"] {
        let (settings, warnings) = parsed(&format!("[keys]\n{text}\n"));
        assert_eq!(settings.keymap.command(key("ctrl-c")), Some(Command::Quit), "{text}");
        assert!(warnings.iter().any(|warning| warning.contains("quit needs a key")), "{warnings:?}");
    }
}

#[test]
fn only_changes_by_keys_are_saved() {
    let text = "view = \"numa\"\ninterval = \"5s\"\n[sort]\nthreads = \"p99\"\n";
    let (read, _) = parsed(text);
    // The settings at the start may differ from the file, for example because of the command line.
    let mut begun = Settings { view: View::Heatmap, interval: Duration::from_secs(1), ..read.clone() };
    begun.sort.insert(ListKind::Cgroups, (Column::Max, false));
    assert_eq!(Settings::save_into(text, &begun, &begun).unwrap(), text);
    let mut now = Settings { tree: false, interval: Duration::from_secs(9), ..begun.clone() };
    now.sort.insert(ListKind::Threads, (Column::P50, true));
    let kept = parsed(&Settings::save_into(text, &begun, &now).unwrap()).0;
    let mut expected = Settings { tree: false, ..read };
    expected.sort.insert(ListKind::Threads, (Column::P50, true));
    assert_same(&kept, &expected);
}

prop_compose! {
    fn any_sort()(kind in proptest::sample::select(&ListKind::ALL), reversed: bool, at: prop::sample::Index) -> (ListKind, (Column, bool)) {
        match kind.columns() {
            [] => (kind, (kind.sorted_by(), reversed)),
            columns => (kind, (*at.get(columns), reversed)),
        }
    }
}

prop_compose! {
    fn any_settings()(
        view in proptest::sample::select(&View::ALL),
        flags: [bool; 4],
        sort in proptest::collection::vec(any_sort(), 0..4),
        span in proptest::sample::select(Span::ALL.as_slice()),
        milli: bool,
    ) -> Settings {
        let [tree, processes, command_lines, mouse] = flags;
        Settings {
            view, tree, processes, command_lines, mouse, span,
            sort: sort.into_iter().collect(),
            unit: if milli { Unit::Milli } else { Unit::Micro },
            ..Settings::default()
        }
    }
}

proptest! {
    #[test]
    fn written_settings_are_read_back(settings in any_settings()) {
        let text = saved(&settings, "");
        let (read, warnings) = Settings::parse(&text).unwrap();
        assert_same(&read, &settings);
        prop_assert!(warnings.iter().all(|warning| warning.contains("no key left")), "{:?}", warnings);
        prop_assert_eq!(saved(&read, &text), text);
    }

    #[test]
    fn settings_written_over_others_are_read_back(before in any_settings(), after in any_settings()) {
        let text = format!("# first\n{}# last\n", saved(&before, "mine = 1 # stays\n"));
        let written = saved(&after, &text);
        assert_same(&Settings::parse(&written).unwrap().0, &after);
        for kept in ["# first\n", "mine = 1 # stays\n", "# last\n"] {
            prop_assert!(written.contains(kept), "{}", written);
        }
        prop_assert_eq!(saved(&after, &written), written);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "(\\PC|[\n\r\t]){0,60}") {
        if let Ok((settings, _)) = Settings::parse(&text) {
            let written = saved(&settings, &text);
            prop_assert_eq!(written, text);
        }
    }

    #[test]
    fn no_value_is_too_strange(
        name in proptest::sample::select(["view", "tree", "unit", "interval", "colours", "sort", "sort.threads", "keys", "keys.quit", "x"].as_slice()),
        value in "([\"'\\[\\]{}=.,a-z0-9# -]|inf|nan|true|\n){0,20}",
    ) {
        let text = format!("{name} = {value}\n");
        if let Ok((settings, _)) = Settings::parse(&text) {
            let settings = Settings { tree: false, view: View::Numa, ..settings };
            let written = saved(&settings, &text);
            prop_assert!(Settings::parse(&written).is_ok(), "{}", written);
        }
    }
}
