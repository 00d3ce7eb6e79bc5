//! One task owns both sockets and selects over `readable()`. `try_read` clears readiness only
//! at WouldBlock, so each wake-up costs a second read that returns EAGAIN.

use std::io::{self, ErrorKind};
use tokio::net::TcpStream;

const BUFFER_BYTES: usize = 16 * 1024;

pub async fn relay(client: TcpStream, server: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let open = tokio::select! {
            ready = client.readable() => { ready?; pass(&client, &server, &mut buffer).await? }
            ready = server.readable() => { ready?; pass(&server, &client, &mut buffer).await? }
        };
        if !open {
            return Ok(());
        }
    }
}

/// One read and its writes; false at end of file.
async fn pass(from: &TcpStream, to: &TcpStream, buffer: &mut [u8]) -> io::Result<bool> {
    match from.try_read(buffer) {
        Ok(0) => Ok(false),
        Ok(n) => write_all(to, &buffer[..n]).await.map(|()| true),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(e) => Err(e),
    }
}

async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => to.writable().await?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
