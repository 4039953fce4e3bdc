//! Records displayed samples, for `top --record`.

use cgscope_model::{Sample, units};
use cgscope_record::Reason;
use cgscope_view::app::Recorded;

use crate::{
    cli::{Target, Top},
    exit::{Exit, Result},
    record::{
        file::{self, File},
        header,
    },
    session::{Pace, Ready},
};

/// Records the displayed samples if the user named a file. If the recording fails, the command continues.
#[derive(Default)]
pub struct Tee {
    file: Option<File>,
    broken: Option<Reason>,
    has_screen: bool,
    /// The result of the recording, printed after the screen is closed.
    unsaid: Option<String>,
}

impl Tee {
    /// Prepares a measurement, and a recording if the user named a file. If the file cannot be written, fails before anything
    /// starts. With a screen, messages on standard error wait until [`Self::leave_screen`].
    pub fn set_up(options: &Top, target: &Target, pace: Pace) -> Result<(Ready, Self)> {
        let path = options.record.as_deref();
        path.map_or(Ok(()), file::check_writable)?;
        let ready = Ready::new(target, pace)?;
        let file = path.map(|path| File::begin(path, &header(&ready, target))).transpose()?;
        Ok((ready, Self { file, has_screen: !options.batch, ..Self::default() }))
    }

    pub fn sample(&mut self, sample: &Sample) {
        let Some(file) = &mut self.file else { return };
        let Err(failure) = file.sample(sample) else { return };
        let error = file.end_after(&failure);
        self.file = None;
        self.broken = Some(file::reason_of(&failure.error));
        self.say(format!("{error}; from now on nothing is recorded"));
    }

    /// Ends the recording after a restart of the daemon, because the counters start again from 0.
    pub fn begins_anew(&mut self) {
        if self.file.is_some() {
            self.end(Reason::Failed);
            self.broken = Some(Reason::Failed);
            self.say(super::restarted());
        }
    }

    pub fn end(&mut self, reason: Reason) {
        let Some(mut file) = self.file.take() else { return };
        let (samples, path) = (units::count(file.samples, "sample"), file.writer.path.display());
        let words =
            format!("{samples}, {}; to play the recording, run `cgscope replay {path}`", file.words());
        match file.end(reason) {
            Ok(()) => self.say(words),
            Err(failure) => {
                self.broken = Some(file::reason_of(&failure.error));
                self.say(failure.to_string());
            }
        }
    }

    fn say(&mut self, words: String) {
        if self.has_screen {
            self.unsaid = Some(words);
        } else {
            say!("cgscope: {words}");
        }
    }

    pub fn leave_screen(&mut self) {
        self.has_screen = false;
        if let Some(words) = self.unsaid.take() {
            self.say(words);
        }
    }

    /// Returns the state of the recording; `None` if there is none, or it is complete.
    pub fn state(&self) -> Option<Recorded> {
        let broken = self.broken.as_ref().map(|reason| Recorded::Broken(reason.to_string()));
        broken.or_else(|| self.file.as_ref().map(|file| Recorded::Recording(file.writer.bytes())))
    }

    pub fn exit(&self) -> Exit {
        if self.broken.is_some() { Exit::Incomplete } else { Exit::Done }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use cgscope_record::{Ending, Header, open};

    use super::*;

    struct Teed {
        path: PathBuf,
        tee: Tee,
    }

    impl Teed {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("cgscope-{}-tee-{name}.rec", std::process::id()));
            let file = File::begin(&path, &Header::default()).unwrap();
            // While a screen is shown, nothing is printed.
            Self { path, tee: Tee { file: Some(file), has_screen: true, ..Tee::default() } }
        }

        fn read(&self) -> (usize, Reason) {
            let mut reader = open(&self.path).unwrap();
            let samples = reader.by_ref().filter(|sample| sample.is_ok()).count();
            match reader.ending() {
                Some(Ending::Clean(end)) => (samples, end.reason.clone()),
                other => panic!("{other:?}"),
            }
        }
    }

    impl Drop for Teed {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn sample(mono_ns: u64) -> Sample {
        Sample { mono_ns, ..Sample::default() }
    }

    #[test]
    fn the_first_reason_for_an_end_is_recorded() {
        let mut recorded = Teed::new("end");
        let tee = &mut recorded.tee;
        tee.sample(&sample(1));
        assert!(matches!(tee.state(), Some(Recorded::Recording(bytes)) if bytes > 0));
        tee.sample(&sample(2));
        tee.end(Reason::TargetExited);
        tee.end(Reason::Interrupted);
        assert_eq!((tee.state(), tee.exit()), (None, Exit::Done));
        let words = tee.unsaid.as_deref().unwrap();
        assert!(words.starts_with("2 samples, ") && words.contains("`cgscope replay "), "{words}");
        assert_eq!(recorded.read(), (2, Reason::TargetExited));
    }

    #[test]
    fn a_failed_write_ends_only_the_recording() {
        let mut recorded = Teed::new("broken");
        let tee = &mut recorded.tee;
        tee.sample(&sample(1));
        // The cgroups are out of order, so the writer refuses the sample.
        tee.sample(&Sample { cgroups: vec![(2, "/b".into()), (1, "/a".into())], ..sample(2) });
        assert_eq!(
            (tee.state(), tee.exit()),
            (Some(Recorded::Broken(Reason::WriteFailed.to_string())), Exit::Incomplete)
        );
        let said = tee.unsaid.clone().unwrap();
        assert!(said.contains("the 1 sample before the failure is in "), "{said}");
        assert!(said.ends_with("from now on nothing is recorded"), "{said}");
        tee.sample(&sample(3));
        tee.end(Reason::Finished);
        assert_eq!(tee.unsaid.as_ref(), Some(&said), "the message is printed once");
        assert_eq!(recorded.read(), (1, Reason::WriteFailed));
    }

    #[test]
    fn without_a_file_nothing_is_printed() {
        let mut tee = Tee::default();
        tee.sample(&sample(1));
        tee.end(Reason::Finished);
        assert_eq!((tee.state(), tee.exit(), tee.unsaid), (None, Exit::Done, None));
    }
}
