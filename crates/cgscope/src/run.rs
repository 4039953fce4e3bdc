//! The loop of commands that print: reads samples, and passes each interval on.

use std::{
    io::{self, Write},
    time::Duration,
};

use cgscope_model::{Interval, findings::Host, table::interval::Appended};

use crate::{
    cli::Rhythm,
    exit::{Error, Exit, Result},
    feed::ns,
    output::{self, Stdout},
    record::Tee,
    session::{self, End, Pace, Session, Step},
};

/// Interval between samples if the user gives none. It is short, so that exited tasks still get their own rows.
const UNASKED_INTERVAL: Duration = Duration::from_secs(1);

pub fn pace(rhythm: &Rhythm) -> Pace {
    let Rhythm { interval, count, duration } = *rhythm;
    Pace { interval: interval.unwrap_or(UNASKED_INTERVAL), duration, count }
}

/// Measures, writes each sample to the tee, and calls `print` with each interval; with `merge`, once with the whole run.
pub async fn for_each_interval(
    mut session: Session,
    merge: bool,
    mut tee: Tee,
    print: impl FnMut(&mut Stdout, &Interval, &Host) -> io::Result<()>,
) -> Result {
    match measure(&mut session, merge, &mut tee, print).await {
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
    merge: bool,
    tee: &mut Tee,
    mut print: impl FnMut(&mut Stdout, &Interval, &Host) -> io::Result<()>,
) -> Result<(Exit, End)> {
    let mut out = output::stdout();
    let mut print = |interval: &Interval, host: &Host| {
        print(&mut out, interval, host).and_then(|()| out.flush()).map_err(Error::output)
    };
    let mut whole = Appended::default();
    let mut worst = Exit::Done;
    let ended = loop {
        let Step { interval, restarted, end } = match session.next_step().await {
            Ok(step) => step,
            Err(error) => break Err(error),
        };
        if restarted {
            worst = worst.max(Exit::Incomplete);
            tee.begins_anew();
        }
        // An interrupt cut the interval to less than a tenth of the requested length.
        let is_leftover = end == Some(End::Interrupted)
            && interval.as_ref().is_some_and(|cut| cut.duration_ns < ns(session.pace.interval) / 10);
        if let Some(sample) = session.latest().filter(|_| !is_leftover) {
            tee.sample(sample);
        }
        if let Some(interval) = interval {
            worst = worst.max(Exit::of_losses(&interval.losses));
            if merge {
                whole.push(interval);
            } else if !is_leftover {
                print(&interval, &session.host)?;
            }
        }
        if let Some(end) = end {
            break Ok((worst, end));
        }
    };
    // After an error, the interval until the error is still reported.
    let whole = whole.into_interval();
    if merge && (ended.is_ok() || whole.duration_ns != 0) {
        print(&whole, &session.host)?;
    }
    ended
}
