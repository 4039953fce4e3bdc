//! CPU quotas that other tools would advise. Tests compare these quotas with the advice of `cgscope whatif`. All quotas and
//! usages are in CPUs.

/// Returns the percentile at `share` (0 to 1), or 0 without values. Interpolates between neighbouring values, as numpy and
/// Prometheus do.
fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// Returns the advice of KRR's simple strategy: `p95(usage)`, the 95th percentile (robusta-dev/krr, `strategies/simple.py`:
/// `cpu_percentile` 95). KRR uses this value as the CPU request and sets no limit. Tests compare this value with CPU quotas.
pub fn krr(usage: &[f64]) -> f64 {
    percentile(usage, 0.95)
}

/// Returns the target of the Vertical Pod Autoscaler: `max(1.15 * p90(usage), 0.025)` (kubernetes/autoscaler,
/// `recommender/logic/recommender.go`: `target-cpu-percentile` 0.9, `recommendation-margin-fraction` 0.15,
/// `pod-recommendation-min-cpu-millicores` 25). Leaves out two steps of the autoscaler, which halves the weight of a value every
/// 24 h, and rounds values up to buckets that grow by 5 %.
pub fn vpa(usage: &[f64]) -> f64 {
    (1.15 * percentile(usage, 0.9)).max(0.025)
}

/// The input of [`captain`]: figures at the end of a round.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The quota in force.
    pub quota: f64,
    /// Share of throttled periods among the last N = 10 periods, 0 to 1.
    pub throttled: f64,
    /// Wanted share of throttled periods, 0 to 1.
    pub target: f64,
    /// CPU usage in each of the last M = 50 periods, oldest first.
    pub usage: &'a [f64],
}

/// Returns the quota of Autothrottle's Captain after one round (arXiv 2212.12180, "Captains"; microsoft/autothrottle,
/// `worker-daemon.py`). The round starts from the Captain's initial state:
///
/// ```text
/// margin = max(0, margin + throttled - target)           margin begins at 3
/// if throttled > alpha * target:                         alpha = 3
///     quota *= 1 + throttled - alpha * target
/// else:
///     proposed = max(usage) + margin * stdev(usage)      sample standard deviation
///     if proposed <= beta_max * quota:                   beta_max = 0.9
///         quota = max(beta_min * quota, proposed)        beta_min = 0.5
/// ```
pub fn captain(round: Round<'_>) -> f64 {
    const ALPHA: f64 = 3.0;
    const BETA: [f64; 2] = [0.5, 0.9];
    const FIRST_MARGIN: f64 = 3.0;
    let Round { quota, throttled, target, usage } = round;
    if throttled > ALPHA * target {
        return quota * (1.0 + throttled - ALPHA * target);
    }
    let margin = (FIRST_MARGIN + throttled - target).max(0.0);
    let proposed = usage.iter().copied().fold(0.0, f64::max) + margin * deviation(usage);
    if proposed <= BETA[1] * quota { proposed.max(BETA[0] * quota) } else { quota }
}

/// Returns the sample standard deviation; 0 for fewer than two values.
fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0).max(1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    #[test]
    fn percentiles_are_interpolated_in_any_order() {
        let values = [0.5, 0.1, 0.3, 0.2, 0.4];
        assert_near(percentile(&values, 0.0), 0.1);
        assert_near(percentile(&values, 0.5), 0.3);
        assert_near(percentile(&values, 0.9), 0.46);
        assert_near(percentile(&values, 1.0), 0.5);
        assert_near(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn krr_and_the_autoscaler_follow_their_percentiles() {
        let usage: Vec<f64> = (0..=100).map(|percent| f64::from(percent) / 100.0).collect();
        assert_near(krr(&usage), 0.95);
        assert_near(vpa(&usage), 1.15 * 0.9);
        assert_near(vpa(&[0.001]), 0.025);
    }

    #[test]
    fn a_captain_multiplies_a_quota_that_throttles_too_much() {
        let round = Round { quota: 0.5, throttled: 1.0, target: 0.01, usage: &[0.5; 5] };
        assert_near(captain(round), 0.5 * 1.97);
        // If the throttled share is exactly three times the target, the quota does not change.
        assert_near(captain(Round { throttled: 0.03, ..round }), 0.5);
    }

    #[test]
    fn a_captain_scales_down_to_the_largest_usage_and_a_margin_at_most_by_half() {
        let usage = [0.2, 0.3, 0.2, 0.3];
        let round = Round { quota: 1.0, throttled: 0.0, target: 0.01, usage: &usage };
        // The standard deviation of `usage` is the square root of 4 * 0.05^2 / 3.
        assert_near(captain(round), 0.5);
        assert_near(captain(Round { quota: 0.6, ..round }), 0.3 + 2.99 * (0.01f64 / 3.0).sqrt());
        // The proposed quota is more than 90 % of the old quota, so the quota does not change.
        assert_near(captain(Round { quota: 0.5, ..round }), 0.5);
    }
}
