//! The screen of the running host: a session feeds it.

use std::{sync::Arc, time::Duration};

use cgscope_model::Sample;
use cgscope_record::Reason;

use crate::{
    exit::{Error, Exit, Result},
    record::{self, Tee},
    run::{between, finish, losses},
    session::{self, End, Ready, Session, Step},
    terminal::Screen,
    top::{
        INSTEAD,
        screen::{Feed, Flow, show},
        state::App,
    },
};

/// Runs the screen over what is set up.
pub async fn run(ready: Ready, mut tee: Tee, interval: Duration) -> Result {
    let taken = Screen::take(INSTEAD);
    let mut screen = taken.inspect_err(|_| tee.end(Reason::Failed))?;
    let session = ready.go();
    let mut app = App::new(session.title.clone(), interval);
    app.host = session.host;
    app.coarse = session.coarse.as_ref().map(|coarse| coarse.because.clone());
    app.recorded = tee.state();
    let mut live = Live { session, tee, earlier: None, worst: Exit::Done, end: None };
    let shown = show(&mut screen, &mut app, &mut live).await;
    // Only what is printed after this is seen.
    drop(screen);
    live.close(shown)
}

/// A session that feeds a screen.
struct Live {
    session: Session,
    tee: Tee,
    earlier: Option<Sample>,
    worst: Exit,
    end: Option<End>,
}

impl Live {
    fn close(mut self, shown: Result<()>) -> Result {
        // Not if it has come to its end by itself. Whoever quits has seen enough.
        self.tee.end(match &shown {
            Ok(()) => Reason::Interrupted,
            Err(error) => record::reason_of_error(&self.session, error),
        });
        self.tee.leave_screen();
        let kept = self.tee.exit();
        shown.map_err(|error| Error { exit: error.exit.max(kept), ..error })?;
        self.session.say_limits();
        // A command that still runs is ended, too.
        let end = self.end.unwrap_or(End::Finished);
        Ok(self.worst.max(kept).max(finish(&mut self.session, &end)))
    }

    fn take(&mut self, sample: Sample, app: &mut App) -> Result<()> {
        self.tee.sample(&sample);
        if let Some(earlier) = &self.earlier {
            let interval = between(&self.session, earlier, &sample)?;
            self.worst = self.worst.max(losses(&interval));
            app.on_interval(Arc::new(interval));
        }
        self.earlier = Some(sample);
        Ok(())
    }
}

impl Feed for Live {
    async fn next(&mut self, app: &mut App) -> Result<Flow> {
        let (sample, end) = match self.session.next_or_signal(self.end.is_some()).await? {
            Some(Step::Sample(sample)) => (sample, None),
            Some(Step::Last(sample, end)) => (sample, Some(end)),
            None => return Ok(Flow::End),
        };
        self.take(sample, app)?;
        if let Some(end) = &end {
            self.tee.end(record::reason(end));
        }
        app.recorded = self.tee.state();
        let Some(end) = end else { return Ok(Flow::Draw) };
        let is_over = matches!(end, End::Interrupted | End::Finished);
        if !is_over {
            app.ended = Some(session::words(&end));
        }
        self.end = Some(end);
        Ok(if is_over { Flow::End } else { Flow::Draw })
    }
}
