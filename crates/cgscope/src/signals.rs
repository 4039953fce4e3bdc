//! Signals that end a command (SIGINT, SIGTERM, SIGHUP), and signals of job control.

use std::{io, mem::MaybeUninit, ptr, sync::atomic::Ordering, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

use crate::{
    child::{Held, PASS_TO},
    exit::{Error, Result},
    terminal::{Screen, give_back, in_foreground},
};

/// Time to wait for SIGINT, SIGTERM or SIGHUP before we stop again. A shell that ends a stopped job also continues that job.
const GRACE: Duration = Duration::from_millis(100);

/// Handles SIGINT, SIGTERM and SIGHUP. While this value lives, these signals do not end the process by themselves.
pub enum Signals {
    Heard([Signal; 3]),
    PassedOn,
}

impl Signals {
    pub fn listen() -> Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(listen);
        Ok(Self::Heard([interrupt?, terminate?, hangup?]))
    }

    /// Receives signals while a command runs. Passes them on to a command with its own session, which gets no others.
    pub fn listen_beside(held: Option<&Held>) -> Result<Self> {
        if let Some(group) = held.map(|held| held.signalled).filter(|target| *target < 0) {
            PASS_TO.store(group, Ordering::SeqCst);
        }
        Self::listen()
    }

    /// Passes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 on to the command. Call it after the fork: a child inherits
    /// actions.
    pub fn pass_on(held: &Held) -> Self {
        PASS_TO.store(held.signalled, Ordering::SeqCst);
        let mut passes = plain(pass_on as *const () as libc::sighandler_t);
        passes.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        for signal in PASSED_ON {
            action(signal, Some(passes));
        }
        Self::PassedOn
    }

    /// Waits for SIGINT, SIGTERM or SIGHUP, and returns its number. Waits for ever if they are passed on to the command.
    pub async fn any(&mut self) -> i32 {
        let Self::Heard([interrupt, terminate, hangup]) = self else { return std::future::pending().await };
        let signal = tokio::select! {
            _ = interrupt.recv() => libc::SIGINT,
            _ = terminate.recv() => libc::SIGTERM,
            _ = hangup.recv() => libc::SIGHUP,
        };
        let target = PASS_TO.load(Ordering::SeqCst);
        if target < 0 {
            // SAFETY: the target is the process group of our child, which has not been reaped.
            unsafe { libc::kill(target, signal) };
        }
        signal
    }
}

const PASSED_ON: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// Passes a signal on. The kernel sends its own signals (keys, a closed terminal) to all processes of the job in our session.
extern "C" fn pass_on(signal: i32, info: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: the kernel passes a valid pointer.
    let by_kernel = unsafe { (*info).si_code } == libc::SI_KERNEL;
    let target = PASS_TO.load(Ordering::SeqCst);
    if target < 0 || (!by_kernel && target > 0) {
        // SAFETY: the target is our child, which has not been reaped; both calls are allowed in a signal handler.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::kill(target, signal);
            *errno = before;
        }
    }
}

pub fn listen(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| Error::could_not_run(format!("signals cannot be received ({error})")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Stop the whole job, after Ctrl-Z: in raw mode, the kernel does not turn the key into a signal.
    StopJob,
    /// Stop only this process, after SIGTSTP: its sender also stops the other processes.
    Stop,
    Continue,
    Resize,
}

/// Job control for a screen. Gives the terminal back before a stop, and takes it over when the job continues in the foreground.
/// Dropping this value restores the default action of SIGTSTP.
pub struct JobControl {
    /// `None` if our parent has no job control and would never continue us.
    stop: Option<Signal>,
    go_on: Signal,
    resize: Signal,
    end: Signals,
    /// SIGINT, SIGTERM or SIGHUP has arrived, so we must not stop any more.
    is_ending: bool,
}

impl JobControl {
    pub fn listen() -> Result<Self> {
        let stops = action(libc::SIGTSTP, None).sa_sigaction == libc::SIG_DFL;
        Ok(Self {
            stop: stops.then(|| listen(SignalKind::from_raw(libc::SIGTSTP))).transpose()?,
            go_on: listen(SignalKind::from_raw(libc::SIGCONT))?,
            resize: listen(SignalKind::window_change())?,
            end: Signals::listen()?,
            is_ending: false,
        })
    }

    pub async fn next(&mut self) -> Order {
        let stop = &mut self.stop;
        tokio::select! {
            Some(()) = async { stop.as_mut()?.recv().await } => Order::Stop,
            _ = self.go_on.recv() => Order::Continue,
            _ = self.resize.recv() => Order::Resize,
        }
    }

    /// Executes an order. Returns when the screen can be drawn again, or (without the terminal) after a signal that ends us.
    pub async fn obey(&mut self, order: Order, screen: &mut Screen) -> io::Result<()> {
        match order {
            // The next draw reads the size of the terminal.
            Order::Resize => return Ok(()),
            Order::Continue => return self.come_back(screen).await,
            Order::StopJob | Order::Stop if self.stop.is_none() => return Ok(()),
            Order::StopJob | Order::Stop => give_back(),
        }
        if order == Order::StopJob {
            // Ignores our own signal. Otherwise this thread could continue after `kill`, which it must not.
            let ours = action(libc::SIGTSTP, Some(plain(libc::SIG_IGN)));
            // SAFETY: the call involves no memory.
            unsafe { libc::kill(0, libc::SIGTSTP) };
            action(libc::SIGTSTP, Some(ours));
        }
        stop_by(libc::SIGTSTP);
        self.come_back(screen).await
    }

    /// Takes the terminal over when the job is in the foreground after SIGCONT. In the background, stops again, like every
    /// program that needs the terminal, unless a signal asks us to end.
    async fn come_back(&mut self, screen: &mut Screen) -> io::Result<()> {
        while !in_foreground() {
            give_back();
            self.is_ending |= timeout(GRACE, self.end.any()).await.is_ok();
            if self.is_ending {
                return Ok(());
            }
            stop_by(libc::SIGTTOU);
        }
        screen.retake()
    }
}

impl Drop for JobControl {
    fn drop(&mut self) {
        if self.stop.is_some() {
            action(libc::SIGTSTP, Some(plain(libc::SIG_DFL)));
        }
    }
}

/// Stops this process by the default action of `signal`, until it is continued. The kernel does not stop an orphaned job.
fn stop_by(signal: i32) {
    let ours = action(signal, Some(plain(libc::SIG_DFL)));
    // SAFETY: the call involves no memory. A signal to the calling thread is delivered before `raise` returns.
    unsafe { libc::raise(signal) };
    action(signal, Some(ours));
}

fn plain(handler: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: all zeros means an empty mask, no flags, and no restorer.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action
}

/// Returns the current action of a signal. Also sets `new`, if given.
fn action(signal: i32, new: Option<libc::sigaction>) -> libc::sigaction {
    let mut before = plain(libc::SIG_DFL);
    let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both pointers are to our own structures or null. `new` was built by `plain` or read from the kernel.
    unsafe { libc::sigaction(signal, new, &mut before) };
    before
}
