//! `cgscope report`: what happened in a recording, in words and tables.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use cgscope_model::{
    Group, Interval, Sample,
    json::IntervalObject,
    units::{duration, percent},
};
use cgscope_record::{Ending, FileReader, Header, open};

use crate::{
    cli::Report,
    exit::{Error, Exit, Result},
    request::selection_words,
    run::losses,
    text::{self, Unit, plural, process_name},
};

/// Rows of each table.
const ROWS: usize = 15;

/// Runs the command.
pub fn run(options: &Report) -> Result {
    let mut reader = open(&options.file).map_err(|error| Error::could_not_run(error.to_string()))?;
    let header = reader.header().clone();
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut whole = Interval::default();
    let mut samples = 0;
    let mut earlier: Option<Sample> = None;
    for sample in reader.by_ref() {
        let sample = sample.map_err(|error| Error::incomplete(error.to_string()))?;
        samples += 1;
        if let Some(earlier) = &earlier {
            let mut interval = Interval::between(earlier, &sample);
            header.selection.apply(&mut interval).map_err(|error| Error::could_not_run(error.to_string()))?;
            if options.json {
                json(&mut out, &interval).map_err(|error| Error::output(&error))?;
            }
            whole.append(interval);
        }
        earlier = Some(sample);
    }
    let ending = reader.ending();
    if let Some(ending) = ending {
        for (loss, count) in ending.losses().nonzero() {
            whole.losses.add(loss, count);
        }
    }
    if !options.json {
        let text = words(&options.file.display().to_string(), &header, &whole, samples, ending);
        out.write_all(text.as_bytes()).map_err(|error| Error::output(&error))?;
    }
    out.flush().map_err(|error| Error::output(&error))?;
    Ok(losses(&whole).max(said_ending(&reader, ending)))
}

fn json(out: &mut impl Write, interval: &Interval) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &IntervalObject::new(interval))?;
    writeln!(out)
}

/// How the recording ended, on standard error where something is missing.
fn said_ending(reader: &FileReader, ending: Option<&Ending>) -> Exit {
    if reader.skipped() != 0 {
        say!(
            "cgscope: {} of kinds that this version does not know were left out",
            plural(reader.skipped(), "frame")
        );
    }
    match ending {
        Some(Ending::Clean(_)) => Exit::Done,
        Some(ending) => {
            say!("cgscope: {ending}");
            Exit::Incomplete
        }
        None => Exit::Incomplete,
    }
}

/// The report in words.
fn words(file: &str, header: &Header, whole: &Interval, samples: u64, ending: Option<&Ending>) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = title(&mut out, file, header, whole, samples, ending);
    if whole.duration_ns == 0 {
        let _ = writeln!(out, "\nFewer than two Samples: there is nothing to compare, so nothing to report.");
        return out;
    }
    let _ = totals(&mut out, whole);
    let _ = write!(out, "\n{}", text::histogram(&whole.total().wait, Unit::Micro));
    let _ = processes(&mut out, whole);
    let _ = cgroups(&mut out, whole);
    let _ = writeln!(out, "\n{}", text::cost_line(&whole.cost, whole.duration_ns));
    let _ = writeln!(out, "{}", text::loss_line(&whole.losses));
    out
}

fn title(
    out: &mut String,
    file: &str,
    header: &Header,
    whole: &Interval,
    samples: u64,
    ending: Option<&Ending>,
) -> std::fmt::Result {
    let what = match &header.command {
        Some(command) => format!("command {}", command.join(" ")),
        None => selection_words(&header.selection),
    };
    writeln!(
        out,
        "{file}: the {what} on {}, Linux {} {}, {}",
        header.hostname,
        header.kernel_release,
        header.architecture,
        plural(header.cpus.len() as u64, "CPU"),
    )?;
    writeln!(
        out,
        "{} over {}, one every {}; {}",
        plural(samples, "Sample"),
        duration(whole.duration_ns),
        duration(header.interval_ns),
        ending.map_or("the end could not be read".into(), ToString::to_string),
    )
}

