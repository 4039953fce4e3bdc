//! The protocol of the socket: requests of viewers, and those messages of the daemon that are not samples.
//!
//! A request is one line of JSON, and replaces the earlier requests on the connection. The daemon answers in the format of
//! `crates/record`: with a header, followed by samples and other messages.

use cgscope_model::printable;
use serde::{Deserialize, Serialize};

/// Version of the request format.
pub const VERSION: u32 = 1;
/// Maximum length of a request without its line end, bytes.
pub const LONGEST: usize = 16 << 10;
/// Maximum number of processes in one request.
pub const MOST_PIDS: usize = 1_024;
/// Maximum interval, ns: one day.
pub const LONGEST_INTERVAL_NS: u64 = 86_400 * 1_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub version: u32,
    pub interval_ns: u64,
    /// Processes to show, with the child processes that they start from now on. If there are none, all processes are shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// Whether the daemon should send one more sample immediately and then close the connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

impl Request {
    pub fn every(interval_ns: u64) -> Self {
        Self { version: VERSION, interval_ns, pids: Vec::new(), last: false }
    }

    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Parses a line without its line end. The error is the message to send to the client.
    pub fn parse(line: &[u8]) -> Result<Self, Word> {
        let no_request = |why: &str| Word::refused(Refusal::BadRequest, format!("invalid request: {why}"));
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if line.len() > LONGEST {
            return Err(no_request("the line is too long"));
        }
        let Versioned { version } =
            serde_json::from_slice(line).map_err(|error| no_request(&error.to_string()))?;
        if version != VERSION {
            let sentence = format!(
                "the request has protocol version {version}, but the daemon supports version {VERSION}: install the same \
                 version of cgscope on both sides"
            );
            return Err(Word::refused(Refusal::BadRequest, sentence));
        }
        let request: Self = serde_json::from_slice(line).map_err(|error| no_request(&error.to_string()))?;
        if request.interval_ns == 0 || request.interval_ns > LONGEST_INTERVAL_NS {
            return Err(no_request("the interval must be between 1 ns and a day"));
        }
        if request.pids.len() > MOST_PIDS {
            return Err(no_request(&format!("it lists more than {MOST_PIDS} processes")));
        }
        Ok(request)
    }
}

/// Assembles the requests of a client from the bytes that arrive.
#[derive(Debug, Default)]
pub struct Requests {
    /// The first bytes of a request whose end has not arrived yet.
    begun: Vec<u8>,
}

impl Requests {
    /// Consumes bytes up to the end of a request. Returns `None` if the end has not arrived; then all bytes are consumed. If a
    /// request is too long, this call and all later calls return an error.
    pub fn take(&mut self, came: &mut &[u8]) -> Result<Option<Request>, Word> {
        let end = came.iter().position(|byte| *byte == b'\n');
        let (part, rest) = came.split_at(end.unwrap_or(came.len()));
        *came = rest.get(1..).unwrap_or_default();
        self.begun.extend(part);
        if end.is_none() && self.begun.len() <= LONGEST {
            return Ok(None);
        }
        Request::parse(&std::mem::take(&mut self.begun)).map(Some)
    }
}

/// A message of the daemon that is not a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// The reason why the daemon sends no more messages; `None` if it sends more messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// Number of the following samples that the viewer must not show, because they are too old or were taken for another viewer.
    /// They are sent only because the viewer needs them to decode later samples.
    #[serde(default, skip_serializing_if = "is_none")]
    pub skip: u32,
    /// Whether the daemon accepted the request. Only an older daemon sends false, if it shows just the viewer's own processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shows_all: Option<bool>,
    /// A sentence that the viewer shows; it may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sentence: String,
}

fn is_none(number: &u32) -> bool {
    *number == 0
}

impl Word {
    /// Creates the last message, which says why no further messages follow.
    pub fn refused(refused: Refusal, sentence: impl Into<String>) -> Self {
        Self { refused: Some(refused), ..Self::said(sentence) }
    }

    /// Creates a message with a sentence. The daemon continues to send messages.
    pub fn said(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), ..Self::default() }
    }

    /// Makes the sentence safe to print. The sender may be hostile, because anyone can create a socket.
    #[must_use]
    pub fn printable(self) -> Self {
        Self { sentence: printable(&self.sentence).to_string(), ..self }
    }
}

