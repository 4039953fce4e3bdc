//! `cgscope`: why is this task, process, container or service not on a CPU although it could run?

/// Prints to standard error, and escapes control characters. Unlike `eprintln`, ignores a closed pipe.
macro_rules! say {
    ($($word:tt)*) => {{
        use std::io::Write as _;
        let words = cgscope_model::printable_lines(&format!($($word)*));
        let _ = writeln!(std::io::stderr(), "{}{words}", crate::terminal::end_line());
    }};
}

mod child;
mod cli;
mod complete;
mod containers;
mod diff;
mod doctor;
mod exit;
mod export;
mod feed;
mod hist;
mod mode;
mod output;
mod packaging;
mod record;
mod recording;
mod replay;
mod report;
mod run;
mod sample;
mod serve;
mod session;
mod settings;
mod signals;
mod stat;
mod terminal;
mod top;
mod trigger;
mod users;
mod whatif;

use std::process::ExitCode;

use cgscope_view::{causes, nodes, text};
use clap::{CommandFactory, Parser};

use crate::{
    cli::{Cli, Command},
    exit::{Error, Result},
};

/// Makes the C library return large freed blocks to the kernel at once. A sample of thousands of tasks allocates megabytes. By
/// default, the C library soon keeps such blocks in its heap. With 5,000 threads, the fragmented heap takes 30 MiB instead of 18.
#[cfg(target_env = "gnu")]
fn give_memory_back() {
    const LARGE_BYTES: libc::c_int = 1 << 20;
    /// Free memory that stays in the heap for small blocks. If it were returned, the kernel would have to zero new pages.
    const KEPT_BYTES: libc::c_int = 8 << 20;
    // SAFETY: mallopt has no preconditions; if it fails, nothing changes.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

fn main() -> ExitCode {
    #[cfg(target_env = "gnu")]
    give_memory_back();
    complete::answer(Cli::command);
    let cli = Cli::parse();
    match dispatch(cli.command) {
        Ok(exit) => exit.into(),
        Err(error) => {
            if !error.sentence.is_empty() {
                say!("cgscope: {error}");
            }
            error.exit.into()
        }
    }
}

fn dispatch(command: Command) -> Result {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::could_not_run(format!("cannot start the event loop: {error}")))?;
    let result = runtime.block_on(async {
        match command {
            Command::Hist(options) => hist::run(&options).await,
            Command::Stat(options) => stat::run(&options).await,
            Command::Sample(options) => sample::run(&options).await,
            Command::Record(options) => record::run(&options).await,
            Command::Report(options) => report::run(&options),
            Command::Replay(options) => replay::run(&options).await,
            Command::Export(options) => export::run(&options),
            Command::Diff(options) => diff::run(&options),
            Command::Doctor(options) => doctor::run(&options).await,
            Command::Packaging(options) => packaging::run(&options),
            Command::Top(options) => top::run(&options).await,
            Command::Serve(options) => serve::run(&options).await,
            Command::Whatif(options) => whatif::run(&options).await,
        }
    });
    // Does not wait for a thread that waits for a running command.
    runtime.shutdown_background();
    result
}
