//! What the operator does to a relay that serves clients, by the admin database or by signals: other settings come
//! into force (RELOAD, SIGHUP), a session is ended (KILL), the manager is (SHUTDOWN).

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;
use tracing::{info, warn};

use crate::relay::Relay;
use crate::settings::{Settings, Shown};

/// What the relay needs for that of the process that it runs in.
pub struct Operator {
    /// Reads the configuration again; what is wrong with it, in one line.
    pub reread: Box<dyn Fn() -> Result<Settings, String>>,
    /// SIGHUP has come.
    pub hangup: Arc<Notify>,
    /// The manager shall stop.
    pub stop: Arc<Notify>,
}

/// A setting that changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its key.
    pub key: String,
    /// What was in force.
    pub before: Option<String>,
    /// What the configuration says now.
    pub now: Option<String>,
    /// Whether that takes a restart.
    pub takes_restart: bool,
}

impl Relay {
    /// Reads the configuration, and has it in force from now on; no client is disturbed.
    ///
    /// # Errors
    /// What is wrong with it. Then nothing has changed.
    pub fn reload(&self) -> Result<Vec<Changed>, String> {
        let settings = (self.operator.reread)()?;
        let changed = changes(&self.settings().shown, &settings.shown);
        self.pools.set_bounds(settings.bounds());
        self.balance.borrow_mut().set_weights(&settings.weights);
        self.set_settings(settings);
        for Changed { key, before, now, takes_restart } in &changed {
            let (before, now) = (before.as_deref().unwrap_or(""), now.as_deref().unwrap_or(""));
            match takes_restart {
                false => info!(key, before, now, "the setting is in force"),
                true => warn!(key, before, now, "the setting takes a restart"),
            }
        }
        info!("the configuration was read again");
        Ok(changed)
    }

    /// Ends a session, whatever it does, as `pg_terminate_backend` does on a server; whether it is there.
    #[must_use]
    pub fn kill(&self, process: i32) -> bool {
        let Some(session) = self.sessions.borrow().get(&process).cloned() else { return false };
        info!(process, role = session.startup.user, "an operator ends the session");
        session.is_killed.set(true);
        self.stopping.wake_all();
        true
    }
}

/// Reads the configuration again whenever SIGHUP comes.
pub async fn reload_on_hangup(relay: Rc<Relay>) {
    loop {
        relay.operator.hangup.notified().await;
        if let Err(why) = relay.reload() {
            warn!(why, "the configuration can't be used; the former stays in force");
        }
    }
}

/// What differs between two configurations.
fn changes(before: &[Shown], now: &[Shown]) -> Vec<Changed> {
    let find = |all: &[Shown], key: &str| all.iter().find(|one| one.key == key).cloned();
    let gone = before.iter().filter(|one| find(now, &one.key).is_none());
    let keys = now.iter().chain(gone).map(|one| one.key.clone());
    let changed = keys.filter_map(|key| {
        let (before, now) = (find(before, &key), find(now, &key));
        let awaits = now.as_ref().and_then(|now| now.after_restart.clone());
        let value = |of: Option<Shown>| of.map(|one| one.value);
        let (before, now) = (value(before), value(now));
        let takes_restart = awaits.is_some();
        let now = awaits.or(now);
        (before != now).then_some(Changed { key, before, now, takes_restart })
    });
    changed.collect()
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Operator")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(key: &str, value: &str, after_restart: Option<&str>) -> Shown {
        let after_restart = after_restart.map(str::to_owned);
        Shown { key: key.to_owned(), value: value.to_owned(), after_restart }
    }

    #[test]
    fn what_changed_is_told_and_what_takes_a_restart() {
        let before = [shown("a", "1", None), shown("b", "1", None), shown("c", "1", None)];
        let now = [shown("a", "1", None), shown("b", "2", None), shown("c", "1", Some("2"))];
        let told: Vec<_> = changes(&before, &now)
            .into_iter()
            .map(|one| (one.key, one.before, one.now, one.takes_restart))
            .collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            told,
            [
                ("b".to_owned(), text("1"), text("2"), false),
                ("c".to_owned(), text("1"), text("2"), true)
            ]
        );
        // Until then it is told at each reload.
        assert_eq!(changes(&now, &now).len(), 1);
        assert_eq!(changes(&before, &before[..2]).len(), 1, "one that is not said any more");
    }
}
