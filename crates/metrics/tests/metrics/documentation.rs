//! Checks that `docs/metrics.md` matches the metrics.

use cgscope_metrics::family::{ALL, CGROUP, CGROUP_LABELS};

const DOC: &str = include_str!("../../../../docs/metrics.md");

/// Returns the cells of the table whose header starts with this text.
fn table(header: &str) -> Vec<Vec<String>> {
    let lines = DOC.lines().skip_while(|line| !line.starts_with(header)).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    rows.map(|row| row.trim_matches('|').split(" | ").map(cell).collect()).collect()
}

#[test]
fn the_document_lists_every_metric_of_the_page() {
    let said: Vec<[String; 4]> =
        table("| metric |").into_iter().map(|row| [0, 1, 2, 3].map(|at| row[at].clone())).collect();
    let are: Vec<[String; 4]> = ALL
        .iter()
        .map(|family| {
            let labels = family.labels.iter().map(|label| if *label == CGROUP { "{cg}" } else { label });
            let labels: Vec<&str> = labels.collect();
            [
                family.sample_name(),
                family.kind.name().into(),
                family.unit.unwrap_or("").into(),
                labels.join(", "),
            ]
        })
        .collect();
    assert_eq!(said, are);
}

#[test]
fn the_document_lists_every_label_of_a_cgroup() {
    let said: Vec<String> = table("| label |").into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(said, CGROUP_LABELS);
}
