//! Signals: SIGINT, SIGTERM and SIGHUP, which end a command, and those of job control.

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

/// A shell continues a stopped job to end it: time for the ending signal to arrive before we stop again.
const GRACE: Duration = Duration::from_millis(100);

/// The ending signals, which no longer end the process by themselves.
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

    /// Listens beside a command. They are also sent to a command in its own session, which nobody else does.
    pub fn listen_beside(held: Option<&Held>) -> Result<Self> {
        if let Some(group) = held.map(Held::signalled).filter(|target| *target < 0) {
            PASS_TO.store(group, Ordering::SeqCst);
        }
        Self::listen()
    }

    /// Passes them, SIGQUIT, SIGUSR1 and SIGUSR2 on to that command, which must have been forked before with our dispositions.
    pub fn pass_on(held: &Held) -> Self {
        PASS_TO.store(held.signalled(), Ordering::SeqCst);
        let mut passes = plain(pass_on as *const () as libc::sighandler_t);
        passes.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        for signal in PASSED_ON {
            action(signal, Some(passes));
        }
        Self::PassedOn
    }

    /// Waits for the first of them; forever if they are passed on.
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

const PASSED_ON: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// The kernel's own signals (keys, a closed terminal) go to the whole job: a command in our session has received them already.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Stop(Whom),
    Continue,
    Resize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The whole job: Ctrl-Z, which the kernel does not see while the terminal is ours.
    Job,
    /// This process: it got SIGTSTP; its sender took care of the others.
    Process,
}

/// Job control with a screen: gives the terminal back before it stops, and takes it over when continued in the
/// foreground. Dropping it restores the default action of SIGTSTP.
pub struct JobControl {
    /// `None`: our parent has no job control and would never continue us.
    stop: Option<Signal>,
    go_on: Signal,
    resize: Signal,
    end: Signals,
    /// An ending signal arrived: stop no more.
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
            Some(()) = async { stop.as_mut()?.recv().await } => Order::Stop(Whom::Process),
            _ = self.go_on.recv() => Order::Continue,
            _ = self.resize.recv() => Order::Resize,
        }
    }

    /// Obeys. Returns when the screen can be drawn again, or an ending signal arrives: then the terminal is left alone.
    pub async fn obey(&mut self, order: Order, screen: &mut Screen) -> io::Result<()> {
        match order {
            Order::Stop(whom) => self.stop(whom, screen).await,
            Order::Continue => self.come_back(screen).await,
            // The next drawing reads the size.
            Order::Resize => Ok(()),
        }
    }

    /// Gives the terminal back and stops; does nothing without job control.
    async fn stop(&mut self, whom: Whom, screen: &mut Screen) -> io::Result<()> {
        if self.stop.is_none() {
            return Ok(());
        }
        give_back();
        if whom == Whom::Job {
            // Ignored by us: this thread might run on after `kill` returns, and must not.
            let ours = action(libc::SIGTSTP, Some(plain(libc::SIG_IGN)));
            // SAFETY: no memory is involved.
            unsafe { libc::kill(0, libc::SIGTSTP) };
            action(libc::SIGTSTP, Some(ours));
        }
        stop_by(libc::SIGTSTP);
        self.come_back(screen).await
    }

    /// After SIGCONT: takes the terminal over once we are in the foreground. In the background we stop again, as every
    /// program that needs the terminal, unless we were continued to be ended.
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

/// Stops this process by the default action of `signal` until it is continued. The kernel does not stop an orphaned job.
fn stop_by(signal: i32) {
    let ours = action(signal, Some(plain(libc::SIG_DFL)));
    // SAFETY: no memory is involved. A thread's own signal has arrived when the call returns.
    unsafe { libc::raise(signal) };
    action(signal, Some(ours));
}

fn plain(handler: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: all zeros is an empty mask, no flags, and no restorer.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action
}

/// Returns the action of a signal; sets `new`.
fn action(signal: i32, new: Option<libc::sigaction>) -> libc::sigaction {
    let mut before = plain(libc::SIG_DFL);
    let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: two structures of ours, or none; `new` is `plain` or was in force before.
    unsafe { libc::sigaction(signal, new, &mut before) };
    before
}
