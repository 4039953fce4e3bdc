//! Checks that the files in `deploy/` agree with each other and with the metrics of cgscope.

use std::collections::BTreeSet;

use serde_json::Value;

const RULES: &str = include_str!("../../deploy/prometheus/cgscope.rules.yml");
const TESTS: &str = include_str!("../../deploy/prometheus/cgscope.test.yml");
const DASHBOARD: &str = include_str!("../../deploy/grafana/cgscope.json");

/// Returns the names of the daemon's metrics, as on the metrics page.
fn metrics() -> Vec<String> {
    cgscope_metrics::family::ALL.iter().map(|family| family.sample_name()).collect()
}

/// Returns the values of all `key: value` lines with this key.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let of = |line: &'a str| line.trim_start().trim_start_matches("- ").strip_prefix(key);
    text.lines().filter_map(of).map(str::trim).collect()
}

/// Returns the words of an expression that look like metrics. The metrics that rules record are included.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(|c| !is_part(c));
    let is_metric =
        |word: &&str| word.contains("cgscope_") || word.starts_with("process_") || word.contains(':');
    words.map(|word| word.trim_end_matches(':')).filter(is_metric).map(str::to_owned).collect()
}

fn is_known(name: &str) -> bool {
    let histogram = "cgscope_runqueue_wait_seconds";
    let of_histogram =
        name.strip_prefix(histogram).is_some_and(|end| ["_bucket", "_sum", "_count"].contains(&end));
    metrics().iter().any(|metric| metric == name) || of_histogram || values(RULES, "record:").contains(&name)
}

fn rules() -> String {
    RULES.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Collects all strings under one of these keys, at any depth.
fn texts<'a>(value: &'a Value, keys: &[&str], found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str().filter(|_| keys.contains(&key.as_str())) {
                    Some(text) => found.push(text),
                    None => texts(value, keys, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, keys, found)),
        _ => {}
    }
}

/// The templates of the chart, in the order that helm uses.
const CHART: [&str; 4] = [
    include_str!("../../deploy/kubernetes/chart/templates/namespace.yaml"),
    include_str!("../../deploy/kubernetes/chart/templates/serviceaccount.yaml"),
    include_str!("../../deploy/kubernetes/chart/templates/configmap.yaml"),
    include_str!("../../deploy/kubernetes/chart/templates/daemonset.yaml"),
];
const VALUES: &str = include_str!("../../deploy/kubernetes/chart/values.yaml");
const DAEMONSET: &str = include_str!("../../deploy/kubernetes/daemonset.yaml");

/// Compares the chart with the manifests line by line. This does not need helm. `fleet::long` renders the chart.
#[test]
fn the_chart_and_the_plain_manifests_have_the_same_lines() {
    let chart: Vec<&str> = CHART.iter().flat_map(|template| template.lines()).collect();
    let mut manifest = DAEMONSET.lines();
    // The default values omit every part that needs a Secret.
    let of_secrets = ["Secret", "tls", "users", "scheme: HTTPS", "- secret:", "name: {{ . }}"];
    let of_default = |line: &&&str| {
        !line.trim_start().starts_with("{{-") && !of_secrets.iter().any(|word| line.contains(word))
    };
    for line in chart.iter().filter(of_default) {
        let (before, rest) = line.split_once("{{").unwrap_or((line, ""));
        let after = rest.split_once("}}").map_or("", |(_, after)| after);
        let mut alike = manifest.by_ref().filter(|there| {
            if rest.is_empty() { there == line } else { there.starts_with(before) && there.ends_with(after) }
        });
        assert!(alike.next().is_some(), "daemonset.yaml lacks this line of the chart: {line}");
    }
    let literal = |line: &str| {
        let line = line.trim();
        chart.iter().chain(&VALUES.lines().collect::<Vec<_>>()).any(|there| {
            let (before, value) = there.split_once("{{").unwrap_or((there, ""));
            if value.is_empty() {
                there.trim() == line
            } else {
                line.starts_with(before.trim()) && !before.trim().is_empty()
            }
        })
    };
    let other: Vec<_> = DAEMONSET
        .lines()
        .filter(|line| *line != "---" && !line.starts_with("# Source: ") && !literal(line))
        .collect();
    assert!(
        other.is_empty(),
        "neither the chart nor its values have these lines of daemonset.yaml: {other:#?}"
    );
}

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = include_str!("../../deploy/kubernetes/chart/Chart.yaml");
    assert_eq!((values(chart, "version:"), values(chart, "appVersion:")), (vec![version], vec![version]));
    assert_eq!(values(VALUES, "image:"), [format!("registry.example/cgscope:{version}")]);
}

