//! The loop of the commands that print: Samples in, Intervals out.

use std::time::Duration;

use cgscope_model::{Interval, Sample, findings::Host, interval::Appended};

use crate::{
    cli::Rhythm,
    exit::{Error, Exit, Result},
    feed::Event,
    record::Tee,
    session::{self, End, Pace, Session},
};

/// Without an interval, what exits is still read this often, so that it has a row of its own.
const UNASKED_INTERVAL: Duration = Duration::from_secs(1);

/// How the Samples become Intervals.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How often and how long.
    pub pace: Pace,
    /// One Interval over the whole run instead of one for each two Samples.
    pub merge: bool,
}

impl Plan {
    /// As it was asked for.
    pub fn new(rhythm: &Rhythm) -> Self {
        let Rhythm { interval, count, duration } = *rhythm;
        let pace = Pace { interval: interval.unwrap_or(UNASKED_INTERVAL), duration, count };
        Self { pace, merge: interval.is_none() }
    }
}

/// Measures, and calls `each` with every interval, when the Samples that it is made of have gone into the tee.
pub async fn for_each_interval(
    mut session: Session,
    plan: Plan,
    mut tee: Tee,
    each: impl FnMut(&Interval, &Host) -> Result<()>,
) -> Result {
    match measure(&mut session, plan, &mut tee, each).await {
        Ok((worst, end)) => {
            tee.end(session::reason(&end));
            Ok(worst.max(tee.exit()).max(session.finish(&end)))
        }
        Err(error) => {
            tee.end(session.reason_of_error(&error));
            Err(Error { exit: error.exit.max(tee.exit()), ..error })
        }
    }
}

async fn measure(
    session: &mut Session,
    plan: Plan,
    tee: &mut Tee,
    mut each: impl FnMut(&Interval, &Host) -> Result<()>,
) -> Result<(Exit, End)> {
    let mut earlier: Option<Box<Sample>> = None;
    let mut whole = Appended::default();
    let mut worst = Exit::Done;
    let end = loop {
        let (sample, end) = match session.next().await {
            Ok(Event::Sample { sample, anew: true, .. }) => {
                worst = worst.max(Exit::Incomplete);
                tee.begins_anew();
                earlier = Some(sample);
                continue;
            }
            Ok(Event::Sample { sample, end, .. }) => (sample, end),
            Ok(Event::Message(sentence)) => {
                say!("cgscope: {sentence}");
                continue;
            }
            Err(error) => {
                // What was measured before is not given up.
                let whole = whole.into_interval();
                if plan.merge && whole.duration_ns != 0 {
                    each(&whole, &session.host)?;
                }
                return Err(error);
            }
        };
        let interval = earlier.as_ref().map(|earlier| session.between(earlier, &sample)).transpose()?;
        let is_leftover = interval.as_ref().is_some_and(|interval| is_leftover(interval, end.as_ref(), plan));
        if !is_leftover {
            tee.sample(&sample);
        }
        if let Some(interval) = interval {
            worst = worst.max(Exit::of_losses(&interval.losses));
            if plan.merge {
                whole.push(interval);
            } else if !is_leftover {
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
    Ok((worst, end))
}

/// The rest between the last tick and an interrupt: not an interval that was asked for.
fn is_leftover(interval: &Interval, end: Option<&End>, plan: Plan) -> bool {
    let asked_ns = plan.pace.interval.as_nanos() as u64;
    matches!(end, Some(End::Interrupted)) && interval.duration_ns < asked_ns / 10
}
