//! The text summary of `cgscope stat -- COMMAND`: the useful figures of `time`, where the time of the threads went, and the
//! effect of quotas.

mod quota;
#[cfg(test)]
mod tests;
mod time;

use std::fmt::{Result, Write as _};

use cgscope_model::{
    Mode, WallTime,
    command_run::{CommandRun, Ending, Outlived},
    findings::findings,
    steers,
    units::{self, bytes, duration},
};

use crate::text::{self, NO_HISTOGRAM, capital, wrapped};

/// The beginning of every summary. It identifies output files of earlier runs.
pub const BEGINNING: &str = "cgscope stat: ";
/// Maximum width of lines of text.
const WIDTH: usize = 100;
/// Maximum number of processes named in a line.
const NAMED: usize = 8;

/// The whole summary. Writing to a String cannot fail.
pub fn summary(run: &CommandRun) -> String {
    let mut out = String::new();
    let _ = write(&mut out, run);
    out
}

fn write(out: &mut String, run: &CommandRun) -> Result {
    let total = run.interval.total();
    writeln!(out, "{BEGINNING}{}", command_line(&run.command))?;
    writeln!(out, "{}\n", ending_words(run))?;
    figures(out, run)?;
    outlived(out, run)?;
    time::table(out, run, &WallTime::new(&total))?;
    if let Some(class) = &run.class {
        writeln!(out)?;
        sentence(out, &class.says)?;
    }
    if run.interval.mode == Mode::Bpf {
        sentence(out, &text::wait_line(&total.wait, run.interval.mode))?;
    }
    for held in &run.quotas {
        quota::quota(out, run, held)?;
    }
    let findings = findings(&run.interval, &run.host);
    if !findings.is_empty() {
        writeln!(out, "\n{}", text::findings_heading(&findings))?;
    }
    out.push_str(&text::findings(&findings, WIDTH));
    writeln!(out)?;
    if run.interval.mode == Mode::Coarse {
        sentence(out, NO_HISTOGRAM)?;
    }
    for remark in &run.remarks {
        sentence(out, remark)?;
    }
    writeln!(out, "{}", text::cost_line(&run.interval.cost, run.interval.duration_ns, run.interval.mode))?;
    writeln!(out, "{}", text::loss_line(&run.interval.losses))
}

fn sentence(out: &mut String, words: &str) -> Result {
    writeln!(out, "{}", wrapped(&format!("{}.", capital(words)), WIDTH, ""))
}

/// The command on one line, as a user could type it. Characters that would control the terminal are written as in the shell's
/// `$'...'`.
fn command_line(command: &[String]) -> String {
    let quoted = command.iter().map(|word| {
        let is_plain = !word.is_empty()
            && !word.contains(|c: char| c.is_whitespace() || "'\"\\$`;&|<>()*?#".contains(c));
        if word.contains(steers) {
            format!("$'{}'", word.chars().map(escaped).collect::<String>())
        } else if is_plain {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// A character as written within `$'...'`.
fn escaped(c: char) -> String {
    match c {
        '\n' => r"\n".into(),
        '\t' => r"\t".into(),
        '\r' => r"\r".into(),
        '\\' | '\'' => format!("\\{c}"),
        c if c.is_ascii_control() => format!("\\x{:02x}", u32::from(c)),
        c if steers(c) && u32::from(c) > 0xFFFF => format!("\\U{:08x}", u32::from(c)),
        c if steers(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.into(),
    }
}

fn ending_words(run: &CommandRun) -> String {
    let how = match run.ending {
        Ending::Exited(0) => "It succeeded (exit code 0)".into(),
        Ending::Exited(code) => format!("It ended with exit code {code}"),
        Ending::Killed { signal, dumped } => {
            let core = if dumped { ", with a core dump" } else { "" };
            format!("It was killed by signal {signal}{core} (exit code {})", run.ending.code())
        }
    };
    format!("{how} after {}.", duration(run.wall_ns))
}

/// The useful figures of `time -v`, one per line.
fn figures(out: &mut String, run: &CommandRun) -> Result {
    let (usage, cpu) = (&run.usage, run.cpu_use());
    let whose = match run.cpu {
        Some(_) => "the command and all that it started",
        None => "the command and processes it waited for",
    };
    let share = units::percent(cpu.usage_ns, run.wall_ns).map_or("-".into(), |share| format!("{share:.0}%"));
    let threads = if run.peak_threads == 1 { "thread" } else { "threads" };
    let processes = units::count(run.peak_processes, "process");
    let every = duration(run.every_ns);
    line(out, &seconds(run.wall_ns), "s   wall time")?;
    line(out, &seconds(cpu.user_ns), &format!("s   user, {whose}"))?;
    line(out, &seconds(cpu.system_ns), &format!("s   system, {whose}"))?;
    line(out, &share, "    of one CPU")?;
    if run.cpu.is_some() && differs(cpu.usage_ns, usage.user_ns.saturating_add(usage.system_ns)) {
        let waited_for =
            format!("s   user, and {} s system, of processes that it waited for", seconds(usage.system_ns));
        line(out, &seconds(usage.user_ns), &waited_for)?;
    }
    line(out, &bytes(usage.max_rss_bytes), "    maximum resident set of one process")?;
    line(
        out,
        &number(usage.minor_faults),
        &format!("    minor page faults, {} major", number(usage.major_faults)),
    )?;
    line(
        out,
        &number(usage.voluntary),
        &format!("    voluntary switches, {} involuntary", number(usage.involuntary)),
    )?;
    line(
        out,
        &number(usage.blocks_in),
        &format!("    blocks (512 B) read from devices, {} queued for writing", number(usage.blocks_out)),
    )?;
    line(
        out,
        &number(run.peak_threads),
        &format!("    or more {threads} at one time, and {processes} (counted every {every})"),
    )
}

/// Whether two times differ by more than 1 %, and by more than one tick (10 ms).
fn differs(a_ns: u64, b_ns: u64) -> bool {
    const TICK_NS: u64 = 10_000_000;
    a_ns.abs_diff(b_ns) > TICK_NS.max(a_ns / 100)
}

fn line(out: &mut String, figure: &str, what: &str) -> Result {
    writeln!(out, "{figure:>18} {what}")
}

/// Formats seconds as `120.338`.
fn seconds(ns: u64) -> String {
    format!("{}.{:03}", number(ns / 1_000_000_000), ns / 1_000_000 % 1_000)
}

/// Formats a number as `120,338,230`.
fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn outlived(out: &mut String, run: &CommandRun) -> Result {
    if run.outlived.is_empty() {
        return Ok(());
    }
    let (it, their) = if run.outlived.len() == 1 {
        ("1 process".into(), "its")
    } else {
        (format!("{} processes", run.outlived.len()), "their")
    };
    writeln!(out)?;
    sentence(
        out,
        &format!(
            "{it} still ran when the command ended; {their} time up to its end is counted: {}",
            names(&run.outlived)
        ),
    )
}

/// Names processes: `sleep [12], sh [13], 5 more`.
fn names(processes: &[Outlived]) -> String {
    let named = processes.iter().take(NAMED).map(|process| format!("{} [{}]", process.comm, process.pid));
    let more = processes.len().saturating_sub(NAMED);
    let more = (more != 0).then(|| format!("{more} more"));
    named.chain(more).collect::<Vec<_>>().join(", ")
}
