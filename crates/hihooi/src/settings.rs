//! From the configuration to what the relay is given, at the start and at each RELOAD or SIGHUP. Some settings take
//! a restart: what listens, the data directory, the sites and the database, and what the replication side uses.

use std::path::PathBuf;
use std::sync::Arc;

use hihooi_postgres::tls::Identity;
use hihooi_server::Settings;
use hihooi_server::authentication::Authentication;
use hihooi_server::settings::Shown;
use hihooi_server::tls::Tls;
use tokio::sync::Notify;

use crate::config::{Auth, Config, TlsMode, User};
use crate::failure::{Failure, Result};
use crate::logging::Logging;

/// When and how the configuration is read again.
pub struct Reload {
    /// Reads it.
    pub reread: Box<dyn Fn() -> Result<Config> + Send>,
    /// SIGHUP has come.
    pub hangup: Arc<Notify>,
}

/// What the relay is given when this configuration is in force, while `wanted` is what would be after a restart.
///
/// # Errors
/// What is wrong with a file, with its name.
pub fn settings(config: &Config, wanted: &Config) -> Result<Settings> {
    let (authentication, tls) = doors(config)?;
    Ok(Settings {
        tls,
        authentication,
        admins: config.admins(),
        pool_size: config.pool.size,
        pool_wait_ms_max: config.pool.wait_ms_max,
        pool_idle_ms_max: config.pool.idle_ms_max,
        limits: config.limits.clone(),
        consistency: config.consistency.default,
        wait_ms: config.consistency.wait_ms,
        sync_timeout_ms: config.consistency.sync_timeout_ms,
        weights: config.weights(),
        shown: compared(&shown(config), &shown(wanted)),
    })
}

/// How clients come in: by which proofs, and how they are encrypted, if at all. Also reads the certificates for
/// connections to servers, so that what is wrong with them is told at once.
///
/// # Errors
/// What is wrong with a file, with its name.
pub fn doors(config: &Config) -> Result<(Option<Authentication>, Option<Tls>)> {
    let Auth { hba_file, ident_file, query } = config.auth.clone();
    let load = |hba| Authentication::load(hba, ident_file, query).map_err(Failure::new);
    let authentication = hba_file.map(load);
    let files = config.tls.files().map_err(|error| Failure::new(error.to_string()))?;
    let is_required = config.tls.mode == TlsMode::Require;
    let load =
        |files| Tls::load(files, is_required).map_err(|why| Failure::new(format!("TLS: {why}")));
    for site in &config.sites {
        let checked = config.site(site).address.tls.load();
        checked.map_err(|why| Failure::new(format!("site {:?}: TLS: {why}", site.name)))?;
    }
    Ok((authentication.transpose()?, files.map(load).transpose()?))
}

impl Config {
    /// The configuration that is in force once this one, which was, has been reloaded.
    ///
    /// # Errors
    /// It would let others in without a password, since the address stays.
    pub fn reloaded(&self, wanted: &Config) -> Result<Config> {
        let mut sites = self.sites.clone();
        for site in &mut sites {
            let now = wanted.sites.iter().find(|now| now.name == site.name);
            site.weight = now.map_or(site.weight, |now| now.weight);
        }
        // Connections to servers are opened with the certificates that there were at the start.
        let (mut users, had) = (wanted.users.clone(), self.identities());
        let gone = had.keys().filter(|name| !users.iter().any(|user| user.name == **name));
        let gone: Vec<User> = gone.cloned().map(User::named).collect();
        users.extend(gone);
        for user in &mut users {
            let files = had.get(&user.name).cloned();
            (user.cert_file, user.key_file) =
                files.map(|Identity { cert_file, key_file }| (cert_file, key_file)).unzip();
        }
        let config = Config {
            insecure: wanted.insecure,
            admin_users: wanted.admin_users.clone(),
            users,
            auth: wanted.auth.clone(),
            tls: wanted.tls.clone(),
            pool: wanted.pool.clone(),
            limits: wanted.limits.clone(),
            consistency: wanted.consistency.clone(),
            logging: Logging { filter: wanted.logging.filter.clone(), ..self.logging.clone() },
            sites,
            // What takes a restart.
            listen: self.listen.clone(),
            data: self.data.clone(),
            metrics: self.metrics.clone(),
            all_sites: self.all_sites.clone(),
            all_replicas: self.all_replicas.clone(),
            apply: self.apply.clone(),
            databases: self.databases.clone(),
        };
        config.check_listen()?;
        Ok(config)
    }
}

