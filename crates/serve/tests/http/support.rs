//! A server with its own page, and a client that sends exactly the given bytes.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use cgscope_serve::http::{Error, Http, HttpConfig, HttpLimits, HttpRefusal, Page, Pages};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A time limit that no answer in these tests reaches.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    pub(crate) http: Arc<Http>,
    pub(crate) made: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

pub(crate) fn anywhere() -> HttpConfig {
    at("127.0.0.1:0".parse().unwrap())
}

pub(crate) fn at(listen: SocketAddr) -> HttpConfig {
    HttpConfig { listen: Some(listen), ..HttpConfig::default() }
}

pub(crate) fn bind(config: &HttpConfig) -> Result<Http, Error> {
    Http::bind(config.listen.expect("an address"), config)
}

pub(crate) fn limited(limits: HttpLimits) -> HttpConfig {
    HttpConfig { limits, ..anywhere() }
}

/// A server whose collector hangs.
pub(crate) struct Hangs;

impl Pages for Hangs {
    type Kind = ();

    fn kind(&self, _: Option<&str>) {}

    fn make(&self, (): ()) -> impl Future<Output = Page> + Send {
        std::future::pending()
    }

    fn health(&self) -> Result<(), String> {
        Err("A sample has been under way for 31 s.".into())
    }
}

/// Makes a separate page for each `Accept` header.
struct EachItsOwn<P>(P);

impl<P, F> Pages for EachItsOwn<P>
where
    P: Fn(Option<String>) -> F + Send + Sync + 'static,
    F: Future<Output = Page> + Send + 'static,
{
    type Kind = Option<String>;

    fn kind(&self, accept: Option<&str>) -> Option<String> {
        accept.map(str::to_owned)
    }

    fn make(&self, accept: Option<String>) -> impl Future<Output = Page> + Send {
        (self.0)(accept)
    }
}

impl Server {
    /// Starts a server. The page shows the `Accept` header, and has a size of `page_bytes` bytes.
    pub(crate) fn start(config: &HttpConfig, page_bytes: usize) -> Self {
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        Self::with(config, made, move |accept: Option<String>| {
            counted.fetch_add(1, SeqCst);
            let mut body = format!("/metrics {accept:?}\n").into_bytes();
            let lines = (0..).flat_map(|n| format!("line {n}\n").into_bytes());
            body.extend(lines.take(page_bytes.saturating_sub(body.len())));
            std::future::ready(Page::new(CONTENT_TYPE, body))
        })
    }

    pub(crate) fn with<P, F>(config: &HttpConfig, made: Arc<AtomicUsize>, pages: P) -> Self
    where
        P: Fn(Option<String>) -> F + Send + Sync + 'static,
        F: Future<Output = Page> + Send + 'static,
    {
        Self::of(config, made, EachItsOwn(pages))
    }

    pub(crate) fn of(config: &HttpConfig, made: Arc<AtomicUsize>, pages: impl Pages) -> Self {
        let http = Arc::new(bind(config).unwrap());
        let serving = http.clone();
        let task =
            tokio::spawn(async move { panic!("serving ended: {}", serving.serve(pages).await.unwrap_err()) });
        Self { http, made, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.http.local_addr
    }

    pub(crate) fn refused(&self, refusal: HttpRefusal) -> u64 {
        self.http.counters.refused(refusal)
    }

    /// Waits for a counter, because the server may increase it after the client has received its answer.
    pub(crate) async fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..2_000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never: {what}; {:?}", self.http.counters);
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    pub(crate) async fn ask(&self, request: &str) -> Answer {
        let mut stream = self.connect().await;
        say(&mut stream, request).await
    }

    pub(crate) async fn get(&self, path: &str, headers: &str) -> Answer {
        self.ask(&get(path, headers)).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns a GET request. Each line of `headers` must end with CR LF.
pub(crate) fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n{headers}\r\n")
}

pub(crate) async fn say<S>(stream: &mut S, request: &str) -> Answer
where
    S: AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    answer(stream, request.starts_with("HEAD")).await.expect("an answer")
}

/// Returns the next answer. Returns `None` if the connection ended before.
pub(crate) async fn answer<S: AsyncRead + Unpin>(stream: &mut S, is_to_head: bool) -> Option<Answer> {
    timeout(LONG, read(stream, is_to_head)).await.expect("an answer or an end in time")
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S, is_to_head: bool) -> Option<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_lowercase(), value.to_owned())
    };
    let mut answer = Answer { status, headers: lines.map(header).collect(), body: Vec::new() };
    let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    answer.body.resize(if is_to_head { 0 } else { length }, 0);
    stream.read_exact(&mut answer.body).await.ok()?;
    Some(answer)
}

/// Returns whether the server closes the connection without sending anything.
pub(crate) async fn ends<S: AsyncRead + Unpin>(stream: &mut S) -> bool {
    let end = timeout(LONG, stream.read_u8()).await.expect("an end in time");
    end.is_err()
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}
