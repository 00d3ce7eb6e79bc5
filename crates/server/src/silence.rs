//! Detects sites that don't answer: a frozen server, or one that can't be reached. A connection to such a site
//! stays open and nothing arrives, so a session would wait for an answer for ever.
//!
//! Each site is sent a query, on a connection of our own, twice within `sites.timeout_ms`: a query is sent when
//! half of this time has passed since the last answer, and its answer must arrive within the other half. As
//! long as a site answers, its statements may take any time. A site that doesn't is treated as if its
//! connections were lost: it serves no reads, and the reads that are waiting for it run elsewhere. When it
//! answers again, its applier connects again, and the site serves reads again.
//!
//! If the reads at a replica are not answered when answers were due (`session/src/performance.rs`), the replica is
//! queried at once, and gets no further read before it answers.
//!
//! The same query shows whether a site has reloaded its configuration (`pg_reload_conf()`, a restart).
//!
//! The primary's statements are never cut off: no other site could run them, and a COMMIT among them would be
//! in doubt. If the primary doesn't answer, this is logged, and sessions wait.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use hihooi_postgres::connection::{Connection, Error, Login, Result};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::relay::Relay;
use hihooi_session::sites::SiteId;

/// A question that got no answer for so long is asked again on a new connection: the network may
/// have forgotten the old one. Not sooner, since a frozen server keeps every connection that is tried.
const TRY_MAX: Duration = Duration::from_secs(10);
/// Between two tries at a site that can't be reached.
const PAUSE: Duration = Duration::from_millis(100);

/// Watches a site, for ever.
pub async fn watch(relay: Rc<Relay>, site: SiteId) {
    let half_ms = relay.site_timeout_ms / 2;
    let half = Duration::from_millis(half_ms);
    let why = format!("no answer within {half_ms} ms: the server is frozen or out of reach");
    let mut probe = Probe::new(&relay, site);
    loop {
        // Sooner if its reads aren't answered.
        let _ = timeout(half, relay.suspected[site].notified()).await;
        {
            let mut answered = pin!(probe.until_answered());
            let is_good = match timeout(half, answered.as_mut()).await {
                Ok(is_good) => {
                    relay.is_alive(site);
                    is_good
                }
                Err(_) => {
                    relay.set_silence(site, Some(why.clone()));
                    let is_good = answered.await;
                    relay.set_silence(site, None);
                    is_good
                }
            };
            relay.answers[site].set(is_good);
        }
        let version = probe.connection.as_ref().and_then(Connection::tls_version);
        relay.tls_of_sites[site].set(version);
        if probe.loaded != probe.compared {
            // What fails now is tried the next time.
            let read = timeout(half, relay.pools.read_configuration(site)).await;
            if matches!(read, Ok(Ok(()))) {
                probe.compared = probe.loaded.clone();
            }
        }
    }
}

/// When the server last read its configuration.
const LOADED: &str = "SELECT pg_catalog.pg_conf_load_time()";

/// A connection of our own to a site, for questions.
struct Probe {
    login: Login,
    connection: Option<Connection>,
    /// When the site read its configuration, and when that was compared with the primary's.
    loaded: Option<String>,
    compared: Option<String>,
}

impl Probe {
    fn new(relay: &Relay, site: SiteId) -> Probe {
        let (site, database) = (&relay.sites[site], &relay.database);
        let login = Login::new(site.address.clone(), &site.user, database, "hihooi probe");
        Probe { login, connection: None, loaded: None, compared: None }
    }

    /// Asks until there is an answer, whatever it says; whether it is a good one.
    async fn until_answered(&mut self) -> bool {
        loop {
            match timeout(TRY_MAX, self.ask()).await {
                Ok(Err(error)) if !is_answer(&error) => sleep(PAUSE).await,
                Ok(answer) => return answer.is_ok(),
                Err(_) => {}
            }
        }
    }

    /// Asks once. A question that nobody waits for any more takes its connection along.
    async fn ask(&mut self) -> Result<()> {
        // What was idle may have been lost.
        if let Some(mut connection) = self.connection.take()
            && let Ok(answer) = connection.query(LOADED).await
        {
            self.loaded = answer.value().map(str::to_owned);
            self.connection = Some(connection);
            return Ok(());
        }
        self.connection = Some(Connection::open(&self.login).await?);
        Ok(())
    }
}

/// Whether a failure comes from the site itself. Then the connections to it tell whoever waits.
fn is_answer(error: &Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
    match error {
        Error::Server(_) | Error::Protocol(_) | Error::Encryption { .. } => true,
        Error::Lost { source, .. } => {
            matches!(
                source.kind(),
                BrokenPipe | ConnectionRefused | ConnectionReset | UnexpectedEof
            )
        }
    }
}

impl Relay {
    /// A site has answered.
    fn is_alive(&self, site: SiteId) {
        if let SiteId::Replica(number) = site {
            self.balance.borrow_mut().is_alive(number, self.now());
        }
    }

    /// A site does not answer, and why that is thought; or it answers again.
    fn set_silence(&self, site: SiteId, why: Option<String>) {
        let is_silent = why.is_some();
        let Some(replica) = self.replica(site) else {
            let site = &self.sites[site].name;
            match why {
                Some(reason) => {
                    warn!(site, reason, "the primary does not answer; it is waited for")
                }
                None => warn!(site, "the primary answers again"),
            }
            self.pools.is_primary_silent.set(is_silent);
            return;
        };
        replica.set_silence(why);
        if is_silent {
            self.pools.close_idle(site);
            // Whoever waits for the site finds that it is silent.
            self.stopping.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use hihooi_postgres::connection::Address;

    use super::*;

    #[test]
    fn an_error_of_the_site_itself_is_an_answer() {
        for (kind, answers) in [
            (ErrorKind::ConnectionRefused, true),
            (ErrorKind::UnexpectedEof, true),
            (ErrorKind::TimedOut, false),
            (ErrorKind::HostUnreachable, false),
        ] {
            let address = Address::plain("127.0.0.1", 1);
            assert_eq!(is_answer(&Error::Lost { address, source: kind.into() }), answers, "{kind}");
        }
        assert!(is_answer(&Error::Protocol("a password is asked for".to_owned())));
    }
}
