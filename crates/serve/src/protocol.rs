//! Requests of viewers over the socket, and the daemon's words beside Samples.
//!
//! A request is one line of JSON; a later one on the same connection replaces it. The answer is what `crates/record` calls a
//! connection: a header, Samples, words.

use cgscope_model::printable;
use serde::{Deserialize, Serialize};

/// Version of the requests.
pub const VERSION: u32 = 1;
/// Bytes of the longest request, its line end left out.
pub const LONGEST: usize = 16 << 10;
/// The most processes in one request.
pub const MOST_PIDS: usize = 1_024;
/// The longest interval, ns: a day.
pub const LONGEST_INTERVAL_NS: u64 = 86_400 * 1_000_000_000;

/// A request of a viewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// From one Sample to the next, ns.
    pub interval_ns: u64,
    /// Processes, with what they start from now on; none: all that the viewer may see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// One more Sample, now, and then the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

impl Request {
    /// A request for Samples at this interval.
    pub fn every(interval_ns: u64) -> Self {
        Self { version: VERSION, interval_ns, pids: Vec::new(), last: false }
    }

    /// The request as a line.
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Parses a line without its end. An error: why it cannot be answered.
    pub fn parse(line: &[u8]) -> Result<Self, Word> {
        let no_request = |why: &str| Word::refused(Refusal::BadRequest, format!("this is no request: {why}"));
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if line.len() > LONGEST {
            return Err(no_request("it is too long"));
        }
        let Versioned { version } =
            serde_json::from_slice(line).map_err(|error| no_request(&error.to_string()))?;
        if version != VERSION {
            return Err(Word::refused(
                Refusal::BadRequest,
                format!(
                    "the request is in version {version} of the protocol, the daemon speaks version {VERSION}: install the \
                     same cgscope on both sides"
                ),
            ));
        }
        let request: Self = serde_json::from_slice(line).map_err(|error| no_request(&error.to_string()))?;
        if request.interval_ns == 0 || request.interval_ns > LONGEST_INTERVAL_NS {
            return Err(no_request("an interval lies between 1 ns and a day"));
        }
        if request.pids.len() > MOST_PIDS {
            return Err(no_request(&format!("it names more than {MOST_PIDS} processes")));
        }
        Ok(request)
    }
}

/// The requests of a client, assembled from the bytes that arrive.
#[derive(Debug, Default)]
pub struct Requests {
    /// The request that is not complete yet.
    begun: Vec<u8>,
}

impl Requests {
    /// Takes bytes up to the end of a request; `None`: its end has not come, and all bytes are taken. A request that is too long is an
    /// error before its end: what comes after that is no request.
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

/// A message of the daemon beside Samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// Why nothing more comes; `None`: more comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// The number of next Samples that only serve to decode later ones: they are older, or another viewer's.
    #[serde(default, skip_serializing_if = "is_none")]
    pub skip: u32,
    /// The request is answered: with everything (true), or with the viewer's own processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shows_all: Option<bool>,
    /// A sentence for people, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sentence: String,
}

fn is_none(number: &u32) -> bool {
    *number == 0
}

impl Word {
    /// The last word: nothing more comes.
    pub fn refused(refused: Refusal, sentence: impl Into<String>) -> Self {
        Self { refused: Some(refused), ..Self::said(sentence) }
    }

    /// A sentence, after which more comes.
    pub fn said(sentence: impl Into<String>) -> Self {
        Self { refused: None, skip: 0, shows_all: None, sentence: sentence.into() }
    }

    /// The answer begins.
    pub fn answered(shows_all: bool) -> Self {
        Self { shows_all: Some(shows_all), ..Self::said("") }
    }

    /// With a sentence that is safe to print: anyone may serve a socket.
    #[must_use]
    pub fn printable(self) -> Self {
        Self { sentence: printable(&self.sentence).to_string(), ..self }
    }

    /// The next Samples only serve to decode later ones.
    pub fn skip(samples: u32) -> Self {
        Self { skip: samples, ..Self::said("") }
    }
}

cgscope_layout::named! {
    /// Why a viewer is not served.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Refusal (name,) {
        /// Its name in answers and metrics.
        name: &'static str,
    }

    /// It makes no sense, or is too long.
    BadRequest = "bad_request";
    /// Another user than the one who connected has sent it.
    OtherUser = "other_user";
    /// There are as many clients as there may be.
    TooManyClients = "too_many_clients";
    /// They come too fast.
    TooManyRequests = "too_many_requests";
    /// A process is not there, or may not be seen.
    NoSuchProcess = "no_such_process";
    /// Nothing was asked, or nothing read, for too long.
    TooSlow = "too_slow";
    /// The daemon cannot collect any more.
    Failed = "failed";
    /// The daemon ends.
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
    fn what_is_no_request_is_refused_in_a_sentence() {
        assert!(sentence(b"").starts_with("this is no request: EOF"));
        assert!(sentence(b"GET / HTTP/1.1").starts_with("this is no request: expected value"));
        assert!(sentence(br#"{"version":2,"interval_ns":5}"#).contains("version 2 of the protocol"));
        assert!(sentence(br#"{"version":1}"#).contains("missing field `interval_ns`"));
        assert!(sentence(br#"{"version":1,"interval_ns":0}"#).contains("between 1 ns and a day"));
        assert!(sentence(br#"{"version":1,"interval_ns":5,"colour":1}"#).contains("unknown field `colour`"));
        assert!(sentence(&[b'['; LONGEST]).starts_with("this is no request"));
        assert!(sentence(&[b' '; LONGEST + 1]).contains("too long"));
        let many = Request { pids: vec![1; MOST_PIDS + 1], ..Request::every(5) };
        assert!(sentence(&many.line()).contains("more than 1024 processes"));
    }

    #[test]
    fn requests_are_whole_however_their_bytes_come() {
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

    #[test]
    fn a_refusal_is_written_by_its_name() {
        for refusal in Refusal::ALL {
            assert_eq!(serde_json::to_value(refusal).unwrap(), refusal.name());
        }
    }

    proptest! {
        #[test]
        fn no_line_is_too_much(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&line);
        }
    }
}
