//! Tests that CSV and Parquet contain the same rows.

use std::sync::Arc;

use cgscope_export::{Format, table};
use cgscope_model::{Cause, Interval, Mode, TaskReading};

use crate::{
    decode::{Row, csv_rows, parquet_rows, sum},
    support::{Paper, START_NS, about, export, intervals, sample, whole},
};

fn cell<'a>(row: &'a Row, column: &str) -> Option<&'a str> {
    row.get(column).unwrap_or_else(|| panic!("there is no column {column}")).as_deref()
}

#[test]
fn the_rows_sum_to_the_total() {
    let intervals = intervals(3, Mode::Bpf);
    let total = whole(&intervals).total();
    for rows in
        [csv_rows(&export(Format::Csv, &intervals)), parquet_rows(export(Format::Parquet, &intervals))]
    {
        assert_eq!(rows.len(), 3 * 5, "four tasks and the exited tasks of one cgroup, three times");
        assert_eq!(sum(&rows, "wait_ns"), total.wait.total_ns);
        assert_eq!(sum(&rows, "waits"), total.wait.count);
        assert_eq!(sum(&rows, "on_cpu_ns"), total.totals.on_cpu_ns);
        assert_eq!(sum(&rows, "run_delay_ns"), total.totals.run_delay_ns);
        assert_eq!(sum(&rows, "exited_tasks"), total.exited);
        for cause in Cause::ALL {
            let ns = total.wait.by_cause.get(cause);
            assert_eq!(sum(&rows, &format!("wait_{}_ns", cause.name())), ns, "{cause:?}");
        }
    }
}

#[test]
fn both_formats_have_the_same_cells() {
    let intervals = intervals(2, Mode::Bpf);
    let mut from_csv = csv_rows(&export(Format::Csv, &intervals));
    let mut from_parquet = parquet_rows(export(Format::Parquet, &intervals));
    for row in &mut from_csv {
        let start = row.insert("start".into(), None).flatten();
        assert!(
            start.is_some_and(|start| start.starts_with("2023-11-14T22:13:2") && start.ends_with("000Z"))
        );
        // CSV does not distinguish an empty text from a missing one.
        if row["tid"].is_some() && row["comm"].is_none() {
            row.insert("comm".into(), Some(String::new()));
        }
    }
    for (row, interval) in from_parquet.iter_mut().zip([0, 0, 0, 0, 0, 1, 1, 1, 1, 1]) {
        let start_us = START_NS / 1_000 + interval * 1_000_000;
        assert_eq!(row.insert("start".into(), None).flatten(), Some(start_us.to_string()));
    }
    assert_eq!(from_csv, from_parquet);
}

#[test]
fn csv_escapes_formulas_and_parquet_keeps_names_unchanged() {
    let names =
        ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\u{ff1d}1", "'quoted", "plain=1", "日本", ""];
    let tasks = |n| {
        let mut sample = sample(n, Mode::Bpf);
        let like = (*sample.tasks[0]).clone();
        sample.tasks = (0_u32..)
            .zip(names)
            .map(|(n, name)| TaskReading { serial: 100 + u64::from(n), comm: name.into(), ..like.clone() })
            .map(Arc::new)
            .collect();
        sample
    };
    let intervals = [Interval::between(&tasks(0), &tasks(1))];
    let column = |rows: &[Row], column: &str| -> Vec<String> {
        let rows = rows.iter().filter(|row| row["tid"].is_some());
        rows.map(|row| row[column].clone().unwrap_or_default()).collect()
    };
    let csv = csv_rows(&export(Format::Csv, &intervals));
    for (name, cell) in names.iter().zip(column(&csv, "comm")) {
        let is_plain = ["plain=1", "日本", ""].contains(name);
        assert_eq!(cell, if is_plain { (*name).into() } else { format!("'{name}") });
    }
    assert!(column(&csv, "wait_ns").iter().all(|ns| ns.parse::<u64>().is_ok()));
    assert_eq!(column(&parquet_rows(export(Format::Parquet, &intervals)), "comm"), names);
}

