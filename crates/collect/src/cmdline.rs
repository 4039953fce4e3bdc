//! Reads the command lines of processes, only to show them. A sample does not contain command lines.

use std::{fs::File, io::Read, sync::Arc};

use cgscope_model::printable;

/// Maximum number of bytes of a command line that we read: more than fits on a screen.
const MOST: u64 = 4096;

/// Returns a process's command line: arguments separated by spaces, at most 4 KiB, no control characters. `None` for a kernel
/// thread, a zombie, and an exited or hidden process. This can take long, because the kernel waits while a thread of the process
/// changes the memory mappings.
pub fn cmdline(pid: u32) -> Option<Arc<str>> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/cmdline")).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
    parse_cmdline(&bytes)
}

/// Returns the [`cmdline`] of each of `pids`, in their order.
pub fn command_lines(pids: impl IntoIterator<Item = u32>) -> Vec<(u32, Option<Arc<str>>)> {
    pids.into_iter().map(|pid| (pid, cmdline(pid))).collect()
}

/// Parses a command line. Each argument ends with a zero byte. After a title that a process has set, more zero bytes follow.
fn parse_cmdline(bytes: &[u8]) -> Option<Arc<str>> {
    let end = bytes.iter().rposition(|byte| *byte != 0)? + 1;
    let whole = match std::str::from_utf8(&bytes[..end]) {
        // The limit of 4 KiB cuts a multi-byte character in half.
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => &bytes[..end],
    };
    let spaced: Vec<u8> = whole.iter().map(|byte| if *byte == 0 { b' ' } else { *byte }).collect();
    Some(printable(&String::from_utf8_lossy(&spaced)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn parsed(bytes: &[u8]) -> Option<String> {
        parse_cmdline(bytes).map(|line| line.to_string())
    }

    #[test]
    fn arguments_are_joined_by_spaces() {
        assert_eq!(parsed(b"sleep\x0010\x00").as_deref(), Some("sleep 10"));
        assert_eq!(parsed(b"sh\0-c\0a b\0\0c\0").as_deref(), Some("sh -c a b  c"), "an empty one among them");
        assert_eq!(parsed(b"nginx: worker\0\0\0\0\0").as_deref(), Some("nginx: worker"), "a title");
    }

    #[test]
    fn a_kernel_thread_has_no_command_line() {
        assert_eq!(parsed(b""), None);
        assert_eq!(parsed(b"\0\0"), None);
        assert_eq!(cmdline(2), None, "kthreadd");
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(parsed(b"a\x1b[2J\nb\xff\0").as_deref(), Some("a\u{fffd}[2J\u{fffd}b\u{fffd}"));
    }

    #[test]
    fn an_incomplete_character_is_omitted() {
        assert_eq!(parsed("ä€".as_bytes().split_last().unwrap().1).as_deref(), Some("ä"));
    }

    #[test]
    fn a_command_line_is_read_up_to_the_maximum_length() {
        let long = "x".repeat(10_000);
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read line", &long]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Wait for the child's output: the parent may continue before the kernel has set the child's arguments.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let line = cmdline(child.id()).expect("it runs");
        assert!(line.starts_with("sh -c echo; read line xxx"), "{line}");
        assert_eq!(line.len(), 4096);
        drop(child.stdin.take());
        child.wait().unwrap();
        let pids = [std::process::id(), child.id()];
        let lines = command_lines(pids);
        assert_eq!([lines[0].0, lines[1].0], pids);
        assert!(lines[0].1.is_some());
        assert_eq!(lines[1].1, None, "gone");
    }
}