/// The settings, with the values that take a restart.
fn compared(in_force: &[(String, String)], wanted: &[(String, String)]) -> Vec<Shown> {
    let value = |all: &[(String, String)], key: &str| {
        let found = all.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let added = wanted.iter().filter(|(key, _)| !in_force.iter().any(|(known, _)| known == key));
    let all = in_force.iter().chain(added).map(|(key, _)| {
        let (value, later) = (value(in_force, key), value(wanted, key));
        let after_restart = (later != value).then_some(later);
        Shown { key: key.clone(), value, after_restart }
    });
    all.collect()
}

/// The configuration as `SHOW CONFIG` tells it.
fn shown(config: &Config) -> Vec<(String, String)> {
    let path = |path: &Option<PathBuf>| {
        path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    };
    let Config { auth, tls, pool, limits, consistency, .. } = config;
    let users: Vec<String> = config.users.iter().map(ToString::to_string).collect();
    let mut keys: Vec<(String, String)> = [
        ("listen", config.listen.to_string()),
        ("insecure", config.insecure.to_string()),
        ("data", config.data.display().to_string()),
        ("admin_users", config.admin_users.join(", ")),
        ("user", users.join("; ")),
        ("auth.hba_file", path(&auth.hba_file)),
        ("auth.ident_file", path(&auth.ident_file)),
        ("auth.query", auth.query.clone().unwrap_or_default()),
        ("tls.mode", tls.mode.to_string()),
        ("tls.cert_file", path(&tls.cert_file)),
        ("tls.key_file", path(&tls.key_file)),
        ("tls.ca_file", path(&tls.ca_file)),
        ("pool.size", pool.size.to_string()),
        ("pool.wait_ms_max", pool.wait_ms_max.to_string()),
        ("pool.idle_ms_max", pool.idle_ms_max.to_string()),
        ("limits.clients_max", limits.clients_max.to_string()),
        ("limits.clients_per_user_max", limits.clients_per_user_max.to_string()),
        ("limits.clients_per_database_max", limits.clients_per_database_max.to_string()),
        ("limits.login_ms_max", limits.login_ms_max.to_string()),
        ("limits.idle_ms_max", limits.idle_ms_max.to_string()),
        ("limits.transaction_idle_ms_max", limits.transaction_idle_ms_max.to_string()),
        ("consistency.default", consistency.default.as_str().to_owned()),
        ("consistency.wait_ms", consistency.wait_ms.to_string()),
        ("consistency.sync_timeout_ms", consistency.sync_timeout_ms.to_string()),
        ("metrics.listen", config.metrics.address().unwrap_or("off").to_owned()),
        ("log.filter", config.logging.filter.clone().unwrap_or_default()),
        ("log.format", config.logging.format.to_string()),
        ("sites.timeout_ms", config.all_sites.timeout_ms.to_string()),
        ("replica.max_apply_delay_ms", config.all_replicas.max_apply_delay_ms.to_string()),
        ("replica.auto_rebuild", config.all_replicas.auto_rebuild.to_string()),
        ("apply.method", config.apply.method.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    for site in &config.sites {
        let value = format!("{}:{} tls={}", site.host, site.port, site.tls);
        keys.push((format!("site.{}", site.name), value));
        if let Some(weight) = site.weight {
            keys.push((format!("site.{}.weight", site.name), weight.to_string()));
        }
    }
    let databases: Vec<&str> = config.databases.iter().map(|each| each.name.as_str()).collect();
    keys.push(("database".to_owned(), databases.join(", ")));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        let text = format!(
            "{text}\n[[site]]\nname = 'p'\nrole = 'primary'\nhost = 'h'\nport = 1\n\
             [[site]]\nname = 'r'\nrole = 'replica'\nhost = 'h'\nport = 2"
        );
        Config::parse(&text).expect("valid")
    }

    fn shown_after(before: &Config, wanted: &Config) -> Vec<Shown> {
        let now = before.reloaded(wanted).expect("it can be in force");
        compared(&shown(&now), &shown(wanted))
    }

    /// Each setting is shown, and either comes into force or is shown to take a restart.
    #[test]
    fn what_takes_a_restart_is_told() {
        let before = config("");
        let mut wanted = config(
            "listen = '127.0.0.1:1'\ndata = 'd'\nadmin_users = []\n\
             [auth]\nhba_file = 'h'\nident_file = 'i'\nquery = 'q'\n\
             [tls]\nmode = 'require'\ncert_file = 'c'\nkey_file = 'k'\nca_file = 'a'\n\
             [pool]\nsize = 1\nwait_ms_max = 1\nidle_ms_max = 1\n\
             [limits]\nclients_max = 1\nclients_per_user_max = 1\nclients_per_database_max = 1\n\
             login_ms_max = 1000\nidle_ms_max = 1\ntransaction_idle_ms_max = 1\n\
             [consistency]\ndefault = 'strict'\nwait_ms = 1\nsync_timeout_ms = 1\n\
             [metrics]\nlisten = ':1'\n[log]\nfilter = 'debug'\nformat = 'json'\n[sites]\ntimeout_ms = 100\n\
             [replica]\nmax_apply_delay_ms = 1\nauto_rebuild = false\n[apply]\nmethod = 'serial'\n\
             [[user]]\nname = 'm'\nadmin = 'read'\n[[database]]\nname = 'd'",
        );
        wanted.insecure = true;
        wanted.sites[1].weight = Some(2);
        wanted.sites[0].port = 3;
        let told = shown_after(&before, &wanted);
        assert_eq!(
            shown_after(&before, &before).iter().filter(|one| one.after_restart.is_some()).count(),
            0
        );
        let same = |key: &str| {
            !shown(&before).iter().any(|one| shown(&wanted).contains(one) && one.0 == key)
        };
        for Shown { key, .. } in told.iter().filter(|one| one.key != "site.r") {
            assert!(same(key), "the test sets no other {key}");
        }
        let restarts: Vec<&str> = told
            .iter()
            .filter(|one| one.after_restart.is_some())
            .map(|one| one.key.as_str())
            .collect();
        assert_eq!(
            restarts,
            [
                "listen",
                "data",
                "metrics.listen",
                "log.format",
                "sites.timeout_ms",
                "replica.max_apply_delay_ms",
                "replica.auto_rebuild",
                "apply.method",
                "site.p",
                "database"
            ]
        );
    }

    /// What a role may do in the admin database is in force at once, its certificate after a restart.
    #[test]
    fn certificates_of_roles_take_a_restart() {
        let user = |more: &str| config(&format!("[[user]]\nname = 'm'\n{more}"));
        let files = "cert_file = 'c'\nkey_file = 'k'\n";
        let (with, without) = (user(&format!("{files}admin = 'full'")), user("admin = 'read'"));
        let told = |before: &Config, wanted: &Config| {
            let told = shown_after(before, wanted).into_iter().find(|one| one.key == "user");
            told.map(|one| (one.value, one.after_restart)).expect("it is shown")
        };
        let files = ",cert_file=c,key_file=k";
        assert_eq!(
            told(&with, &without),
            (format!("name=m,admin=read{files}"), Some("name=m,admin=read".to_owned()))
        );
        assert_eq!(
            told(&without, &with),
            ("name=m,admin=full".to_owned(), Some(format!("name=m,admin=full{files}")))
        );
        assert_eq!(told(&with, &config("")), (format!("name=m{files}"), Some(String::new())));
    }

    #[test]
    fn rules_that_keep_others_out_cannot_be_taken_away() {
        let open = |auth: &str| config(&format!("listen = '0.0.0.0:1'\n{auth}"));
        let before = open("[auth]\nhba_file = 'h'");
        assert!(before.reloaded(&before).is_ok());
        let why = before.reloaded(&open("")).expect_err("open to all").to_string();
        assert!(why.contains("--hba-file"), "{why}");
    }
}
