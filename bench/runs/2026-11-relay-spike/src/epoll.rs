//! The same relay as a hand-written loop: one thread, edge-triggered epoll (mio), sessions in a
//! table, no tasks and no wakers. It is the floor that a runtime is compared with.

use crate::Setup;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, event::Event};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

const SCRATCH_BYTES: usize = 64 * 1024;
const LISTENER: Token = Token(usize::MAX);

/// Side 0 is the client, side 1 the server; `unsent[s]` waits to be written to side `s`.
struct Session {
    sockets: [TcpStream; 2],
    unsent: [Vec<u8>; 2],
}

pub fn run(setup: Setup) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, setup.listen)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut sessions: Vec<Option<Session>> = Vec::new();
    let mut scratch = vec![0; SCRATCH_BYTES];
    loop {
        match poll.poll(&mut events, None) {
            // A debugger or tracer that attaches interrupts the wait; mio leaves that to us.
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        for event in &events {
            match event.token() {
                LISTENER => accept(&listener, &poll, &mut sessions, setup)?,
                Token(t) => step(&mut sessions[t / 2], t % 2, event, &mut scratch),
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    poll: &Poll,
    sessions: &mut Vec<Option<Session>>,
    setup: Setup,
) -> io::Result<()> {
    loop {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        };
        // Blocking connect: loopback, and not what is measured.
        let server = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, setup.server))?;
        server.set_nonblocking(true)?;
        let mut sockets = [client, TcpStream::from_std(server)];
        let id = sessions.len();
        for (side, socket) in sockets.iter_mut().enumerate() {
            socket.set_nodelay(setup.nodelay)?;
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(socket, Token(2 * id + side), both)?;
        }
        sessions.push(Some(Session { sockets, unsent: [Vec::new(), Vec::new()] }));
    }
}

fn step(slot: &mut Option<Session>, side: usize, event: &Event, scratch: &mut [u8]) {
    let Some(session) = slot else { return };
    let mut open = Ok(true);
    if event.is_writable() && !session.unsent[side].is_empty() {
        open = session.pump(1 - side, true, scratch);
    }
    if matches!(open, Ok(true)) && event.is_readable() {
        open = session.pump(side, event.is_read_closed(), scratch);
    }
    if !matches!(open, Ok(true)) {
        *slot = None;
    }
}

impl Session {
    /// Moves bytes from `from` to the other side until one must be waited for; false at end of
    /// file. A short read means drained, unless `to_the_end` (a FIN may lie behind the bytes).
    fn pump(&mut self, from: usize, to_the_end: bool, scratch: &mut [u8]) -> io::Result<bool> {
        loop {
            if !self.flush(1 - from)? {
                return Ok(true);
            }
            let n = match self.sockets[from].read(scratch) {
                Ok(0) => return Ok(false),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) => return Err(e),
            };
            let written = write(&mut self.sockets[1 - from], &scratch[..n])?;
            self.unsent[1 - from].extend_from_slice(&scratch[written..n]);
            if n < scratch.len() && !to_the_end && written == n {
                return Ok(true);
            }
        }
    }

    /// True when nothing is left to be written to `side`.
    fn flush(&mut self, side: usize) -> io::Result<bool> {
        if self.unsent[side].is_empty() {
            return Ok(true);
        }
        let written = write(&mut self.sockets[side], &self.unsent[side])?;
        self.unsent[side].drain(..written);
        Ok(self.unsent[side].is_empty())
    }
}

/// Bytes taken; 0 when the socket is full.
fn write(to: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match to.write(bytes) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}