cgscope_ledger::named! {
    /// The reason why the daemon does not serve a viewer. A viewer that does not know a name assumes that its peer is not a
    /// cgscope daemon. So no name can be added as long as older viewers are in use.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Refusal (name,) {
        /// The name in messages and metrics.
        name: &'static str,
    }

    /// The request is malformed or too long.
    BadRequest = "bad_request";
    /// The user has no permission to connect, or the user who sends a request is not the user who connected.
    OtherUser = "other_user";
    /// A limit is reached: of clients, of intervals, of viewers that follow processes, or of memory.
    TooManyClients = "too_many_clients";
    /// Connections or requests arrive too fast.
    TooManyRequests = "too_many_requests";
    NoSuchProcess = "no_such_process";
    /// The client sent no request in time, or read too slowly.
    TooSlow = "too_slow";
    /// The daemon can no longer take samples.
    Failed = "failed";
    Ending = "ending";
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sentence(line: &[u8]) -> String {
        Request::parse(line).unwrap_err().sentence
    }

    #[test]
    fn a_request_is_a_line() {
        let request = Request { pids: vec![7], last: true, ..Request::every(1_000_000_000) };
        let line = request.line();
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(Request::parse(&line[..line.len() - 1]), Ok(request));
        assert_eq!(Request::parse(br#"{"version":1,"interval_ns":5}"#), Ok(Request::every(5)));
    }

    #[test]
    fn an_invalid_request_is_refused_with_a_sentence() {
        assert!(sentence(b"").starts_with("invalid request: EOF"));
        assert!(sentence(b"GET / HTTP/1.1").starts_with("invalid request: expected value"));
        assert!(sentence(br#"{"version":2,"interval_ns":5}"#).contains("protocol version 2"));
        assert!(sentence(br#"{"version":1}"#).contains("missing field `interval_ns`"));
        assert!(sentence(br#"{"version":1,"interval_ns":0}"#).contains("between 1 ns and a day"));
        assert!(sentence(br#"{"version":1,"interval_ns":5,"colour":1}"#).contains("unknown field `colour`"));
        assert!(sentence(&[b'['; LONGEST]).starts_with("invalid request"));
        assert!(sentence(&[b' '; LONGEST + 1]).contains("too long"));
        let many = Request { pids: vec![1; MOST_PIDS + 1], ..Request::every(5) };
        assert!(sentence(&many.line()).contains("more than 1024 processes"));
    }

    #[test]
    fn requests_are_assembled_however_their_bytes_arrive() {
        let lines = [Request::every(5).line(), Request::every(7).line()].concat();
        for at in 0..lines.len() {
            let mut requests = Requests::default();
            let mut got = Vec::new();
            for mut came in [&lines[..at], &lines[at..]] {
                while !came.is_empty() {
                    got.extend(requests.take(&mut came).unwrap());
                }
            }
            assert_eq!(got, [Request::every(5), Request::every(7)], "cut at {at}");
        }
    }

    #[test]
    fn a_request_that_does_not_end_is_refused_when_it_is_too_long() {
        let mut requests = Requests::default();
        assert_eq!(requests.take(&mut [b' '; LONGEST].as_slice()), Ok(None));
        assert!(requests.take(&mut b" ".as_slice()).unwrap_err().sentence.contains("too long"));
    }

    /// The names that version 0.1 sends and understands.
    #[test]
    fn the_names_of_older_viewers_and_daemons_stay() {
        let names: Vec<&str> = Refusal::ALL.iter().map(|refusal| refusal.name()).collect();
        let old = [
            "bad_request",
            "other_user",
            "too_many_clients",
            "too_many_requests",
            "no_such_process",
            "too_slow",
            "failed",
            "ending",
        ];
        assert_eq!(names, old);
        let old = br#"{"version":1,"interval_ns":1000000000,"pids":[7],"last":true}"#;
        assert_eq!(
            Request::parse(old),
            Ok(Request { pids: vec![7], last: true, ..Request::every(1_000_000_000) })
        );
        let own_only: Word = serde_json::from_str(r#"{"shows_all":false,"skip":2}"#).unwrap();
        assert_eq!((own_only.shows_all, own_only.skip), (Some(false), 2));
    }

    #[test]
    fn a_refusal_is_encoded_by_its_name() {
        for refusal in Refusal::ALL {
            assert_eq!(serde_json::to_value(refusal).unwrap(), refusal.name());
        }
    }

    proptest! {
        #[test]
        fn no_line_causes_a_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&line);
        }
    }
}
