//! Finds the names of kernel functions by address, in `/proc/kallsyms`.
//!
//! We have our own parser, because the available crates do not fit. blazesym also allocates memory for the names of variables. It
//! drops the names of modules and the bounds of the scheduler's code, which [`KernelSymbols::wchan`] needs. The crate procfs does
//! not read this file.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    sync::OnceLock,
};

use crate::Failure;

const PATH: &str = "/proc/kallsyms";

/// The functions of the running kernel. The first lookup reads all functions: 122,000 functions (Linux 6.18) take 4.6 MB and 54
/// ms. If a module is loaded later, its functions are unknown.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    table: OnceLock<Result<Table, Failure>>,
}

impl KernelSymbols {
    /// Parses a text in the format of `/proc/kallsyms`. Fails if it contains no function, or its addresses are hidden.
    pub fn of_text(text: &str) -> Result<Self, Failure> {
        let table = Table::parse(text.as_bytes()).map_err(|error| unreadable("the text", &error))?;
        Ok(Self { table: OnceLock::from(Ok(table.into_usable("the text")?)) })
    }

    /// Reads the symbols once. Fails if the kernel has no such file, or hides the addresses; then lookups return `None`.
    pub fn load(&self) -> Result<(), Failure> {
        self.table.get_or_init(|| read(PATH)).as_ref().map(|_| ()).map_err(Failure::clone)
    }

    /// Returns the name of the function at `addr`, with its module (`nf_hook_slow [nf_tables]`).
    pub fn name(&self, addr: u64) -> Option<&str> {
        self.table()?.name(addr)
    }

    /// Returns the function that made the call with this return address. We look up the byte before this address: if a call never
    /// returns, its return address can be in the next function.
    pub fn caller(&self, return_addr: u64) -> Option<&str> {
        self.name(return_addr.checked_sub(1)?)
    }

    /// Returns where a task with this stack (innermost frame first) waits, as in `/proc/PID/wchan`: the first function outside
    /// the scheduler. `None` if there is no such function, or if its name or the bounds of the scheduler's code are unknown.
    pub fn wchan(&self, stack: &[u64]) -> Option<&str> {
        let table = self.table()?;
        // The scheduler's functions are in the section `__sched`.
        let scheduler = table.scheduler_start?..table.scheduler_end?;
        let addr = stack.iter().take_while(|addr| **addr != 0).find(|addr| !scheduler.contains(addr))?;
        self.caller(*addr)
    }

    fn table(&self) -> Option<&Table> {
        self.table.get_or_init(|| read(PATH)).as_ref().ok()
    }
}

fn read(path: &str) -> Result<Table, Failure> {
    let failure = |error: io::Error| unreadable(path, &error);
    Table::parse(BufReader::with_capacity(1 << 16, File::open(path).map_err(failure)?))
        .map_err(failure)?
        .into_usable(path)
}

const EFFECT: &str =
    "kernel functions have no names: stacks, wait channels and reasons for blocking are not available";

fn unreadable(path: &str, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "use a kernel that is built with CONFIG_KALLSYMS",
        _ => "run as root",
    };
    Failure::of_host(format!("{path} cannot be read ({error})"), EFFECT, remedy)
}

#[derive(Debug, Default)]
struct Table {
    /// Start addresses, ascending. If several functions have the same address, we keep the first function, as the kernel does.
    starts: Vec<u64>,
    /// Start of each name in `names`. A name ends at the end of its line, which saves the memory of a second offset.
    names_at: Vec<u32>,
    names: String,
    /// Number of lines with the address 0, which the kernel writes instead of a hidden address.
    hidden: u64,
    scheduler_start: Option<u64>,
    scheduler_end: Option<u64>,
    /// Addresses at which a section of code ends. No function begins there.
    ends: Vec<u64>,
}

