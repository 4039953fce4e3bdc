//! A headless browser that tests control through two pipes with the DevTools protocol.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::files::Dir;

/// Maximum time to wait for an answer. The first answer includes the start of the browser.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Browser {
    child: Child,
    orders: File,
    answers: BufReader<File>,
    session: Option<String>,
    next: u64,
    /// Events that the browser has sent since the previous check.
    events: Vec<Value>,
    _profile: Dir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let profile = Dir::new("browser");
        let ([theirs_in, ours_out], [ours_in, theirs_out]) = (pipe(), pipe());
        let mut command = Command::new("chromium");
        // Chromium refuses to run its sandbox as root.
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
        ]);
        command.args(["--remote-debugging-pipe", "--disable-background-networking"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let fds = [theirs_in.as_raw_fd(), theirs_out.as_raw_fd()];
        // SAFETY: the closure only duplicates our own descriptors between fork and exec. Both descriptors are above 4.
        unsafe {
            command.pre_exec(move || {
                for (fd, wanted) in fds.into_iter().zip([3, 4]) {
                    if libc::dup2(fd, wanted) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                Ok(())
            })
        };
        let child = command.spawn().unwrap_or_else(|error| {
            panic!("chromium does not start ({error}): install Debian's package `chromium`, as `cargo xtask test` does")
        });
        let (orders, answers) = (File::from(ours_out), BufReader::new(File::from(ours_in)));
        let mut browser =
            Self { child, orders, answers, session: None, next: 0, events: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach)["sessionId"].as_str().map(str::to_owned);
        browser.session = session;
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut order = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            order["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&order).expect("JSON");
        bytes.push(0);
        self.orders.write_all(&bytes).expect("the browser reads its pipe");
        let end = Instant::now() + PATIENCE;
        loop {
            let message = self.message(end, method);
            if message["id"] == self.next {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    pub(crate) fn open(&mut self, address: &str) {
        // Open an empty page first, because the browser does not reload a page if only the fragment of the address changes.
        self.call("Page.navigate", json!({"url": "about:blank"}));
        self.wait_for("Page.loadEventFired");
        self.events.clear();
        self.call("Page.navigate", json!({"url": address}));
        self.wait_for("Page.loadEventFired");
        // The load event can still be that of the empty page, so check the address too.
        let page = address.split('#').next();
        let is_there =
            format!("location.href.split('#')[0] === {} && document.readyState === 'complete'", json!(page));
        let end = Instant::now() + Duration::from_secs(30);
        while self.eval(&is_there) != true {
            assert!(Instant::now() < end, "{address} is not loaded");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Returns console messages, exceptions and log entries since the page was opened.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.eval("0");
        let complains = ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"];
        let said = self.events.iter().filter(|event| complains.iter().any(|name| event["method"] == *name));
        said.map(ToString::to_string).collect()
    }

    /// Returns the addresses requested since the page was opened, including the page itself.
    pub(crate) fn requests(&mut self) -> Vec<String> {
        self.eval("0");
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.map(|event| event["params"]["request"]["url"].as_str().unwrap_or("?").to_owned()).collect()
    }

    pub(crate) fn set_screen(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Takes a screenshot of an element of the page. Returns the PNG file in base64.
    pub(crate) fn picture(&mut self, selector: &str) -> String {
        let find = format!(
            "(() => {{ const box = document.querySelector({selector:?}).getBoundingClientRect(); \
             return {{x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height, scale: 1}}; }})()"
        );
        let clip = self.eval(&find);
        let params = json!({"format": "png", "clip": clip, "captureBeyondViewport": true});
        let result = self.call("Page.captureScreenshot", params);
        result["data"].as_str().expect("a picture").to_owned()
    }

    /// Returns the number of colours in a picture, and the share of pixels with the most common colour. Opens an empty page for
    /// this.
    pub(crate) fn colours(&mut self, picture: &str) -> (u64, f64) {
        self.open("about:blank");
        let count = format!(
            "(async () => {{ const image = new Image(); image.src = 'data:image/png;base64,{picture}'; await image.decode(); \
             const canvas = document.createElement('canvas'); canvas.width = image.width; canvas.height = image.height; \
             const context = canvas.getContext('2d'); context.drawImage(image, 0, 0); \
             const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer); \
             const counts = new Map(); for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1); \
             return [counts.size, Math.max(...counts.values()) / pixels.length]; }})()"
        );
        let counted = self.eval(&count);
        (counted[0].as_u64().expect("a number"), counted[1].as_f64().expect("a share"))
    }

    fn wait_for(&mut self, event: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.events.iter().any(|seen| seen["method"] == event) {
            let message = self.message(end, event);
            self.events.push(message);
        }
    }

    fn message(&mut self, end: Instant, awaited: &str) -> Value {
        let mut poll =
            libc::pollfd { fd: self.answers.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        if self.answers.buffer().is_empty() {
            let left = end.saturating_duration_since(Instant::now()).as_millis() as i32;
            // SAFETY: `poll` is the only entry, and it is ours.
            assert!(unsafe { libc::poll(&mut poll, 1, left) } > 0, "the browser does not answer: {awaited}");
        }
        let mut bytes = Vec::new();
        self.answers.read_until(0, &mut bytes).expect("the browser's answers");
        assert_eq!(bytes.pop(), Some(0), "the browser ended before its answer to {awaited}");
        serde_json::from_slice(&bytes).expect("JSON")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // SAFETY: the child leads this process group and has not been reaped, so the id is still valid.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// Returns the read and write ends of a pipe. Their descriptor numbers are at least 10, so they differ from those that the
/// browser uses.
fn pipe() -> [OwnedFd; 2] {
    let mut fds = [0; 2];
    // SAFETY: only this function knows the new descriptors.
    unsafe {
        assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0, "a pipe");
        fds.map(|fd| {
            let above = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 10);
            assert!(above >= 10, "a descriptor");
            libc::close(fd);
            OwnedFd::from_raw_fd(above)
        })
    }
}