/// The answer first: how long was waited beside how long was run.
fn totals(out: &mut String, whole: &Interval) -> std::fmt::Result {
    let total = whole.total();
    let (waited, ran) = (total.wait.total_ns, total.totals.on_cpu_ns);
    write!(out, "\n{}", text::wait_line(&total.wait))?;
    match percent(waited, waited + ran) {
        Some(share) => writeln!(
            out,
            "\nOf the {} in which its tasks could have run, they ran {} and waited {}: {share:.1}%.",
            duration(waited + ran),
            duration(ran),
            duration(waited)
        )?,
        None => writeln!(out, "\nNothing ran and nothing waited.")?,
    }
    let kernel = total.totals.run_delay_ns;
    writeln!(
        out,
        "The kernel's own sum is {}{}.",
        duration(kernel),
        if kernel == waited {
            ", the same to the nanosecond".into()
        } else {
            format!(
                ", {} from ours: waits that were not over at the first or the last Sample",
                duration(kernel.abs_diff(waited))
            )
        }
    )?;
    if total.totals.unstamped != 0 {
        writeln!(
            out,
            "Not in either: {} of tasks preempted on their way to sleep, {} in all.",
            plural(total.totals.unstamped, "wait"),
            duration(total.totals.unstamped_ns)
        )?;
    }
    if let Some(pending) = text::pending_line(whole) {
        writeln!(out, "{}{}.", pending[..1].to_uppercase(), &pending[1..])?;
    }
    writeln!(
        out,
        "{} voluntary and {} involuntary switches, {} between CPUs; {} ended.",
        total.totals.voluntary,
        total.totals.involuntary,
        plural(total.totals.migrations, "move"),
        plural(total.exited, "task")
    )
}

const HEADINGS: &str = "      wait    waits      p50      p99  longest    on-cpu     vol   invol";

fn row(out: &mut String, group: &Group, name: &str) -> std::fmt::Result {
    let quantile = |q| group.wait.quantile_ns(q).map_or("-".into(), duration);
    writeln!(
        out,
        "{:>10} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7} {:>7}  {name}",
        duration(group.wait.total_ns),
        group.wait.count,
        quantile(0.5),
        quantile(0.99),
        if group.wait.count == 0 { "-".into() } else { duration(group.wait.max_ns) },
        duration(group.totals.on_cpu_ns),
        group.totals.voluntary,
        group.totals.involuntary,
    )
}

fn table(out: &mut String, title: &str, mut rows: Vec<(String, Group)>) -> std::fmt::Result {
    rows.retain(|(_, group)| group.wait.count != 0);
    rows.sort_by(|a, b| b.1.wait.total_ns.cmp(&a.1.wait.total_ns).then_with(|| a.0.cmp(&b.0)));
    writeln!(out, "\n{HEADINGS}  {title}")?;
    for (name, group) in rows.iter().take(ROWS) {
        row(out, group, name)?;
    }
    let more = rows.len().saturating_sub(ROWS);
    if more != 0 {
        writeln!(out, "{:>10} more with less waiting", more)?;
    }
    Ok(())
}

fn processes(out: &mut String, whole: &Interval) -> std::fmt::Result {
    let groups = whole.by_process().into_iter();
    let mut rows: Vec<(String, Group)> =
        groups.map(|(pid, group)| (format!("{pid} {}", process_name(whole, pid)), group)).collect();
    let mut ended = Group::default();
    for exited in &whole.exited {
        ended.wait.add(&exited.wait);
        ended.totals.add(&exited.totals);
    }
    rows.push(("(tasks that ended between two Samples)".into(), ended));
    table(out, "process", rows)
}

fn cgroups(out: &mut String, whole: &Interval) -> std::fmt::Result {
    let groups = whole.by_cgroup().into_iter();
    let rows = groups.map(|(path, group)| {
        (path.map_or("(removed before it was read)".into(), |path| path.to_string()), group)
    });
    table(out, "cgroup, with all below it", rows.collect())
}
