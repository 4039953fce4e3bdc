//! `cgscope top`: the live screen, or text with `-b`.

mod enough;
mod input;
mod live;
mod names;
pub mod screen;
mod screen_dump;

use std::io::{self, Write};

use cgscope_model::{Interval, findings::Host, interval::Appended, json::IntervalObject};
use cgscope_view::{
    app::{About, Begin, list::ListKind, view::View},
    batch::{self, Asked},
    data::Data,
    settings::Settings,
    subject::Key,
};

use crate::{
    child::Output,
    cli::Top,
    exit::{Error, Result},
    record::Tee,
    request::Target,
    run::for_each_interval,
    session::{self, Pace, Ready},
    settings::Store,
    terminal::Screen,
};

/// The command that prints text where there is no terminal.
const INSTEAD: &str = "cgscope top -b";

pub async fn run(options: &Top) -> Result {
    let mut target = Target::new(&options.select)?;
    target.output = if options.batch { Output::ToStandardError } else { Output::Nowhere };
    let pace = |settings: &Settings| {
        let interval = options.delay.unwrap_or(settings.interval);
        Pace { interval, duration: None, count: options.iterations }
    };
    if options.batch {
        // Ignore the user's settings: scripts get the same output whoever runs them.
        let pace = pace(&Settings::default());
        let mut printer = Printer::new(options, &target)?;
        let (ready, tee) = set_up(&target, pace, options)?;
        printer.about.title.clone_from(&ready.session.title);
        let ended = for_each_interval(ready.go(), false, tee, |interval, host| {
            printer.interval(interval, host).map_err(|error| Error::output(&error))
        })
        .await?;
        printer.end().map_err(|error| Error::output(&error))?;
        return Ok(ended);
    }
    let (remembered, settings) = Store::open();
    let pace = pace(&settings);
    let view = options.view.unwrap_or(settings.view);
    // The list that the view shows is known only after the first interval.
    let kinds = [(true, true), (false, true), (false, false)]
        .map(|(tree, processes)| view.kind(&Key::All, tree, processes));
    let sort = options.sort_among(&kinds)?;
    let begin = Begin { view: options.view, sort, filter: options.filter.clone() };
    // Check the terminal first, before anything is started. Take it over last: until then messages on standard error are visible.
    Screen::check(INSTEAD)?;
    let (ready, tee) = set_up(&target, pace, options)?;
    live::run(ready, tee, remembered, settings, begin, pace.interval).await
}

fn set_up(target: &Target, pace: Pace, options: &Top) -> Result<(Ready, Tee)> {
    Tee::set_up(options.record.as_deref(), !options.batch, target, pace)
}

struct Printer<'a> {
    out: io::BufWriter<io::StdoutLock<'static>>,
    options: &'a Top,
    about: About,
    asked: Asked,
    /// The whole run, for the average; `None` for an endless run, a single interval or JSON.
    whole: Option<Appended>,
    printed: u64,
}

impl<'a> Printer<'a> {
    fn new(options: &'a Top, target: &Target) -> Result<Self> {
        let kind = match options.view {
            None | Some(View::Overview) => ListKind::Threads,
            Some(View::Cgroups) => ListKind::Cgroups,
            Some(view) => {
                return Err(Error::could_not_run(format!(
                    "-b prints tasks (`--view overview`) or cgroups (`--view cgroups`), not {}, which only the screen shows",
                    view.name()
                )));
            }
        };
        let sort = options.sort_of(kind)?.unwrap_or(kind.sorted_by());
        let filter = options.filter.clone().unwrap_or_default();
        Ok(Self {
            out: io::BufWriter::with_capacity(1 << 16, io::stdout().lock()),
            options,
            about: About { title: target.words(), ..session::about() },
            asked: Asked { kind, sort, reversed: false, filter, idle: options.all },
            whole: options
                .iterations
                .filter(|count| *count > 1 && !options.json)
                .map(|_| Appended::default()),
            printed: 0,
        })
    }

    fn interval(&mut self, interval: &Interval, host: &Host) -> io::Result<()> {
        if self.options.json {
            serde_json::to_writer(
                &mut self.out,
                &IntervalObject::new(interval, host).listing(self.options.all),
            )?;
            writeln!(self.out)?;
            return self.out.flush();
        }
        let data = Data::new(interval.clone().into(), host);
        if self.printed == 0 {
            self.out.write_all(batch::banner(&self.about, &data).as_bytes())?;
        }
        self.printed += 1;
        self.out.write_all(batch::interval(&data, &self.asked).as_bytes())?;
        if let Some(whole) = &mut self.whole {
            whole.push(interval.clone());
        }
        self.out.flush()
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some(whole) = self.whole.take().filter(|_| self.printed > 1) {
            let data = Data::new(whole.into_interval().into(), &Host::default());
            self.out.write_all(batch::average(&data, &self.asked).as_bytes())?;
        }
        self.out.flush()
    }
}
