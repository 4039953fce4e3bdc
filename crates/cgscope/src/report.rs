//! `cgscope report`: prints what happened in a recording.

use std::{io::Write, path::Path};

use cgscope_model::{Interval, Timeline, json::IntervalObject, table::interval::Appended, units};
use cgscope_record::Place;
use cgscope_view::{
    report::{About, Whole, html, report as report_text},
    text,
};
use cgscope_whatif::{history::History, words};

use crate::{
    cli::Report,
    exit::{Error, Result},
    output::{self, cannot_write, json_line},
    recording::{Recording, host_words, subject},
};

/// Maximum number of intervals to read: two for each column of a wide terminal, and enough for a chart.
const INTERVALS: u64 = 150;
/// Number of slices in the timeline. It is so large that no interval is split.
const SLICES: usize = 2 * INTERVALS as usize;

pub fn run(options: &Report) -> Result {
    let mut recording = Recording::open(&options.file)?;
    match &options.html {
        Some(path) => page(&mut recording, path)?,
        None if options.json => objects(&mut recording, options.all)?,
        None => {
            let whole = read(&mut recording)?;
            output::print(&report_text(&about(&recording, &whole.interval), &whole))?;
        }
    }
    Ok(recording.finish())
}

fn read(recording: &mut Recording) -> Result<Whole> {
    recording.at_most(INTERVALS)?;
    recording.history = Some(History::default());
    let (mut whole, mut timeline) = (Appended::default(), Timeline::new(SLICES));
    while let Some(interval) = recording.next_interval()? {
        timeline.add(&interval);
        whole.push(interval);
    }
    let mut whole = Whole::new(whole.into_interval(), timeline, &recording.reader.losses(), &recording.host);
    let history = recording.history.take().unwrap_or_default();
    whole.enough = words::lines(&whole.interval, &history);
    Ok(whole)
}

/// Describes the recording. Call this after the recording was read to its end.
fn about(recording: &Recording, whole: &Interval) -> About {
    let header = &recording.reader.header;
    let (samples, length) = (units::count(recording.samples, "sample"), units::duration(whole.duration_ns));
    let (start, every) = (text::utc(whole.start_unix_ns), units::duration(header.interval_ns));
    let extent = format!("{samples} over {length}, starting at {start}, one every {every}");
    let what = format!("the {} on {}", subject(header), header.hostname);
    let (file, host_words, ending) = (recording.file.clone(), host_words(header), recording.ending_words());
    About { file, what, host_words, extent, ending, host: recording.host }
}

fn page(recording: &mut Recording, path: &Path) -> Result<()> {
    // Checks the file first, so that no long recording is read for a page that cannot be written.
    let place = place(path)?;
    let whole = read(recording)?;
    let page = html::page(&about(recording, &whole.interval), &whole);
    let Some(place) = place else { return output::print(&page) };
    output::replace(&place, &page).map_err(|error| cannot_write(&place.path, error, NO_PAGE))?;
    say!("cgscope: wrote a page of {} to {}", units::bytes(page.len() as u64), place.path.display());
    Ok(())
}

fn objects(recording: &mut Recording, all: bool) -> Result<()> {
    let mut out = output::stdout();
    while let Some(interval) = recording.next_interval()? {
        let object = IntervalObject { all, ..IntervalObject::new(&interval, &recording.host) };
        json_line(&mut out, &object).map_err(Error::output)?;
    }
    out.flush().map_err(Error::output)
}

/// Checks the output; `None` is standard output.
fn place(path: &Path) -> Result<Option<Place>> {
    let is_ours = |place: &Place| output::begins_with(place, &[html::BEGINNING]);
    let is_file = path != Path::new("-");
    is_file.then(|| output::place(path, "a report page", is_ours, NO_PAGE)).transpose()
}

const NO_PAGE: &str = "there is no page: name another file with --html";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_our_page_is_not_replaced() {
        let dir = std::env::temp_dir().join(format!("cgscope-page-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let file = dir.join("a.html");
        let page = format!("{}<html>", html::BEGINNING);
        for _ in 0..2 {
            output::replace(&place(&file).unwrap().unwrap(), &page).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), page);
        std::fs::write(&file, "notes of a year").unwrap();
        let refused = place(&file).unwrap_err();
        assert!(refused.sentence.contains("something other than a report page"), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "notes of a year");
        assert!(place(&dir).unwrap_err().sentence.contains("a directory"));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "nothing is left beside it");
        assert!(place(Path::new("-")).unwrap().is_none());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
