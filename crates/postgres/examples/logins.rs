//! Logs in again and again: connects, proves a SCRAM-SHA-256 password, runs `SELECT 1` and leaves, some clients at a
//! time. `make bench-connections` measures with it what a login costs whom it asks.
//!
//!     logins 127.0.0.1:6432 ROLE disable|require SECONDS CLIENTS
//!
//! The password is `PGPASSWORD`, and `VERIFIER` what the server stores of it. Its 4,096 iterations are computed once,
//! as drivers do that keep the salted password (RFC 5802, section 5.1): otherwise they would be most of what is
//! measured, and on the same processors.

use std::env;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hihooi_auth::scram::Verifier;
use hihooi_postgres::connection::{Address, Connection, Login};
use hihooi_postgres::login::Secret;
use hihooi_postgres::tls::{Connector, Mode, Settings};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let [address, role, mode, seconds, clients] = words.as_slice() else {
        panic!("HOST:PORT ROLE disable|require SECONDS CLIENTS")
    };
    let login = Arc::new(login(address, role, mode));
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds.parse().expect("seconds"));
    let clients: usize = clients.parse().expect("a number of clients");
    let clients: Vec<_> =
        (0..clients).map(|_| tokio::spawn(log_in_until(login.clone(), end))).collect();
    let mut took = Vec::new();
    for client in clients {
        took.extend(client.await.expect("it ran"));
    }
    let seconds = start.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_micros();
    println!(
        "{{\"logins\": {}, \"seconds\": {seconds:.3}, \"median_us\": {}, \"p99_us\": {}}}",
        took.len(),
        at(50),
        at(99)
    );
}

fn login(address: &str, role: &str, mode: &str) -> Login {
    let (host, port) = address.rsplit_once(':').expect("HOST:PORT");
    let mode = Mode::from_str(mode).expect("a mode");
    let address = Address {
        host: host.to_owned(),
        port: port.parse().expect("a port"),
        tls: Connector::new(Settings { mode, ..Settings::default() }),
    };
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let verifier = Verifier::from_str(&variable("VERIFIER")).expect("a SCRAM verifier");
    let keys = verifier.check_password(variable("PGPASSWORD").as_bytes());
    Login {
        address,
        user: role.to_owned(),
        database: "postgres".to_owned(),
        parameters: Vec::new(),
        secret: Some(Arc::new(Secret::Keys(keys.expect("the verifier is the password's")))),
        is_own: false,
    }
}

/// What each login took until its query was answered.
async fn log_in_until(login: Arc<Login>, end: Instant) -> Vec<Duration> {
    let mut took = Vec::new();
    loop {
        let start = Instant::now();
        if start >= end {
            return took;
        }
        let mut connection = Connection::open(&login).await.expect("a login");
        connection.query("SELECT 1").await.expect("an answer");
        took.push(start.elapsed());
        connection.close().await;
    }
}
