use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Instant,
};

use crate::bench::patience;

/// A command that runs in the background and is killed on drop. The lines of its standard error are kept.
pub(crate) struct Background {
    child: Child,
    lines: mpsc::Receiver<String>,
    said: Vec<String>,
}

impl Background {
    pub(crate) fn start(command: &mut Command) -> Self {
        let streams = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = streams.spawn().expect("cgscope is executed");
        let words = BufReader::new(child.stderr.take().expect("its standard error is ours"));
        let (send, lines) = mpsc::channel();
        thread::spawn(move || words.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { child, lines, said: Vec::new() }
    }

    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        let end = Instant::now() + patience(30_000);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line =
                line.unwrap_or_else(|_| panic!("standard error has no {words:?}, but {:?}", self.said));
            self.said.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the child has not been reaped, so its id is still valid.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("a child of ours");
        let mut said = std::mem::take(&mut self.said);
        said.extend(self.lines.iter());
        (status.code(), said.join("\n"))
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