impl Table {
    /// Parses the file. Skips lines that do not describe a function.
    fn parse(mut reader: impl BufRead) -> io::Result<Self> {
        let mut table = Self::default();
        let mut order = Vec::new();
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? != 0 {
            if let Some((start, name, module)) = std::str::from_utf8(&line).ok().and_then(parse_line) {
                table.note(start, name, module, &mut order);
            }
            line.clear();
        }
        order.sort_by_key(|(start, _)| *start);
        order.dedup_by_key(|(start, _)| *start);
        (table.starts, table.names_at) = order.into_iter().unzip();
        table.names.shrink_to_fit();
        Ok(table)
    }

    fn note(&mut self, start: u64, name: &str, module: Option<&str>, order: &mut Vec<(u64, u32)>) {
        if start == 0 {
            self.hidden += 1;
            return;
        }
        let Ok(name_at) = u32::try_from(self.names.len()) else { return };
        match name {
            "__sched_text_start" => self.scheduler_start = Some(start),
            "__sched_text_end" => self.scheduler_end = Some(start),
            "_etext" | "_einittext" => self.ends.push(start),
            _ => {}
        }
        // Skip symbols that only mark the start or end of a section: a function may begin at the same address.
        if name.ends_with("_text_start") || name.ends_with("_text_end") {
            return;
        }
        let [space, module] = module.map_or([""; 2], |module| [" ", module]);
        self.names.extend([name, space, module, "\n"]);
        order.push((start, name_at));
    }

    fn into_usable(self, path: &str) -> Result<Self, Failure> {
        if !self.starts.is_empty() {
            return Ok(self);
        }
        let (what, remedy) = if self.hidden != 0 {
            let remedy = "run as root with CAP_SYSLOG, and with kernel.kptr_restrict at 1 or 0";
            (format!("the kernel hides the addresses in {path}"), remedy)
        } else {
            let remedy = "use a kernel that is built with CONFIG_KALLSYMS, and mount its procfs at /proc";
            (format!("{path} contains no function"), remedy)
        };
        Err(Failure::of_host(what, EFFECT, remedy))
    }

    fn name(&self, addr: u64) -> Option<&str> {
        let at = self.starts.partition_point(|start| *start <= addr).checked_sub(1)?;
        if self.ends.contains(&self.starts[at]) {
            return None;
        }
        self.names[self.names_at[at] as usize..].lines().next()
    }
}

