//! The flight recorder: the latest part of the recording is held in a ring, and what triggers freezes the part around it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use cgscope_model::{
    Interval, Sample, Selection,
    selection::is_at_or_below,
    units::{self, duration},
};
use cgscope_record::{Header, Reason};

use crate::{
    exit::{Error, Result},
    record::{
        freeze::{Freeze, Frozen},
        names,
        ring::{self, Ring},
        sink::{Broken, Ended, Next, Sink},
    },
    trigger::{Trigger, Watch},
};

#[derive(Clone, Debug)]
pub struct Plan {
    /// Time before a trigger that is frozen, ns.
    pub keep_ns: u64,
    /// Time after it, ns.
    pub after_ns: u64,
    /// Time after it in which no other trigger is heard, ns.
    pub cool_down_ns: u64,
    /// How often at most.
    pub most: u64,
    pub ring_bytes: u64,
    /// What triggers, beside SIGUSR1.
    pub triggers: Vec<Trigger>,
    /// A command runs: it is followed to its end, also when no more is frozen.
    pub to_the_end: bool,
    /// Only what must be said.
    pub quiet: bool,
}

pub struct Flight {
    plan: Plan,
    output: PathBuf,
    selection: Selection,
    interval_ns: u64,
    ring: Ring,
    watch: Watch,
    previous: Option<Sample>,
    asked: bool,
    triggered: Option<Triggered>,
    copying: Option<Copying>,
    frozen: Vec<PathBuf>,
    /// Triggers of which nothing is frozen.
    failed: u64,
    /// The latest one is: the ring is what there is of it.
    latest_failed: bool,
}

struct Copying {
    thread: JoinHandle<Result<Frozen>>,
    stop: Arc<AtomicBool>,
}

/// A trigger whose time after it is not over.
struct Triggered {
    words: String,
    /// Where the frozen part begins at the latest, and ends at the earliest, ns of the monotonic clock.
    from_ns: u64,
    until_ns: u64,
    /// The start of the interval in which it was.
    at_ns: u64,
    /// Its end.
    unix_ns: u64,
}

impl Flight {
    pub fn create(output: &Path, header: &Header, plan: Plan) -> Result<Self> {
        let limits = ring::Limits { keep_ns: plan.keep_ns, bytes: plan.ring_bytes };
        let ring = Ring::create(output, header, limits)?;
        let watch = Watch::new(plan.triggers.len(), plan.most);
        Ok(Self {
            output: output.to_owned(),
            selection: header.selection.clone(),
            interval_ns: header.interval_ns,
            ring,
            watch,
            previous: None,
            asked: false,
            triggered: None,
            copying: None,
            frozen: Vec::new(),
            failed: 0,
            latest_failed: false,
            plan,
        })
    }

    /// What it waits for, and where the ring is, in words.
    pub fn words(&self) -> String {
        let mut causes: Vec<String> = self.plan.triggers.iter().map(ToString::to_string).collect();
        causes.push(format!("SIGUSR1 (kill -USR1 {})", std::process::id()));
        format!(
            "the last {} are held in {} ({} at most) and frozen with the {} that follow, {}, by {}",
            duration(self.plan.keep_ns),
            self.ring.directory.display(),
            units::bytes(self.plan.ring_bytes),
            duration(self.plan.after_ns),
            if self.plan.most == 1 { "once".into() } else { format!("up to {} times", self.plan.most) },
            causes.join(" or "),
        )
    }

    /// The first Sample tells what to expect.
    fn say_first(&self, sample: &Sample) {
        if !self.plan.quiet {
            let samples = self.plan.keep_ns / self.interval_ns.max(1) + 2;
            let expected = self.ring.sample_bytes * samples * 10 / 8;
            say!(
                "cgscope: the first Sample takes {}: at that size the ring comes to about {}",
                units::bytes(self.ring.sample_bytes),
                units::bytes(expected.min(self.plan.ring_bytes))
            );
        }
        for trigger in &self.plan.triggers {
            let Some(cgroup) = &trigger.cgroup else { continue };
            if !sample.cgroups.iter().any(|(_, path)| is_at_or_below(path, cgroup)) {
                say!(
                    "cgscope: {trigger}: no task is in {cgroup} at the moment; it is watched in case one comes"
                );
            }
        }
    }

