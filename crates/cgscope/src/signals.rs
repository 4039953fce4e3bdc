//! The signals that end a command, Ctrl-C, SIGTERM and SIGHUP, and those with which a shell moves a job about.

use std::{io, mem::MaybeUninit, ptr, sync::atomic::Ordering, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

use crate::{
    child::{Held, PASS_TO},
    exit::{Error, Result},
    terminal::{Screen, in_foreground},
};

/// A shell that ends a stopped job continues it for that: so long is waited for a signal that ends us before we stop again.
const GRACE: Duration = Duration::from_millis(100);

/// They no longer end the process by themselves.
pub enum Signals {
    /// They are listened to.
    Heard([Signal; 3]),
    /// They are for the command that we have started.
    PassedOn,
}

impl Signals {
    /// From now on.
    pub fn listen() -> Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(listen);
        Ok(Self::Heard([interrupt?, terminate?, hangup?]))
    }

    /// The same beside a command: one with a session of its own is sent each of them, too, as nobody else does it.
    pub fn listen_beside(held: Option<&Held>) -> Result<Self> {
        if let Some(group) = held.map(Held::signalled).filter(|target| *target < 0) {
            PASS_TO.store(group, Ordering::SeqCst);
        }
        Self::listen()
    }

    /// From now on they go to that command, as do SIGQUIT, SIGUSR1 and SIGUSR2. It must have been made before: what is ignored
    /// or not must be as we were given it.
    pub fn pass_on(held: &Held) -> Self {
        PASS_TO.store(held.signalled(), Ordering::SeqCst);
        let mut passes = plain(pass_on as *const () as libc::sighandler_t);
        passes.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        for signal in PASSED_ON {
            action(signal, Some(passes));
        }
        Self::PassedOn
    }

    /// Waits for the first of them; for ever where they are passed on.
    pub async fn any(&mut self) {
        let Self::Heard([interrupt, terminate, hangup]) = self else { return std::future::pending().await };
        let signal = tokio::select! {
            _ = interrupt.recv() => libc::SIGINT,
            _ = terminate.recv() => libc::SIGTERM,
            _ = hangup.recv() => libc::SIGHUP,
        };
        let target = PASS_TO.load(Ordering::SeqCst);
        if target < 0 {
            // SAFETY: the process group of a child of ours that has not been reaped.
            unsafe { libc::kill(target, signal) };
        }
    }
}

/// Those that people send to a program to have something done.
const PASSED_ON: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// What the kernel sends itself, for a key or a terminal that is gone, goes to the whole job: a command of our session has it
/// already.
extern "C" fn pass_on(signal: i32, info: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: the kernel hands over a valid one.
    let by_kernel = unsafe { (*info).si_code } == libc::SI_KERNEL;
    let target = PASS_TO.load(Ordering::SeqCst);
    if target < 0 || (!by_kernel && target > 0) {
        // SAFETY: a child of ours that has not been reaped; both calls may be made in a handler.
        unsafe {
            let errno = libc::__errno_location();
            let before = *errno;
            libc::kill(target, signal);
            *errno = before;
        }
    }
}

fn listen(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(|error| Error::could_not_run(format!("signals cannot be received ({error})")))
}

/// What the shell, or the terminal, has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Stop.
    Stop(Whom),
    /// It was continued: SIGCONT.
    Continue,
    /// The terminal has another size: SIGWINCH.
    Resize,
}

/// Whom a stop is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The whole job, as Ctrl-Z has it; the kernel says it to nobody while the terminal is ours.
    Job,
    /// This process: it got SIGTSTP, and whoever sent it has told the others if they were meant.
    Process,
}

/// The job control of a process with a screen: it gives the terminal back before it stops, and takes it over again when it is
/// continued in the foreground. Dropped, SIGTSTP stops it as any other process.
pub struct JobControl {
    /// `None`: whoever started us has no job control, and would never continue us.
    stop: Option<Signal>,
    go_on: Signal,
    resize: Signal,
    end: Signals,
    /// Something has ended us: the rest is not to be stopped.
    is_ending: bool,
}

impl JobControl {
    /// From now on.
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

    /// Waits for the next order.
    pub async fn next(&mut self) -> Order {
        let stop = &mut self.stop;
        tokio::select! {
            Some(()) = async { stop.as_mut()?.recv().await } => Order::Stop(Whom::Process),
            _ = self.go_on.recv() => Order::Continue,
            _ = self.resize.recv() => Order::Resize,
        }
    }

    /// Does as told. Returns when the screen can be drawn anew, or when something ends us: then the terminal is left alone.
    pub async fn obey(&mut self, order: Order, screen: &mut Screen) -> io::Result<()> {
        match order {
            Order::Stop(whom) => self.stop(whom, screen).await,
            Order::Continue => self.come_back(screen).await,
            // Whoever draws asks for the size.
            Order::Resize => Ok(()),
        }
    }

    /// Gives the terminal back and stops. Without job control nothing happens.
    async fn stop(&mut self, whom: Whom, screen: &mut Screen) -> io::Result<()> {
        if self.stop.is_none() {
            return Ok(());
        }
        screen.leave();
        if whom == Whom::Job {
            // All but us: whether this thread had stopped when `kill` returns is not said, and it must not go on before.
            let ours = action(libc::SIGTSTP, Some(plain(libc::SIG_IGN)));
            // SAFETY: no memory is involved.
            unsafe { libc::kill(0, libc::SIGTSTP) };
            action(libc::SIGTSTP, Some(ours));
        }
        stop_by(libc::SIGTSTP);
        self.come_back(screen).await
    }

    /// After SIGCONT: takes the terminal over once it is ours to take. Continued in the background we stop again, as whoever needs
    /// the terminal there does, but not where we were continued to be ended.
    async fn come_back(&mut self, screen: &mut Screen) -> io::Result<()> {
        while !in_foreground() {
            screen.leave();
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

/// Stops this process as `signal` does where nobody listens to it, until it is continued. The kernel does not stop an orphaned
/// job, which nobody would continue.
fn stop_by(signal: i32) {
    let ours = action(signal, Some(plain(libc::SIG_DFL)));
    // SAFETY: no memory is involved. Of a thread's own signal it is sure that it has come when the call returns.
    unsafe { libc::raise(signal) };
    action(signal, Some(ours));
}

fn plain(handler: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: all zeros is an empty mask, no flags, and no restorer.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action
}

/// What a signal does, and from now on if `new` is given.
fn action(signal: i32, new: Option<libc::sigaction>) -> libc::sigaction {
    let mut before = plain(libc::SIG_DFL);
    let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: two structures of ours, or none; `new` is `plain` or was in force before.
    unsafe { libc::sigaction(signal, new, &mut before) };
    before
}
