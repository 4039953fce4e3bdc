use super::{Counter::*, *};

#[test]
fn each_output_lists_the_counters_that_the_table_gives_it() {
    for counter in Counter::ALL {
        let info = counter.info();
        assert_eq!(info.top.is_some(), OF_TOP.contains(&counter), "{}", info.name);
        let in_metrics = OF_METRICS_FIRST.contains(&counter) || OF_METRICS.contains(&counter);
        assert_eq!(info.metric.is_some(), in_metrics, "{}", info.name);
    }
}

#[test]
fn the_documents_name_every_counter_in_json() {
    let figures = include_str!("../../../../docs/figures.md");
    let lists = [OF_TASK_TIME, OF_TASK, OF_TASK_BY_KERNEL, OF_CGROUP, OF_CPU_TIMES, OF_LIMITS, OF_TOTAL];
    for counter in lists.concat() {
        let name =
            counter.name().replace("pressure_some", "pressure_*").replace("pressure_full", "pressure_*");
        assert!(figures.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn counters_that_were_not_read_are_unknown() {
    let totals = Totals { migrations: 7, voluntary: 3, ..Totals::default() };
    let observed = |mode| Observed { mode, totals: Some(&totals), ..Observed::default() };
    assert_eq!(Migrations.of(&observed(Mode::Bpf)), Some(7));
    assert_eq!(Migrations.of(&observed(Mode::Coarse)), None, "only the hook counts moves");
    assert_eq!(Voluntary.of(&observed(Mode::Coarse)), Some(3));
    assert_eq!(Periods.of(&observed(Mode::Bpf)), None, "limits were not read");
}

#[test]
fn the_list_of_limits_is_the_longest() {
    for list in [OF_TASK_TIME, OF_TASK, OF_TASK_BY_KERNEL, OF_CPU_TIMES, OF_CGROUP, OF_QUOTA, OF_TOTAL] {
        assert!(list.len() <= OF_LIMITS.len(), "{list:?}");
    }
}