    /// What triggers in the interval that ends with this Sample, in words.
    fn triggers(&mut self, sample: &Sample) -> Result<Vec<String>> {
        let mut words = Vec::new();
        if let Some(previous) = self.previous.as_ref().filter(|_| !self.plan.triggers.is_empty()) {
            let mut interval = Interval::between(previous, sample);
            let applied = self.selection.apply(&mut interval);
            applied.map_err(|error| Error::could_not_run(error.to_string()))?;
            let mut found: Vec<_> =
                self.plan.triggers.iter().map(|trigger| trigger.exceeded(&interval)).collect();
            let exceeded: Vec<_> = found.iter().map(Option::is_some).collect();
            let fires = self.watch.fires(&exceeded, sample.mono_ns);
            words.extend(fires.into_iter().filter_map(|at| found[at].take()));
        }
        if std::mem::take(&mut self.asked) {
            words.push("SIGUSR1".into());
        }
        Ok(words)
    }

    /// From here on what is around `sample` is going to be frozen.
    fn begin(&mut self, words: &str, sample: &Sample) {
        say!(
            "cgscope: {words}; freezing the {} before and the {} after",
            duration(self.plan.keep_ns),
            duration(self.plan.after_ns)
        );
        // It was somewhere in the interval.
        let start_ns = self.previous.as_ref().map_or(sample.mono_ns, |previous| previous.mono_ns);
        let until_ns = sample.mono_ns + self.plan.after_ns;
        self.watch.froze(until_ns + self.interval_ns + self.plan.cool_down_ns);
        self.triggered = Some(Triggered {
            words: words.to_owned(),
            from_ns: start_ns.saturating_sub(self.plan.keep_ns),
            until_ns,
            at_ns: start_ns,
            unix_ns: sample.unix_ns,
        });
    }

    /// Copies what the ring holds of it to a file, beside the recording that goes on.
    fn freeze(&mut self, triggered: Triggered, last: &Sample) -> std::result::Result<(), Broken> {
        self.settle(true);
        let segments = match self.ring.open(last) {
            Err(Broken::Other(error)) => {
                self.not_frozen(&error);
                return Ok(());
            }
            opened => opened?,
        };
        let path = match self.plan.most {
            1 => self.output.clone(),
            _ => names::free_stamped(&self.output, triggered.unix_ns).0,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let freeze = Freeze {
            segments,
            path,
            from_ns: triggered.from_ns,
            at_ns: triggered.at_ns,
            reason: Reason::Triggered(triggered.words),
            bytes: self.ring.bytes(),
            stop: stop.clone(),
        };
        self.copying = Some(Copying { thread: std::thread::spawn(move || freeze.run()), stop });
        Ok(())
    }

    /// Says what became of a copy that is done; waits for it where that is wanted.
    fn settle(&mut self, wait: bool) {
        let Some(copy) = self.copying.take_if(|copy| wait || copy.thread.is_finished()) else { return };
        let done = copy.thread.join().unwrap_or_else(|_| {
            Err(Error::incomplete("the copy of what was to be frozen failed; the message is above"))
        });
        match done {
            Ok(frozen) => {
                say!("cgscope: {frozen}");
                self.frozen.push(frozen.path);
                self.latest_failed = false;
            }
            Err(error) => self.not_frozen(&error),
        }
    }

    /// The ring is fine all the same, and so is what comes.
    fn not_frozen(&mut self, error: &Error) {
        say!(
            "cgscope: {error}; nothing is frozen, and what was to be is in {} as long as the ring reaches back to it",
            self.ring.directory.display()
        );
        (self.failed, self.latest_failed) = (self.failed + 1, true);
    }

    fn take(&mut self, sample: &Sample) -> std::result::Result<(), Broken> {
        let words = self.triggers(sample)?;
        if !words.is_empty() && self.triggered.is_none() && self.watch.left() > 0 {
            self.begin(&words.join("; "), sample);
        }
        let needed_ns = match &self.triggered {
            Some(triggered) => triggered.from_ns,
            None => sample.mono_ns.saturating_sub(self.plan.keep_ns),
        };
        self.ring.sample(sample, needed_ns)?;
        if self.previous.is_none() {
            self.say_first(sample);
        }
        if let Some(triggered) = self.triggered.take_if(|triggered| sample.mono_ns >= triggered.until_ns) {
            self.freeze(triggered, sample)?;
        }
        self.settle(false);
        Ok(())
    }

    fn finish(&mut self) -> std::result::Result<(), Broken> {
        if let (Some(triggered), Some(last)) = (self.triggered.take(), self.previous.take()) {
            self.freeze(triggered, &last)?;
        }
        self.settle(true);
        Ok(())
    }
}

impl Sink for Flight {
    fn sample(&mut self, sample: Sample) -> std::result::Result<Next, Broken> {
        self.take(&sample)?;
        self.previous = Some(sample);
        let is_done = self.watch.left() == 0 && self.triggered.is_none() && self.copying.is_none();
        Ok(if is_done && !self.plan.to_the_end { Next::Enough } else { Next::GoOn })
    }

