//! `hihooi check`: whether the servers meet hihooi's requirements, and what to change.

use hihooi_postgres::apply;
use hihooi_postgres::collations::Collations;
use hihooi_postgres::connection::{Connection, Login};
use hihooi_postgres::identity::Identity;
use hihooi_postgres::setup::{self, Problem};
use hihooi_postgres::site::{Role, Site};

use crate::cli::ServeArgs;
use crate::config::Config;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::process;
use crate::settings;

/// Runs the command; it fails when a server is not fit.
#[must_use]
pub fn run(args: &ServeArgs) -> Exit {
    process::run(check(args))
}

async fn check(args: &ServeArgs) -> Result<()> {
    let config = args.config()?;
    settings::doors(&config)?;
    let mut unfit = Vec::new();
    let mut primary = None;
    for site in std::iter::once(config.primary()).chain(config.replicas()) {
        let problems = problems(&site, &config, &mut primary).await;
        if problems.is_empty() {
            println!("{}: fit", site.name);
        }
        for problem in &problems {
            let kind = if problem.fatal { "not fit" } else { "warning" };
            println!("{}: {kind}: {}", site.name, problem.text);
        }
        if problems.iter().any(|problem| problem.fatal) {
            unfit.push(site.name);
        }
    }
    match unfit.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!("not fit: {}", unfit.join(", ")))),
    }
}

/// What is wrong with a site. `primary` is what the first of them, the primary, says of itself.
async fn problems(
    site: &Site,
    config: &Config,
    primary: &mut Option<(Identity, Collations)>,
) -> Vec<Problem> {
    let login = Login::new(site.address.clone(), &site.user, config.database(), "hihooi check");
    let found = async {
        let mut connection = Connection::open(&login).await?;
        let identity = Identity::read(&mut connection).await?;
        let mut found = match site.role {
            Role::Primary => setup::check(&mut connection).await?,
            Role::Replica => replica_problems(&mut connection).await?,
        };
        let collations = Collations::read(&mut connection).await?;
        connection.close().await;
        let (primary, sorts) =
            primary.get_or_insert_with(|| (identity.clone(), collations.clone()));
        let unread = collations.problem(sorts).map(|why| format!("{why}; it serves no reads"));
        found.extend(unread.map(|text| Problem { fatal: false, text }));
        let cluster = primary.cluster.as_ref().or(identity.cluster.as_ref());
        let cluster = cluster.map(String::as_str).unwrap_or_default();
        let stranger = identity.problem(cluster, &primary.system, &site.name);
        found.extend(stranger.map(|text| Problem { fatal: true, text }));
        Ok(found)
    };
    found.await.unwrap_or_else(|error: setup::SetupError| {
        vec![Problem { fatal: true, text: error.to_string() }]
    })
}

/// What appliers need of a server.
async fn replica_problems(
    connection: &mut Connection,
) -> hihooi_postgres::connection::Result<Vec<Problem>> {
    let answer = connection
        .query(
            "SELECT current_setting('is_superuser'), pg_is_in_recovery(), name, setting \
             FROM pg_settings \
             WHERE name IN ('max_replication_slots', 'max_active_replication_origins') \
             ORDER BY name LIMIT 1",
        )
        .await?;
    let row = answer.rows.into_iter().next().unwrap_or_default();
    let value = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    let mut problems = Vec::new();
    let mut unfit = |text: &str| problems.push(Problem { fatal: true, text: text.to_owned() });
    if value(0) != "on" {
        unfit("the user is not a superuser: set the site's `user` to one");
    }
    if value(1) == "t" {
        unfit("it is a physical standby: only replicas that hihooi writes are supported so far");
    }
    // PostgreSQL 18 has a setting of its own for the number of origins.
    if value(3).parse::<usize>().unwrap_or(0) < apply::CONNECTIONS {
        let (name, origins) = (value(2), value(3));
        unfit(&format!("{name} is {origins}: set it to 32 and restart the server"));
    }
    Ok(problems)
}
