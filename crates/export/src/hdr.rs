//! Writes an interval log of HdrHistogram, in ns. Each interval has a histogram of all waits without a tag, and a histogram for
//! each cgroup, including its descendants. The tag of such a histogram is the path of the cgroup.

use std::{
    io::Write,
    time::{Duration, SystemTime},
};

use cgscope_model::{Hist, Interval, Losses, Mode, cgroup_name::UNNAMED};
use hdrhistogram::serialization::{
    V2DeflateSerializer,
    interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag},
};

use crate::{About, Error, Out, Result, Sink};

pub(crate) struct Hdr {
    out: Out,
    serializer: V2DeflateSerializer,
    start_unix_ns: u64,
    losses: Losses,
}

impl Hdr {
    pub(crate) fn new(mut out: Out, about: &About) -> Result<Self> {
        let mut serializer = V2DeflateSerializer::new();
        let start = SystemTime::UNIX_EPOCH + Duration::from_nanos(about.start_unix_ns);
        IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .add_comment(&about.measured_by)
            .add_comment("Waits for a CPU, ns. No tag: all waits. Tag: a cgroup and all cgroups below it.")
            .with_start_time(start)
            .with_base_time(start)
            .begin_log_with(&mut out, &mut serializer)?;
        Ok(Self { out, serializer, start_unix_ns: about.start_unix_ns, losses: Losses::default() })
    }
}

impl Sink for Hdr {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        if interval.mode == Mode::Coarse {
            return Err(Error::NoHistogram);
        }
        // Saturate, because the wall clock may have been set back.
        let start = Duration::from_nanos(interval.start_unix_ns.saturating_sub(self.start_unix_ns));
        let length = Duration::from_nanos(interval.duration_ns);
        // The log already has a header. Without comments and times, this call writes no second header.
        let mut log = IntervalLogWriterBuilder::new().begin_log_with(&mut self.out, &mut self.serializer)?;
        let mut write = |hist: &Hist, tag: Option<Tag<'_>>| {
            log.write_histogram(&hist.to_hdr(), start, length, tag).map_err(|error| match error {
                IntervalLogWriterError::IoError(error) => Error::Io(error),
                IntervalLogWriterError::SerializeError(error) => Error::Refused(error.to_string()),
            })
        };
        write(&interval.total().wait.hist, None)?;
        for (path, group) in interval.by_cgroup() {
            if !group.wait.hist.is_empty() {
                let tag = tag_text(path.as_deref().unwrap_or(UNNAMED));
                write(&group.wait.hist, Tag::new(&tag))?;
            }
        }
        self.losses.append(&interval.losses);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        writeln!(self.out, "#losses: {}", self.losses)?;
        Ok(self.out.flush()?)
    }
}

/// Converts a path to a tag: percent-encodes `%` and all characters that a tag cannot contain.
fn tag_text(path: &str) -> String {
    let codes = [("%", "%25"), (" ", "%20"), (",", "%2C"), ("\n", "%0A"), ("\r", "%0D")];
    codes.into_iter().fold(path.to_owned(), |text, (plain, code)| text.replace(plain, code))
}

#[cfg(test)]
mod tests {
    use super::{Tag, tag_text};

    #[test]
    fn any_path_is_a_tag() {
        assert_eq!(tag_text("/system.slice/a b,c%\n"), "/system.slice/a%20b%2Cc%25%0A");
        assert!(Tag::new(&tag_text("/a b,c\r\n")).is_some());
    }
}