    fn bytes(&self) -> u64 {
        self.ring.written
    }

    fn state(&self) -> String {
        let mut state =
            format!("ring {} in {}", duration(self.ring.held_ns()), units::bytes(self.ring.bytes()));
        if let Some(triggered) = &self.triggered {
            let now_ns = self.previous.as_ref().map_or(0, |previous| previous.mono_ns);
            state += &format!(", triggered, {} to go", duration(triggered.until_ns.saturating_sub(now_ns)));
        }
        if !self.frozen.is_empty() {
            state += &format!(", {} frozen", self.frozen.len());
        }
        state
    }

    fn asked_for(&mut self) {
        if self.triggered.is_some() {
            say!("cgscope: SIGUSR1: what happens now is in what is being frozen already");
        } else if self.watch.left() == 0 {
            say!("cgscope: SIGUSR1: nothing more is frozen, as --triggers says");
        } else {
            self.asked = true;
        }
    }

    /// The ring goes, so that it has no reason for its end; unless it is what there is of the latest trigger.
    fn end(mut self: Box<Self>, reason: Reason) -> Result<Ended> {
        if let Err(broken) = self.finish() {
            return Err(self.end_after(broken));
        }
        let mut words = match (self.frozen.last(), self.failed) {
            (None, 0) => "nothing triggered, so nothing is frozen".into(),
            (None, _) => "nothing is frozen".into(),
            (Some(last), _) => {
                let frozen = units::count(self.frozen.len() as u64, "part");
                format!("{frozen} frozen, the last one in {}", last.display())
            }
        };
        if self.failed > 0 {
            words += &format!("; {} could not be frozen", units::count(self.failed, "part"));
        }
        if self.latest_failed {
            words += &format!("; the ring stays in {}", self.ring.directory.display());
            self.ring.leave(reason);
        } else {
            self.ring.remove()?;
        }
        Ok(Ended { words, report: self.frozen.pop(), incomplete: self.failed > 0 })
    }

    fn end_after(mut self: Box<Self>, broken: Broken) -> Error {
        // What is being copied has its own end.
        self.settle(true);
        self.ring.leave_after(broken)
    }

    /// A copy can take long.
    fn abandon(mut self: Box<Self>, reason: Reason) {
        if let Some(copy) = &self.copying {
            copy.stop.store(true, Ordering::Relaxed);
        }
        self.settle(true);
        say!("cgscope: the ring stays in {}", self.ring.directory.display());
        self.ring.leave(reason);
    }
}
