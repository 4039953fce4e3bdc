//! Tests of the command, with generated recordings.

use std::path::PathBuf;

use cgscope_made_up::loads::{LOOP, samples};
use cgscope_model::Sample;
use cgscope_record::{FileWriter, Header, Reason};
use cgscope_whatif::answer::Answer;
use clap::Parser;

use super::{cli, of_recording};

mod live;

/// A recording file with generated samples.
struct File(PathBuf);

impl File {
    fn new(name: &str, samples: &[Sample]) -> Self {
        let path = std::env::temp_dir().join(format!("cgscope-{}-{name}.rec", std::process::id()));
        let mut file = FileWriter::create(&path, &Header::default()).expect("a file of ours");
        samples.iter().for_each(|sample| file.sample(sample).expect("a sample"));
        file.end(0, Reason::Finished).expect("an end");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The second recording lacks this cgroup in its last sample.
#[test]
fn a_cgroup_that_was_gone_at_the_end_is_answered() {
    let options = |file: &File| {
        let command =
            cli::Cli::parse_from(["cgscope".as_ref(), "whatif".as_ref(), file.0.as_os_str()]).command;
        let cli::Command::Whatif(options) = command else { panic!("{command:?}") };
        options
    };
    let throttled = |answers: &[Answer]| -> Vec<Option<u64>> {
        answers.iter().map(|answer| answer.counted.nr_throttled).collect()
    };
    let mut samples = samples(&LOOP);
    for _ in 0..2 {
        let file = File::new("gone", &samples);
        let (answers, ..) =
            of_recording(&options(&file), &file.0).unwrap_or_else(|error| panic!("{}", error.sentence));
        assert_eq!(throttled(&answers), [Some(180)]);
        let last = samples.last_mut().expect("samples");
        last.limits.remove(1);
        last.cgroups.remove(1);
    }
}
