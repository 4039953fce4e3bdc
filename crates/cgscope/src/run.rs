//! The loop of the commands that print: Samples in, Intervals out.

use cgscope_model::{Interval, Sample, findings::Host, interval::Appended};

use crate::{
    exit::{Error, Exit, Result},
    request::Target,
    session::{self, End, Pace, Session, Step},
};

/// How the Samples become Intervals.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How often and how long.
    pub pace: Pace,
    /// One Interval over the whole run instead of one for each two Samples.
    pub merge: bool,
}

/// Measures, and calls `each` with every interval.
pub async fn for_each_interval(
    target: &Target,
    plan: Plan,
    mut each: impl FnMut(&Interval, &Host) -> Result<()>,
) -> Result {
    let mut session = Session::start(target, plan.pace)?;
    let mut earlier: Option<Sample> = None;
    let mut whole = Appended::default();
    let mut worst = Exit::Done;
    let end = loop {
        let (sample, end) = match session.next().await {
            Ok(Step::Sample(sample)) => (sample, None),
            Ok(Step::Last(sample, end)) => (sample, Some(end)),
            Err(error) => {
                // What was measured before is not given up.
                let whole = whole.into_interval();
                if plan.merge && whole.duration_ns != 0 {
                    each(&whole, &session.host)?;
                }
                return Err(error);
            }
        };
        if let Some(earlier) = &earlier {
            let mut interval = Interval::between(earlier, &sample);
            select(&session, &mut interval)?;
            worst = worst.max(losses(&interval));
            if plan.merge {
                whole.push(interval);
            } else if !is_leftover(&interval, end.as_ref(), plan) {
                each(&interval, &session.host)?;
            }
        }
        earlier = Some(sample);
        if let Some(end) = end {
            break end;
        }
    };
    if plan.merge {
        each(&whole.into_interval(), &session.host)?;
    }
    Ok(worst.max(finish(&mut session, &end)))
}

/// Says why it ended where that is not what was asked for.
pub fn finish(session: &mut Session, end: &End) -> Exit {
    session.end_command(end);
    match end {
        End::TargetGone => {
            say!("cgscope: {}: {}; figures are up to that moment", session.title, session::words(end))
        }
        End::CommandEnded(status) if !status.success() => say!("cgscope: {}", session::words(end)),
        _ => {}
    }
    session::exit(end)
}

/// Leaves out what was not asked for.
pub fn select(session: &Session, interval: &mut Interval) -> Result<()> {
    session.selection.apply(interval).map_err(|error| Error::could_not_run(error.to_string()))
}

/// A measurement that lost something of what the host shows is incomplete.
pub fn losses(interval: &Interval) -> Exit {
    if interval.losses.nonzero().any(|(loss, _)| !loss.leaves_result_whole()) {
        Exit::Incomplete
    } else {
        Exit::Done
    }
}

/// The rest between the last tick and an interrupt: not an interval that was asked for.
fn is_leftover(interval: &Interval, end: Option<&End>, plan: Plan) -> bool {
    let asked_ns = plan.pace.interval.as_nanos() as u64;
    matches!(end, Some(End::Interrupted)) && interval.duration_ns < asked_ns / 10
}