#[test]
fn a_row_has_its_task_and_its_time() {
    let rows = csv_rows(&export(Format::Csv, &intervals(1, Mode::Bpf)));
    let main = &rows[0];
    assert_eq!(cell(main, "host"), Some(about().hostname.as_str()));
    assert_eq!(cell(main, "start_unix_ns"), Some(START_NS.to_string().as_str()));
    assert_eq!(cell(main, "duration_ns"), Some("1000000000"));
    assert_eq!(cell(main, "comm"), Some("web, \"main\""));
    assert_eq!(cell(main, "cgroup"), Some("/system.slice/web app.service"));
    assert_eq!(cell(main, "unit"), Some("web app.service"));
    assert_eq!(cell(main, "wait_max_ns"), Some("3000000"));
    assert_eq!(cell(main, "exited_tasks"), None);
    assert_eq!((cell(main, "pending_ns"), cell(&rows[1], "pending_ns")), (None, Some("5000")));
    assert_eq!(cell(&rows[3], "cgroup"), None, "removed before it was read");
    assert_eq!(cell(&rows[3], "wait_p99_ns"), None, "no wait has no quantile");
    let ended = &rows[4];
    for column in ["tid", "tgid", "comm", "serial", "cpu", "pending_ns"] {
        assert_eq!(cell(ended, column), None, "{column} of exited tasks");
    }
    assert_eq!(cell(ended, "exited_tasks"), Some("3"));
}

#[test]
fn figures_unknown_in_the_coarse_mode_are_null() {
    let intervals = intervals(2, Mode::Coarse);
    let rows = parquet_rows(export(Format::Parquet, &intervals));
    for row in &rows {
        assert_eq!(cell(row, "mode"), Some("coarse"));
        for column in [
            "wait_p50_ns",
            "wait_p99_ns",
            "wait_max_ns",
            "wait_own_cgroup_ns",
            "wait_other_cgroup_ns",
            "wait_kernel_ns",
            "wait_wakeup_ns",
            "migrations",
            "unstamped",
        ] {
            assert_eq!(cell(row, column), None, "{column}");
        }
    }
    let total = whole(&intervals).total();
    assert_eq!(sum(&rows, "wait_ns"), total.wait.total_ns);
    assert_eq!(sum(&rows, "wait_throttled_ns"), total.wait.by_cause.get(Cause::Throttled));
    assert_eq!(sum(&rows, "wait_unattributed_ns"), total.wait.by_cause.get(Cause::Unattributed));
}

#[test]
fn rows_are_written_at_once_and_not_kept() {
    /// Number of intervals. Each has 5 rows, so together they have more rows than a Parquet row group.
    const INTERVALS: usize = 15_000;
    let one = &intervals(1, Mode::Bpf)[0];
    for format in [Format::Csv, Format::Parquet] {
        let paper = Paper::default();
        let mut sink = format.sink(Box::new(paper.clone()), about()).expect("there is room");
        for _ in 0..INTERVALS {
            sink.interval(one).expect("there is room");
        }
        let before = paper.bytes().len();
        sink.finish().expect("there is room");
        let bytes = paper.bytes();
        // Before `finish`, only the last row group is missing, and in Parquet also the footer.
        assert!(before > bytes.len() / 3, "{format:?}: {before} of {}", bytes.len());
        if format == Format::Parquet {
            assert_eq!(parquet_rows(bytes).len(), 5 * INTERVALS, "in several groups of rows");
        }
    }
}

#[test]
fn every_column_is_in_the_document_with_its_type() {
    let document = include_str!("../../../../docs/export.md");
    let section = document.split("\n## ").find(|section| section.starts_with("Rows")).expect("a section");
    let documented: Vec<(String, String)> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| {
            let (name, rest) = line.split_once("` | ")?;
            Some((name.to_owned(), rest.split(" | ").next()?.to_owned()))
        })
        .collect();
    let kind = |kind| match kind {
        table::TableType::Text => "text",
        table::TableType::Int32 => "int32",
        table::TableType::Int64 => "int64",
        table::TableType::Id64 => "uint64",
        table::TableType::Moment => "timestamp",
    };
    let columns: Vec<(String, String)> =
        table::columns().into_iter().map(|column| (column.name, kind(column.holds).to_owned())).collect();
    assert_eq!(documented, columns);
}
