//! Byte relay for the event-loop spike: `relay VARIANT LISTEN_PORT SERVER_PORT [nagle]`.
//! One server connection per client; no byte is looked at. Variants: `mt-copy`, `mt-poll`
//! (two workers), `ct-try`, `ct-poll` (current_thread), `epoll` (mio, no async runtime).

mod epoll;
mod polled;
mod tryread;

use std::io;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Where to listen, where to connect, and whether small writes may be held back.
#[derive(Clone, Copy)]
pub struct Setup {
    pub listen: u16,
    pub server: u16,
    pub nodelay: bool,
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let setup = Setup {
        listen: args[2].parse().expect("listen port"),
        server: args[3].parse().expect("server port"),
        nodelay: args.get(4).is_none_or(|a| a != "nagle"),
    };
    let variant = args[1].clone();
    match variant.as_str() {
        "epoll" => epoll::run(setup),
        "mt-copy" | "mt-poll" => two_workers()?.block_on(async move {
            // Accept inside a worker, as a server would: block_on's own thread is a third one.
            tokio::spawn(accept(setup, variant)).await.expect("accept loop")
        }),
        _ => Builder::new_current_thread().enable_io().build()?.block_on(accept(setup, variant)),
    }
}

fn two_workers() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_io().build()
}

async fn accept(setup: Setup, variant: String) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", setup.listen)).await?;
    loop {
        let (client, _) = listener.accept().await?;
        let variant = variant.clone();
        tokio::spawn(async move {
            // An error is the end of one session; the peer sees its socket closed.
            let _ = session(setup, client, &variant).await;
        });
    }
}

async fn session(setup: Setup, mut client: TcpStream, variant: &str) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", setup.server)).await?;
    client.set_nodelay(setup.nodelay)?;
    server.set_nodelay(setup.nodelay)?;
    match variant {
        "mt-copy" => tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop),
        "ct-try" => tryread::relay(client, server).await,
        _ => polled::relay(client, server).await,
    }
}
