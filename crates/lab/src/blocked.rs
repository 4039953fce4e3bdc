//! A load of blocked threads. The name of each thread says which call blocks the thread.

use std::{
    fs::File,
    io::{self, Read},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{fd::AsRawFd, unix::net::UnixStream},
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// A blocking call. It returns only if it fails or the load ends.
type Blocks = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Starts blocked threads, calls `ready`, and waits for `seconds`. The name of a thread is `KIND-HOW`, with a `KIND` of the
/// model.
///
/// # Errors
/// Fails if the host refuses a thread, or a file or socket on which a thread blocks.
pub fn blocked(seconds: u64, ready: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let _stream_end = listener.accept()?;
    let datagrams = UdpSocket::bind("127.0.0.1:0")?;
    let (unix, _unix_end) = UnixStream::pair()?;
    let (pipe, _pipe_end) = io::pipe()?;
    let (polled, _polled_end) = io::pipe()?;
    let mutex = Arc::new(Mutex::new(()));
    let of_thread = mutex.clone();
    let _held = mutex.lock();
    let (locked, waiting) = same_file_twice()?;
    flock(&locked)?;
    // SAFETY: no preconditions.
    let (events, epoll) = unsafe { (libc::eventfd(0, 0), libc::epoll_create1(0)) };
    let until_end = seconds.to_string();
    let threads: Vec<(&str, Blocks)> = vec![
        ("accept-tcp", Box::new(move || listener.accept().map(drop))),
        ("network-tcp", Box::new(move || (&stream).read_exact(&mut [0]))),
        ("network-udp", Box::new(move || datagrams.recv(&mut [0]).map(drop))),
        ("network-unix", Box::new(move || (&unix).read_exact(&mut [0]))),
        ("pipe-read", Box::new(move || (&pipe).read_exact(&mut [0]))),
        ("poll-poll", Box::new(move || poll(polled.as_raw_fd()))),
        ("poll-epoll", Box::new(move || wait_for_events(epoll))),
        ("poll-eventfd", Box::new(move || read(events))),
        ("lock-mutex", Box::new(move || drop_lock(&of_thread))),
        ("file lock-flock", Box::new(move || flock(&waiting).map(|()| drop(locked)))),
        ("child-wait", Box::new(move || Command::new("sleep").arg(until_end).status().map(drop))),
        ("signal-pause", Box::new(pause)),
        (
            "timer-sleep",
            Box::new(|| {
                thread::sleep(Duration::MAX);
                Ok(())
            }),
        ),
    ];
    for (name, block) in threads {
        thread::Builder::new().name(name.into()).spawn(block)?;
    }
    ready()?;
    thread::sleep(Duration::from_secs(seconds));
    Ok(())
}

/// Opens an unlinked file twice, because `flock` blocks only between two open files.
pub(crate) fn same_file_twice() -> io::Result<(File, File)> {
    let path = std::env::temp_dir().join(format!("cgscope-blocked-{}", std::process::id()));
    let both = File::create(&path).and_then(|first| Ok((first, File::open(&path)?)));
    std::fs::remove_file(&path)?;
    both
}

fn flock(file: &File) -> io::Result<()> {
    // SAFETY: no preconditions.
    checked(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } as isize)
}

fn drop_lock(mutex: &Mutex<()>) -> io::Result<()> {
    drop(mutex.lock());
    Ok(())
}

fn poll(fd: i32) -> io::Result<()> {
    let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, and a count of 1.
    checked(unsafe { libc::poll(&mut wanted, 1, -1) } as isize)
}

fn wait_for_events(epoll: i32) -> io::Result<()> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: one entry, and a count of 1.
    checked(unsafe { libc::epoll_wait(epoll, &mut event, 1, -1) } as isize)
}

fn read(fd: i32) -> io::Result<()> {
    let mut number = 0_u64;
    // SAFETY: `number` has the size that is passed.
    checked(unsafe { libc::read(fd, (&raw mut number).cast(), size_of::<u64>()) })
}

fn pause() -> io::Result<()> {
    // SAFETY: no preconditions.
    checked(unsafe { libc::pause() } as isize)
}

fn checked(returned: isize) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
