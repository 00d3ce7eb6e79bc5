//! Other settings come into force while clients are served (RELOAD, SIGHUP).

use std::rc::Rc;

use tracing::{info, warn};

use crate::relay::Relay;
use crate::settings::Shown;

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

/// Reads the configuration, and has it in force from now on; no client is disturbed.
///
/// # Errors
/// What is wrong with it. Then nothing has changed.
pub fn reload(relay: &Relay) -> Result<Vec<Changed>, String> {
    let settings = (relay.operator.reread)()?;
    let changed = changes(&relay.settings().shown, &settings.shown);
    relay.pools.set_bounds(settings.bounds());
    relay.balance.borrow_mut().set_weights(&settings.weights);
    relay.set_settings(settings);
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

/// Reads the configuration again whenever SIGHUP comes.
pub async fn on_hangup(relay: Rc<Relay>) {
    loop {
        relay.operator.hangup.notified().await;
        if let Err(why) = reload(&relay) {
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
