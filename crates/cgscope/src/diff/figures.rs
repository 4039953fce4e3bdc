//! Names, values and verdicts as people read them.

use cgscope_model::{
    CgroupName,
    diff::{Change, Figure, Presence, SMALL_ERROR, Subject, Unit, Verdict},
    units::duration,
};

use crate::causes;

/// What a figure is called in a table.
pub fn name(figure: Figure) -> String {
    match figure {
        Figure::Wait | Figure::Behind => "waiting".into(),
        Figure::Cause(cause) => causes::words(cause).into(),
        Figure::Waits => "waits".into(),
        Figure::MeanWait => "mean wait".into(),
        Figure::Quantile(500) => "median wait".into(),
        Figure::Quantile(_) => format!("{} of waits", figure.name()),
        Figure::OnCpu => "on CPU".into(),
        Figure::Counted(counter) => {
            counter.info().diff.map_or(counter.name(), |compared| compared.words).into()
        }
        Figure::ThrottledPeriods => "periods out of quota".into(),
        Figure::Stood => "stood out of quota".into(),
        Figure::RemoteShare => "memory on other nodes".into(),
        Figure::CpuBusy => "CPUs busy".into(),
        Figure::Hook => "time in the hook".into(),
        Figure::Collector => "CPU time of the collector".into(),
    }
}

/// Whom it is about.
pub fn whose(subject: &Subject) -> String {
    match subject {
        Subject::All => "all that was recorded".into(),
        Subject::Cgroup(path) => match CgroupName::of(path).words() {
            Some(whose) => format!("{path} ({whose})"),
            None => path.to_string(),
        },
        Subject::Program(comm) => format!("program {comm}"),
        Subject::Behind { victim, culprit } => {
            format!("{victim} behind {}", culprit.as_deref().unwrap_or("kernel threads"))
        }
        Subject::Own => "cgscope itself".into(),
    }
}

/// A value in its unit.
pub fn value(unit: Unit, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    match unit {
        Unit::WallShare | Unit::Share => format!("{}%", digits(value * 100.0)),
        Unit::PerSecond => format!("{}/s", digits(value)),
        Unit::Ns => duration(value as u64),
    }
}

/// Three digits, more for what is larger.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The change relative to before: `-19%`, `x12`, `new`, `gone`.
pub fn relative(change: &Change) -> String {
    match (change.before, change.after) {
        (Some(before), Some(after)) if before == after => "none".into(),
        (Some(0.0) | None, Some(_)) => "new".into(),
        (Some(_), Some(0.0) | None) => "gone".into(),
        (Some(before), Some(after)) if after / before >= 10.0 => format!("x{:.0}", after / before),
        (Some(before), Some(after)) => format!("{:+.1}%", 100.0 * (after - before) / before),
        (None, None) => "-".into(),
    }
}

/// `-10.4 to -9.1 points`: where the change lies.
pub fn interval(change: &Change) -> String {
    let Some((low, high)) = change.interval else { return "-".into() };
    let signed = |value: f64| format!("{}{}", if value < 0.0 { "-" } else { "+" }, digits(value.abs()));
    match change.figure.unit() {
        Unit::WallShare | Unit::Share => {
            format!("{} to {} points", signed(low * 100.0), signed(high * 100.0))
        }
        Unit::PerSecond => format!("{} to {} /s", signed(low), signed(high)),
        Unit::Ns => {
            let signed =
                |ns: f64| format!("{}{}", if ns < 0.0 { "-" } else { "+" }, duration(ns.abs() as u64));
            format!("{} to {}", signed(low), signed(high))
        }
    }
}

/// How sure a change that is called is, in percent.
pub fn confidence(change: &Change) -> &'static str {
    if change.p.is_some_and(|p| p <= SMALL_ERROR) { "99.9%" } else { "99%" }
}

/// What is to be thought of it.
pub fn verdict(change: &Change) -> String {
    match change.verdict {
        Verdict::MoreThanNoise => format!("more than noise ({})", confidence(change)),
        Verdict::WithinNoise => "within noise".into(),
        Verdict::Negligible => "sure, but negligible".into(),
        Verdict::TooFewEvents => "too few events".into(),
        Verdict::TooShort => "too short to say".into(),
    }
}

/// Where it was, if not on both sides.
pub fn presence(presence: Presence) -> &'static str {
    match presence {
        Presence::Both => "",
        Presence::OnlyBefore => " (only before)",
        Presence::OnlyAfter => " (only after)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before: f64, after: f64) -> Change {
        Change {
            subject: Subject::All,
            figure: Figure::Wait,
            presence: Presence::Both,
            before: Some(before),
            after: Some(after),
            interval: Some((-0.104, -0.091)),
            p: Some(0.0005),
            verdict: Verdict::MoreThanNoise,
            size: 0.0,
        }
    }

    #[test]
    fn values_have_three_digits_and_their_unit() {
        let said = [(Unit::WallShare, 0.4981), (Unit::PerSecond, 1_234.5), (Unit::Ns, 4_560_000.0)]
            .map(|(unit, number)| value(unit, Some(number)));
        assert_eq!(said, ["49.8%", "1234/s", "4.56ms"]);
        assert_eq!(value(Unit::Ns, None), "-");
    }

    #[test]
    fn a_change_from_nothing_is_new_and_to_nothing_is_gone() {
        let said = [(0.5, 0.4), (0.01, 0.5), (0.0, 0.5), (0.5, 0.0), (0.5, 0.5)]
            .map(|(b, a)| relative(&change(b, a)));
        assert_eq!(said, ["-20.0%", "x50", "new", "gone", "none"]);
        assert_eq!(interval(&change(0.5, 0.4)), "-10.4 to -9.10 points");
        assert_eq!(verdict(&change(0.5, 0.4)), "more than noise (99.9%)");
    }
}
