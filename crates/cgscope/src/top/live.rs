//! The screen of the running host: a session feeds it.

use std::sync::Arc;

use cgscope_model::{Interval, Sample};

use crate::{
    exit::{Exit, Result},
    request::Target,
    run::{finish, losses, select},
    session::{self, End, Pace, Session, Step},
    terminal::Screen,
    top::{
        screen::{Feed, Flow, show},
        state::App,
    },
};

/// Runs the screen.
pub async fn run(target: &Target, pace: Pace) -> Result {
    // First: nothing is started for a terminal that is not there.
    let mut screen = Screen::take("cgscope top -b")?;
    let session = Session::start(target, pace)?;
    let mut app = App::new(session.title.clone(), pace.interval);
    app.host = session.host;
    app.coarse = session.coarse.as_ref().map(|coarse| coarse.because.clone());
    let mut live = Live { session, earlier: None, worst: Exit::Done, end: None };
    show(&mut screen, &mut app, &mut live).await?;
    // Only what is printed after this is seen.
    drop(screen);
    live.session.say_limits();
    // Whoever quits has seen enough: a command that still runs is ended, too.
    let end = live.end.unwrap_or(End::Finished);
    Ok(live.worst.max(finish(&mut live.session, &end)))
}

/// A session that feeds a screen.
struct Live {
    session: Session,
    earlier: Option<Sample>,
    worst: Exit,
    end: Option<End>,
}

impl Feed for Live {
    async fn next(&mut self, app: &mut App) -> Result<Flow> {
        let (sample, end) = match self.session.next_or_signal(self.end.is_some()).await? {
            Some(Step::Sample(sample)) => (sample, None),
            Some(Step::Last(sample, end)) => (sample, Some(end)),
            None => return Ok(Flow::End),
        };
        if let Some(earlier) = &self.earlier {
            let mut interval = Interval::between(earlier, &sample);
            select(&self.session, &mut interval)?;
            self.worst = self.worst.max(losses(&interval));
            app.on_interval(Arc::new(interval));
        }
        self.earlier = Some(sample);
        let Some(end) = end else { return Ok(Flow::Draw) };
        let is_over = matches!(end, End::Interrupted | End::Finished);
        if !is_over {
            app.ended = Some(session::words(&end));
        }
        self.end = Some(end);
        Ok(if is_over { Flow::End } else { Flow::Draw })
    }
}
