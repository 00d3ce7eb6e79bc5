//! How clients prove who they are, as the operator wants it: the rules of `auth.hba_file` (manual, chapter "Client
//! Authentication"), and what the primary stores of passwords. A client is asked in `login`.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use ahash::AHashMap;
use hihooi_auth::hba::Rules;
use hihooi_auth::ident::Maps;
use hihooi_postgres::reloaded::Reloaded;
use tokio::sync::Semaphore;

use crate::defaults::{About, StoredPassword};
use crate::startup_key::StartupKey;

/// Roles, by database, of which it is remembered what the primary said; all are forgotten beyond (I8).
const PASSWORDS_MAX: usize = 10_000;
/// Passwords in clear text that are checked at once: each takes a processor.
const CHECKS_MAX: usize = 2;
/// Names of hosts that are looked up at once: each may wait for a name server.
const LOOKUPS_MAX: usize = 100;

/// How clients prove who they are.
#[derive(Debug)]
pub struct Authentication {
    /// The rules, and the maps to which they refer.
    pub(crate) rules: Reloaded<Rc<(Rules, Maps)>>,
    /// What the primary is asked for a role's password, if it isn't `pg_authid`.
    pub(crate) query: Option<Rc<str>>,
    /// For answers about roles that don't exist if the cluster has no secret of its own.
    pub(crate) mock: [u8; 32],
    /// Places for checks of passwords in clear text.
    pub(crate) checks: Arc<Semaphore>,
    /// Places for questions about names of hosts.
    pub(crate) lookups: Arc<Semaphore>,
}

/// How a client proved who it is, in the words of the rules.
pub type How = &'static str;

impl Authentication {
    /// Reads the rules, and the maps to which they refer.
    ///
    /// # Errors
    /// All that is wrong with them, with file and line.
    pub fn load(
        hba: PathBuf,
        ident: Option<PathBuf>,
        query: Option<String>,
    ) -> Result<Authentication, String> {
        let rules = Reloaded::new("auth.hba_file", move |files| {
            let rules = Rules::read(&hba, files).map_err(|error| error.to_string())?;
            let maps = match &ident {
                Some(ident) => Maps::read(ident, files).map_err(|error| error.to_string())?,
                None => Maps::default(),
            };
            Ok(Rc::new((rules, maps)))
        })?;
        let mut mock = [0; 32];
        getrandom::fill(&mut mock).map_err(|error| format!("no random numbers: {error}"))?;
        let places = |count| Arc::new(Semaphore::new(count));
        let (checks, lookups) = (places(CHECKS_MAX), places(LOOKUPS_MAX));
        Ok(Authentication { rules, query: query.map(Rc::from), mock, checks, lookups })
    }
}

/// What the primary said of roles whose clients it let in, by role and database: in each, other memberships may matter.
#[derive(Default)]
pub struct Passwords {
    of_roles: AHashMap<String, AHashMap<String, StoredPassword>>,
    len: usize,
}

impl Passwords {
    /// A client has proved who it is with this.
    pub(crate) fn know(&mut self, key: &StartupKey, stored: StoredPassword) {
        if self.len >= PASSWORDS_MAX {
            *self = Passwords::default();
        }
        let of_role = self.of_roles.entry(key.user.clone()).or_default();
        self.len += usize::from(of_role.insert(key.database.clone(), stored).is_none());
    }

    /// The primary says this now, in whichever database the role logs in.
    pub(crate) fn renew(&mut self, key: &StartupKey, stored: &StoredPassword) {
        for known in
            self.of_roles.get_mut(&key.user).into_iter().flat_map(|of_role| of_role.values_mut())
        {
            known.renew(stored);
        }
    }

    /// What it said last, if it was asked for the same.
    pub(crate) fn get(&self, key: &StartupKey, asked: &About) -> Option<StoredPassword> {
        let known = self.of_roles.get(&key.user)?.get(&key.database)?;
        (known.asked == *asked).then(|| known.clone())
    }
}