/// Parses `ffffffffc0201000 t name`, plus a tab and `[module]` for modules. The letters t and w mean code, as in `nm`.
fn parse_line(line: &str) -> Option<(u64, &str, Option<&str>)> {
    let mut words = line.split_ascii_whitespace();
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    if !matches!(words.next()?, "t" | "T" | "w" | "W") {
        return None;
    }
    let name = words.next()?;
    let module = words.next().filter(|module| module.starts_with('[') && module.ends_with(']'));
    Some((start, name, module))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000040 t first
ffffffff81000080 D a_variable
ffffffff81000100 T __sched_text_start
ffffffff81000100 t __schedule
ffffffff81000180 T schedule
ffffffff81000200 T __sched_text_end
ffffffff81000200 W do_wait
ffffffff81000300 t system_call
ffffffff81000400 T _etext
ffffffffc0300000 t later\t[second]
ffffffffc0200000 t hook\t[first_module]
";

    fn symbols(text: &str) -> KernelSymbols {
        KernelSymbols::of_text(text).unwrap()
    }

    #[test]
    fn an_address_has_the_name_of_its_function() {
        let symbols = symbols(LINES);
        assert_eq!(symbols.name(0xffff_ffff_8100_0040), Some("first"));
        assert_eq!(symbols.name(0xffff_ffff_8100_00ff), Some("first"), "a variable is not a function");
        assert_eq!(symbols.name(0xffff_ffff_8100_0001), Some("_stext"), "the first of two names");
        assert_eq!(symbols.name(0xffff_ffff_c020_0010), Some("hook [first_module]"), "modules in any order");
        assert_eq!(symbols.name(u64::MAX), Some("later [second]"));
        assert_eq!(symbols.name(0x1000), None, "below the kernel's code");
        assert_eq!(symbols.name(0xffff_ffff_8100_0400), None, "above the kernel's code");
        assert_eq!(symbols.name(0xffff_ffff_8100_0500), None);
    }

    #[test]
    fn a_return_address_belongs_to_the_call_before_it() {
        let symbols = symbols(LINES);
        assert_eq!(symbols.caller(0xffff_ffff_8100_0300), Some("do_wait"));
        assert_eq!(symbols.caller(0xffff_ffff_8100_0400), Some("system_call"));
        assert_eq!(symbols.caller(0), None);
    }

    #[test]
    fn a_task_waits_at_the_first_function_outside_of_the_scheduler() {
        let symbols = symbols(LINES);
        let (schedule, wait, call) = (0xffff_ffff_8100_0110, 0xffff_ffff_8100_0210, 0xffff_ffff_8100_0310);
        assert_eq!(symbols.wchan(&[schedule, schedule + 0x80, wait, call]), Some("do_wait"));
        assert_eq!(symbols.wchan(&[schedule]), None);
        assert_eq!(symbols.wchan(&[schedule, 0, call]), None, "a return address of 0 ends the stack");
        assert_eq!(symbols.wchan(&[]), None);
        let without = LINES.replace("__sched_text_end", "other");
        assert_eq!(self::symbols(&without).wchan(&[wait]), None, "the end of the scheduler is unknown");
    }

    #[test]
    fn lines_that_are_not_functions_are_skipped() {
        let nonsense = "\n \nzz T x\n1 T\n10 t\n-5 T a\nffffffffffffffffff T too_long\n12 TT b\n\u{1f600} t c\n20 U d\nT 30 e\n40";
        assert!(Table::parse(nonsense.as_bytes()).unwrap().starts.is_empty());
        let mut bytes = nonsense.as_bytes().to_vec();
        bytes.extend_from_slice(b"\n50 t \xff\xfe\n60 t good [not a module\n70 T last");
        let table = Table::parse(&bytes[..]).unwrap();
        assert_eq!(table.starts, [0x60, 0x70]);
        let names = [0x60, 0x70].map(|addr| table.name(addr));
        assert_eq!(names, [Some("good"), Some("last")], "the last line has no newline");
    }

    /// Any part of a file can be parsed without a panic, and the result is sorted.
    #[test]
    fn a_cut_file_is_still_parsed() {
        for from in 0..LINES.len() {
            for to in (from..LINES.len()).step_by(7) {
                let table = Table::parse(&LINES.as_bytes()[from..to]).unwrap();
                assert!(table.starts.is_sorted() && table.starts.len() == table.names_at.len());
                for start in table.starts.iter().filter(|start| !table.ends.contains(start)) {
                    assert!(table.name(*start).is_some_and(|name| !name.is_empty()));
                }
            }
        }
    }

    #[test]
    fn hidden_addresses_are_an_error_with_a_remedy() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 t first\n";
        let error = Table::parse(hidden.as_bytes()).unwrap().into_usable(PATH).unwrap_err().to_string();
        assert_eq!(
            error,
            "the kernel hides the addresses in /proc/kallsyms, so kernel functions have no names: stacks, wait channels and \
             reasons for blocking are not available: run as root with CAP_SYSLOG, and with kernel.kptr_restrict at 1 or 0"
        );
        assert!(KernelSymbols::of_text(hidden).is_err());
        let symbols = KernelSymbols { table: OnceLock::from(Table::default().into_usable(PATH)) };
        assert!(symbols.load().is_err());
        assert_eq!((symbols.name(1), symbols.wchan(&[1])), (None, None));
        let error = read("/nowhere/kallsyms").unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/kallsyms cannot be read (No such file"), "{error}");
        assert!(error.ends_with("CONFIG_KALLSYMS"), "{error}");
        assert!(Table::parse(&b""[..]).unwrap().into_usable(PATH).is_err());
    }
}
