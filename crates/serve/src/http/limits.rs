//! What a client may take of the server: connections, bytes and time.

use std::time::Duration;

/// The longest request line with its headers, in bytes. Prometheus sends about 500.
pub(super) const HEAD_BYTES: usize = 16 * 1024;

/// The most header lines of a request.
pub(super) const HEADERS: usize = 64;

/// A page is handed to the connection in pieces of this many bytes, which are parts of it: a slow reader holds no copy, but the page
/// until it has taken the last piece. [`HttpLimits::pages`] bounds what is held so.
pub(super) const PIECE_BYTES: usize = 16 * 1024;

/// A page shorter than this is not worth compressing.
pub(super) const GZIP_LEAST_BYTES: usize = 1024;

/// How long a page that is wanted waits for memory: longer than [`HttpLimits::write_grace`], after which slow readers lose their
/// pages, and shorter than a scrape waits.
pub(super) const PATIENCE_FOR_ROOM: Duration = Duration::from_secs(4);

/// Passwords that wait to be checked; one is checked at a time.
pub(super) const WAITING_LOGINS: usize = 16;

/// After a wrong password nothing is checked for this many times as long as checking it took: so guessing costs at most a fifth
/// of one CPU.
pub(super) const REST_AFTER_WRONG: u32 = 4;

/// Wrong passwords in a row that an address has free.
pub(super) const FREE_GUESSES: u32 = 5;

/// For every further one it waits this long.
pub(super) const GUESS_EVERY: Duration = Duration::from_secs(2);

/// Addresses whose wrong passwords are remembered.
pub(super) const GUESSERS: usize = 1024;

/// Bounds that a test or a slow network may want otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Connections at once. One more takes the place of the one that has waited longest for its client, if there is one.
    pub connections: usize,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// From the first byte of a request (or from the connection, for the first request) to the end of its headers.
    pub request: Duration,
    /// For the caller to make a page.
    pub page: Duration,
    /// Bytes of pages that are made and not taken by all who asked. With more than that none is made.
    pub pages: usize,
    /// From the request to the answer: with waiting for others' pages and passwords.
    pub answer: Duration,
    /// For the client to take the whole answer.
    pub write: Duration,
    /// A client that has not taken its answer after this long may lose its place to a new one.
    pub write_grace: Duration,
    /// Between an answer and the first byte of the next request: longer than scrapes are apart, so that they keep their connection.
    pub idle: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            handshake: Duration::from_secs(5),
            request: Duration::from_secs(10),
            page: Duration::from_secs(20),
            // Fourteen of 9 MB, as 200 cgroups with all that can be told of them make, and an eighth of the memory that the unit lets
            // the daemon have, of which it takes a quarter besides.
            pages: 128 << 20,
            answer: Duration::from_secs(60),
            write: Duration::from_secs(30),
            write_grace: Duration::from_secs(2),
            idle: Duration::from_secs(150),
        }
    }
}
