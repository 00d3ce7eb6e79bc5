//! `hihooi rebuild`: replaces the replicas of a cluster of `up` by new copies of its primary.

use std::path::Path;

use hihooi_postgres::cluster::binaries::Binaries;
use hihooi_postgres::cluster::clone;
use hihooi_postgres::cluster::os_user::OsUser;
use hihooi_postgres::cluster::server::Server;
use nix::sys::statvfs::statvfs;

use crate::cli::RebuildArgs;
use crate::cluster::{self, Found};
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::process::{self, tell};

/// Runs the command.
#[must_use]
pub fn run(args: &RebuildArgs) -> Exit {
    process::run(rebuild(args))
}

async fn rebuild(args: &RebuildArgs) -> Result<()> {
    let given = args.data.clone().unwrap_or_else(|| Config::default().data);
    let data = DataDir::new(&given)?;
    if cluster::look(&data)? != Found::Cluster {
        return Err(Failure::new(format!(
            "{} holds no cluster that `hihooi up` made: pass its directory with --data",
            data.path().display()
        )));
    }
    let config = Config::read(&data.config())?;
    let owner = cluster::owner(&data);
    let os_user = OsUser::choose(args.os_user.as_deref().or(owner.as_deref()))?;
    let binaries = Binaries::find(args.pg_bin.as_deref(), cluster::made_with(&data))?;
    let _lock = data.lock("rebuild")?;
    let servers = cluster::servers(&data, &config, &binaries, &os_user)?;
    let (primary, replicas) = servers.split_first().expect("a cluster has a primary");
    let plan = Plan::new(primary, replicas)?;
    plan.check_space(data.path())?;
    if !args.yes {
        tell(format!(
            "would remove the data of {} ({} MB) and the log, then copy {} ({} MB) to each. Nothing was \
             changed: repeat it with --yes",
            names(replicas),
            plan.removed >> 20,
            primary.name,
            plan.each >> 20
        ));
        return Ok(());
    }
    cluster::make_replicas_anew(&data, &config, &servers, &mut tell).await?;
    tell(format!("{} are copies of {}: go on with `hihooi up`", names(replicas), primary.name));
    Ok(())
}

/// How large it is, in bytes.
struct Plan {
    removed: u64,
    each: u64,
    copies: u64,
}

impl Plan {
    fn new(primary: &Server, replicas: &[Server]) -> Result<Plan> {
        let mut removed = 0;
        for replica in replicas.iter().filter(|replica| replica.data.exists()) {
            removed += clone::bytes(&replica.data)?;
        }
        Ok(Plan { removed, each: clone::bytes(&primary.data)?, copies: replicas.len() as u64 })
    }

    /// Whether the disk has room.
    fn check_space(&self, data: &Path) -> Result<()> {
        let space = statvfs(data).map_err(Failure::new)?;
        let free = space.blocks_available() * space.fragment_size() + self.removed;
        let needed = self.each * self.copies;
        if free >= needed {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{} MB are needed for {} copies in {}, but only {} MB would be free",
            needed >> 20,
            self.copies,
            data.display(),
            free >> 20
        )))
    }
}

fn names(servers: &[Server]) -> String {
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let here = Path::new(".");
        let plan = |removed, each| Plan { removed, each, copies: 2 };
        assert_eq!(plan(0, 0).check_space(here), Ok(()));
        let error = plan(0, u64::MAX / 4).check_space(here).expect_err("too large").to_string();
        assert!(error.contains("2 copies"), "{error}");
        // What is removed makes room.
        assert_eq!(plan(u64::MAX / 2, u64::MAX / 4).check_space(here), Ok(()));
    }
}
