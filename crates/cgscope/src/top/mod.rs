//! `cgscope top`: the live screen, or text with `-b`.

mod live;
pub mod screen;

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use cgscope_model::{Interval, findings::Host, json::IntervalObject, printable, table::interval::Appended};
use cgscope_view::app::{About, App, Begin, View, list::ListKind};
use cgscope_view::batch::{self, Asked};
use cgscope_view::{
    data::{Data, Key},
    settings::Settings,
    snapshot,
};
use crossterm::event::{self, Event};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::mpsc;

use crate::cli::{Target, Top};
use crate::exit::{Error, Result, spawn};
use crate::output::{self, Stdout, json_line};
use crate::session::{self, Pace};
use crate::{child::Output, record::Tee, run::for_each_interval, settings::Store, terminal::Screen};

/// The command that an error recommends if there is no terminal.
const INSTEAD: &str = "cgscope top -b";

pub async fn run(options: &Top) -> Result {
    let mut target = Target::new(&options.select)?;
    target.output = if options.batch { Output::ToStandardError } else { Output::Nowhere };
    let pace = |settings: &Settings| {
        let interval = options.delay.unwrap_or(settings.interval);
        Pace { interval, duration: None, count: options.iterations }
    };
    if options.batch {
        // Ignores the user's settings, so that scripts get the same output for all users.
        let pace = pace(&Settings::default());
        let mut printer = Printer::new(options)?;
        let (ready, tee) = Tee::set_up(options, &target, pace)?;
        printer.about.title = ready.session.title.clone();
        let print = |out: &mut _, interval: &_, host: &_| printer.interval(out, interval, host);
        let ended = for_each_interval(ready.go(), false, tee, print).await?;
        output::print(&printer.average())?;
        return Ok(ended);
    }
    let (remembered, settings) = Store::open();
    let pace = pace(&settings);
    let view = options.view.unwrap_or(settings.view);
    // It is unknown before the first interval which of these lists the view will show.
    let kinds = [(true, true), (false, true), (false, false)]
        .map(|(tree, processes)| view.kind(&Key::All, tree, processes));
    // If no list has the column to sort by, the error names the columns of the first list.
    if !kinds.iter().any(|kind| options.sort_of(*kind).is_ok()) {
        options.sort_of(kinds[0])?;
    }
    let begin = Begin { view: options.view, sort: options.sort.clone(), filter: options.filter.clone() };
    // Checks the terminal before anything starts. Takes it over last, because messages on standard error are visible until then.
    Screen::check(INSTEAD)?;
    let (ready, tee) = Tee::set_up(options, &target, pace)?;
    live::run(ready, tee, remembered, settings, begin).await
}

struct Printer<'a> {
    options: &'a Top,
    about: About,
    asked: Asked,
    /// The whole run, for the average; `None` for an endless run, a single interval or JSON.
    whole: Option<Appended>,
    printed: u64,
}

impl<'a> Printer<'a> {
    fn new(options: &'a Top) -> Result<Self> {
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
        let asked = Asked { kind, sort, reversed: false, filter, idle: options.all };
        let whole = (options.iterations > Some(1) && !options.json).then(Appended::default);
        Ok(Self { options, about: session::about(), asked, whole, printed: 0 })
    }

    fn interval(&mut self, out: &mut Stdout, interval: &Interval, host: &Host) -> io::Result<()> {
        if self.options.json {
            let object = IntervalObject { all: self.options.all, ..IntervalObject::new(interval, host) };
            return json_line(out, &object);
        }
        let data = Data::new(interval.clone().into(), host);
        if self.printed == 0 {
            out.write_all(batch::banner(&self.about, &data).as_bytes())?;
        }
        self.printed += 1;
        if let Some(whole) = &mut self.whole {
            whole.push(interval.clone());
        }
        out.write_all(batch::interval(&data, &self.asked).as_bytes())
    }

    fn average(self) -> String {
        let whole = self.whole.filter(|_| self.printed > 1).map(Appended::into_interval);
        let data = whole.map(|whole| Data::new(whole.into(), &Host::default()));
        data.map_or_else(String::new, |data| batch::average(&data, &self.asked))
    }
}

/// Number of file names to try. Several dumps in one second need different names.
const TRIES: u32 = 100;

/// Writes a screen dump to a new file in the working directory. Returns a sentence about the result.
pub fn write(app: &App) -> String {
    let Some((text, end_unix_ns)) = snapshot::text(app) else {
        return "nothing has been measured yet, so there is nothing to write".into();
    };
    match create(end_unix_ns).and_then(|(mut file, path)| file.write_all(text.as_bytes()).map(|()| path)) {
        Ok(path) => format!("written to {}", printable(&path.display().to_string())),
        Err(error) => format!("not written: {error}; dumps go to the directory where cgscope was started"),
    }
}

fn create(unix_ns: u64) -> io::Result<(std::fs::File, PathBuf)> {
    let stamp = format!("cgscope-{}Z", output::date_and_time(unix_ns));
    let names = (0..TRIES).map(|n| if n == 0 { format!("{stamp}.txt") } else { format!("{stamp}-{n}.txt") });
    for name in names {
        match cgscope_record::create_here(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => return Ok((file?, std::env::current_dir().unwrap_or_default().join(name))),
        }
    }
    Err(Errno::EXIST.into())
}

/// Maximum number of events to pass on at once: more than anybody types or scrolls between two frames.
pub const MOST_EVENTS: usize = 4096;
/// Time to wait for the rest of a burst of input. It is not zero, because crossterm would then read nothing.
const REST: Duration = Duration::from_millis(1);

/// Reads input on a thread, which ends when the terminal closes. The receiver then gets no more events.
pub fn input() -> Result<mpsc::UnboundedReceiver<Event>> {
    let (send, receive) = mpsc::unbounded_channel();
    spawn(move || {
        // The end of the input or an error means that the terminal has closed. Then cgscope ends, too.
        while let Ok(true) = wait() {
            while let Ok(true) = event::poll(REST) {
                let Ok(event) = event::read() else { return };
                if send.send(event).is_err() {
                    return;
                }
            }
        }
    })?;
    Ok(receive)
}

/// Waits for input. Returns false at the end of input, where crossterm would loop for ever.
fn wait() -> io::Result<bool> {
    let stdin = rustix::stdio::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut fds, None) {
        Ok(_) => Ok(!fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