/// Helm refuses a chart whose schema lacks one of its values; `fleet::long` runs helm.
#[test]
fn the_schema_of_the_chart_has_each_value() {
    let schema = include_str!("../../deploy/kubernetes/chart/values.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let (mut path, mut seen) = (Vec::new(), 0);
    for line in VALUES.lines() {
        let text = line.trim_start();
        let key = text.split_once(':').map(|(key, _)| key);
        let Some(key) = key.filter(|key| key.chars().all(char::is_alphanumeric)) else { continue };
        path.truncate((line.len() - text.len()) / 2);
        path.push(key);
        let mut at = &schema;
        for key in &path {
            // An object without a list of properties accepts any property.
            let Some(properties) = at.get("properties") else { break };
            at = properties.get(key).unwrap_or_else(|| panic!("values.schema.json lacks {path:?}"));
        }
        seen += 1;
    }
    assert!(seen > 15, "{seen} values");
}

fn dashboard() -> Value {
    serde_json::from_str(DASHBOARD).expect("the dashboard is JSON")
}

fn expressions(dashboard: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    texts(dashboard, &["expr", "definition"], &mut found);
    found
}

#[test]
fn the_rules_use_only_existing_metrics() {
    let used = metrics_in(&rules());
    assert!(used.len() > 20, "{used:?}");
    let unknown: Vec<_> = used.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn the_dashboard_uses_only_existing_metrics() {
    let dashboard = dashboard();
    let expressions = expressions(&dashboard);
    assert!(expressions.len() > 40, "{}", expressions.len());
    for expression in &expressions {
        let used = metrics_in(expression);
        assert!(
            !used.is_empty() || expression.contains("up{") || expression.contains("ALERTS"),
            "{expression}"
        );
        let unknown: Vec<_> = used.iter().filter(|name| !is_known(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {expression}");
    }
}

#[test]
fn every_metric_is_in_the_dashboard_or_in_a_rule() {
    let dashboard = dashboard();
    let mut used: BTreeSet<String> = expressions(&dashboard).into_iter().flat_map(metrics_in).collect();
    used.extend(metrics_in(&rules()));
    let shown =
        |name: &str| used.iter().any(|word| word == name || word.strip_prefix(name) == Some("_bucket"));
    let unseen: Vec<_> = metrics().into_iter().filter(|name| !shown(name)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

#[test]
fn every_rule_and_alert_is_tested_and_alerts_say_what_to_do() {
    for name in values(RULES, "record:") {
        assert!(TESTS.contains(name), "{name} has no test");
    }
    let alerts = values(RULES, "alert:");
    assert!(alerts.len() >= 6, "{alerts:?}");
    for alert in &alerts {
        let cases: Vec<_> = TESTS
            .split("alertname: ")
            .skip(1)
            .filter(|case| case.split(|c: char| !c.is_ascii_alphanumeric()).next() == Some(alert))
            .collect();
        let silent = cases.iter().filter(|case| {
            case.split("alertname").next().is_some_and(|case| case.contains("exp_alerts: []"))
        });
        assert!(silent.count() >= 1, "{alert} is never silent");
        assert!(cases.iter().any(|case| case.contains("exp_annotations")), "{alert} never fires");
    }
    for key in ["summary:", "description:", "severity:"] {
        assert_eq!(values(RULES, key).len(), alerts.len(), "{key}");
    }
}

#[test]
fn losses_that_leave_figures_complete_cause_no_alert() {
    let losses = include_str!("../../crates/ledger/src/loss.rs");
    let harmless = losses.lines().filter(|line| line.ends_with(", true;"));
    let quiet: BTreeSet<_> = harmless.filter_map(|line| line.split('"').nth(1)).collect();
    assert!(!quiet.is_empty());
    let regex = RULES
        .split("loss!~\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("losses that the rule leaves out");
    assert_eq!(regex.split('|').collect::<BTreeSet<_>>(), quiet);
}

#[test]
fn panels_of_the_dashboard_do_not_overlap() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() > 20, "{}", panels.len());
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: another panel has the same id");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(at("x") + at("w") <= 24, "{title} is too wide");
        for (x, y) in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(cells.insert((x, y)), "{title} overlaps another panel");
        }
        if panel["type"] != "row" {
            assert!(panel["description"].as_str().is_some_and(|words| !words.is_empty()), "{title}");
            let references: BTreeSet<_> = panel["targets"]
                .as_array()
                .expect("targets")
                .iter()
                .map(|target| target["refId"].as_str())
                .collect();
            assert_eq!(references.len(), panel["targets"].as_array().map_or(0, Vec::len), "{title}");
        }
    }
}

#[test]
fn variables_of_the_dashboard_are_defined() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let names: Vec<&str> = variables.iter().filter_map(|variable| variable["name"].as_str()).collect();
    for expression in expressions(&dashboard) {
        for part in expression.split('$').skip(1) {
            let name =
                part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
            assert!(names.contains(&name) || name == "__rate_interval", "${name} in {expression}");
        }
    }
}
