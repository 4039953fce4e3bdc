//! The user at the other end of a connection, as reported by the kernel.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg,
    sockopt::{set_socket_passcred, socket_peercred},
};

/// The user who connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The effective user id when the user connected.
    pub uid: u32,
    /// The effective and supplementary groups when the user connected.
    pub gids: Vec<u32>,
}

/// Maximum number of groups of a user (NGROUPS_MAX, since Linux 2.6.4).
const MOST_GROUPS: usize = 65_536;

/// Makes the kernel report the sender of all data on a socket. Connections inherit this option from the listening socket. Since
/// Linux 6.16, it must be set there. Otherwise data that arrives before the connection is accepted has no sender.
pub fn note_senders(listener: impl AsFd) -> io::Result<()> {
    Ok(set_socket_passcred(listener, true)?)
}

impl Peer {
    /// Reads the peer from the kernel. Also makes the kernel report the sender of all data from now on.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let socket = socket.as_fd();
        set_socket_passcred(socket, true)?;
        let credentials = socket_peercred(socket)?;
        let mut gids = groups(socket.as_raw_fd())?;
        gids.push(credentials.gid.as_raw());
        Ok(Self { uid: credentials.uid.as_raw(), gids })
    }
}

/// Reads the peer's supplementary groups (SO_PEERGROUPS, Linux 4.13).
fn groups(socket: i32) -> io::Result<Vec<u32>> {
    let mut gids = vec![0u32; MOST_GROUPS];
    let mut bytes = size_of_val(&gids[..]) as libc::socklen_t;
    // SAFETY: The kernel writes at most `bytes` bytes, and `gids` has that size.
    let done = unsafe {
        let at = gids.as_mut_ptr().cast();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERGROUPS, at, &raw mut bytes)
    };
    match done {
        0 => Ok(gids[..bytes as usize / size_of::<u32>()].to_vec()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads data that has already arrived, and the real user id of the sender of the data. Returns `WouldBlock` if no data has
/// arrived. If the client passes file descriptors, the kernel closes them, because the call provides no buffer for them.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<(usize, Option<u32>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut ancillary, flags)?;
    let sender = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(credentials) => Some(credentials.uid.as_raw()),
        _ => None,
    });
    Ok((got.bytes, sender))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::unix::net::{UnixListener, UnixStream},
    };

    use super::*;

    #[test]
    fn data_sent_before_the_connection_is_accepted_has_a_sender() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        note_senders(&listener).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"hello").unwrap();
        let (socket, _) = listener.accept().unwrap();
        let peer = Peer::of(&socket).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(receive(&socket, &mut bytes).unwrap(), (5, Some(rustix::process::getuid().as_raw())));
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn the_kernel_reports_the_peer_and_the_sender() {
        let (mut one, other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&other).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer.gids.contains(&rustix::process::getegid().as_raw()));
        let mut bytes = [0; 16];
        assert_eq!(receive(&other, &mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        one.write_all(b"hello").unwrap();
        assert_eq!(receive(&other, &mut bytes).unwrap(), (5, Some(rustix::process::getuid().as_raw())));
        drop(one);
        assert_eq!(receive(&other, &mut bytes).unwrap().0, 0);
    }
}
