//! `cgscope doctor`: checks what this host supports.

use std::{io::Write, path::Path, time::Instant};

use cgscope_collect::{Collector, Failure, Options, facts, offsets};
use cgscope_model::Mode;
use cgscope_model::doctor::{Facts, Level, Trial, judge, mode, worst};

use crate::{
    cli::Doctor,
    containers,
    exit::{Exit, Result},
    output::{self, json_line},
};

/// Runs the command. Exit code 0: everything works, or nothing that is needed is missing. 1: a part is degraded, or only coarse
/// measurement works. 2: cgscope cannot measure.
pub async fn run(options: &Doctor) -> Result {
    let mut facts = Facts { trial: Some(trial().map_err(|failure| failure.to_string())), ..known_facts() };
    facts.named_containers = named_containers().await;
    let verdicts = judge(&facts);
    output::write(|out| {
        verdicts.iter().try_for_each(|verdict| match options.json {
            true => json_line(out, verdict),
            false => writeln!(out, "{:<8} {}", verdict.level.name(), verdict.sentence()),
        })
    })?;
    Ok(match worst(&verdicts) {
        Level::Ok | Level::Note => Exit::Done,
        Level::Degraded => Exit::Incomplete,
        Level::Missing if mode(&facts, &verdicts).is_some() => Exit::Incomplete,
        Level::Missing => Exit::CouldNotRun,
    })
}

/// Returns all facts except the trial, which loads and attaches the BPF programs.
pub fn known_facts() -> Facts {
    let mut facts = facts::gather(Path::new("/"));
    facts.features_off = offsets::resolve(Path::new(offsets::VMLINUX_BTF)).ok().map(|resolved| resolved.off);
    facts
}

async fn named_containers() -> Option<Result<usize, String>> {
    let mut runtimes = containers::runtimes("auto").ok()?;
    let has_any = runtimes.places().any(Path::exists);
    let failed = runtimes.refresh().await;
    has_any.then(|| failed.map_or_else(|| Ok(runtimes.listing().named()), Err))
}

fn trial() -> Result<Trial, Failure> {
    let started = Instant::now();
    let mut collector = Collector::start(&Options::default(), Mode::Bpf)?;
    let attach_ms = started.elapsed().as_millis() as u64;
    let started = Instant::now();
    let sample = collector.sample()?;
    let (read_us, tasks) = (started.elapsed().as_micros() as u64, sample.tasks.len() as u64);
    Ok(Trial { attach_ms, read_us, tasks, refused: collector.refused().to_vec() })
}
