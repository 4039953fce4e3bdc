//! Names, values and verdicts in words.

use cgscope_model::{
    Names,
    diff::{Change, DiffSubject, FigureUnit, Presence, SMALL_ERROR, Verdict},
    units::duration,
};

pub fn subject(subject: &DiffSubject) -> String {
    match subject {
        DiffSubject::All => "the whole recording".into(),
        DiffSubject::Cgroup { path } => Names::default().of(path).into(),
        DiffSubject::Program { comm } => format!("program {comm}"),
        DiffSubject::Behind { victim, culprit } => {
            format!("{victim} behind {}", culprit.as_deref().unwrap_or("kernel threads"))
        }
        DiffSubject::Own => "cgscope itself".into(),
    }
}

pub fn value(unit: FigureUnit, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    match unit {
        FigureUnit::WallShare | FigureUnit::Share => format!("{}%", digits(value * 100.0)),
        FigureUnit::PerSecond => format!("{}/s", digits(value)),
        FigureUnit::Ns => duration(value as u64),
    }
}

/// Three significant digits, or all digits before the decimal point.
fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The change relative to the value before: `-19%`, `x12`, `new`, `gone`.
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

/// The confidence interval of the change: `-10.4 to -9.1 points`.
pub fn interval(change: &Change) -> String {
    let Some((low, high)) = change.low.zip(change.high) else { return "-".into() };
    let (words, unit): (fn(f64) -> String, _) = match change.figure.unit {
        FigureUnit::WallShare | FigureUnit::Share => (|value| digits(value * 100.0), " points"),
        FigureUnit::PerSecond => (digits, " /s"),
        FigureUnit::Ns => (|value| duration(value as u64), ""),
    };
    let signed = |value: f64| format!("{}{}", if value < 0.0 { '-' } else { '+' }, words(value.abs()));
    format!("{} to {}{unit}", signed(low), signed(high))
}

pub fn verdict(change: &Change) -> &'static str {
    match change.verdict {
        Verdict::MoreThanNoise if change.p.is_some_and(|p| p <= SMALL_ERROR) => "more than noise (99.9%)",
        Verdict::MoreThanNoise => "more than noise (99%)",
        Verdict::WithinNoise => "within noise",
        Verdict::Negligible => "sure, but negligible",
        Verdict::TooFewEvents => "too few events",
        Verdict::TooShort => "too short to say",
    }
}

pub fn presence(presence: Presence) -> &'static str {
    match presence {
        Presence::Both => "",
        Presence::OnlyBefore => " (only before)",
        Presence::OnlyAfter => " (only after)",
    }
}

#[cfg(test)]
mod tests {
    use cgscope_model::diff::figures;

    use super::*;

    fn change(before: f64, after: f64) -> Change {
        Change {
            subject: DiffSubject::All,
            figure: figures()[0],
            presence: Presence::Both,
            before: Some(before),
            after: Some(after),
            change: Some(after - before),
            relative: Some((after - before) / before),
            low: Some(-0.104),
            high: Some(-0.091),
            p: Some(0.0005),
            verdict: Verdict::MoreThanNoise,
            size: 0.0,
        }
    }

    #[test]
    fn values_have_three_digits_and_their_unit() {
        let said = [
            (FigureUnit::WallShare, 0.4981),
            (FigureUnit::PerSecond, 1_234.5),
            (FigureUnit::Ns, 4_560_000.0),
        ]
        .map(|(unit, number)| value(unit, Some(number)));
        assert_eq!(said, ["49.8%", "1234/s", "4.56ms"]);
        assert_eq!(value(FigureUnit::Ns, None), "-");
    }

    #[test]
    fn a_change_from_zero_is_new_and_to_zero_is_gone() {
        let said = [(0.5, 0.4), (0.01, 0.5), (0.0, 0.5), (0.5, 0.0), (0.5, 0.5)]
            .map(|(b, a)| relative(&change(b, a)));
        assert_eq!(said, ["-20.0%", "x50", "new", "gone", "none"]);
        assert_eq!(interval(&change(0.5, 0.4)), "-10.4 to -9.10 points");
        assert_eq!(verdict(&change(0.5, 0.4)), "more than noise (99.9%)");
    }
}
