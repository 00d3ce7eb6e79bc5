//! The servers of `up`: their directories, how the cluster is created, and how replicas are rebuilt.
//!
//! Creating a cluster is crash-safe. The file `creating` (the planned configuration) is in the data directory
//! from before the first step until after the last, and `hihooi.toml` is written when everything else is on
//! disk. No client is served before that, so the remains of an interrupted `up` are removed, and the cluster is
//! created again. Rebuilding replicas is crash-safe, too: while the file `rebuilding` exists, nothing is
//! started from the directory. On the primary, only hihooi's own objects are changed.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hihooi_postgres::cluster::binaries::{self, Binaries};
use hihooi_postgres::cluster::clone::{self, Progress};
use hihooi_postgres::cluster::os_user::OsUser;
use hihooi_postgres::cluster::postmaster::{Stop, halt};
use hihooi_postgres::cluster::server::{STOP_LIMIT, SUPERUSER, Server};
use hihooi_postgres::cluster::{file_error, plain};
use hihooi_postgres::connection::{Connection, Login};
use hihooi_postgres::tls::Mode;
use hihooi_postgres::{setup, site};

use crate::config::{Config, Kind, RoleName, SITES_MAX, SiteConfig};
use crate::data_dir::{DataDir, write_durably};
use crate::failure::{Failure, Result};

/// Replicas that a new cluster has unless told otherwise.
pub const DEFAULT_REPLICAS: usize = 2;
/// Servers listen this far above clients' port, or the next free ones.
const PORT_DISTANCE: u16 = 100;
/// A copy that takes longer tells how far it is, this often.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// What is in a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Nothing: a cluster can be made.
    Nothing,
    /// What an interrupted `up` left: it can be made again.
    HalfMade,
    /// A cluster.
    Cluster,
}

/// Looks what is in `data`.
///
/// # Errors
/// Something that `up` did not make, which it won't touch.
pub fn look(data: &DataDir) -> Result<Found> {
    if data.config().is_file() {
        return Ok(Found::Cluster);
    }
    if data.creating().is_file() {
        return Ok(Found::HalfMade);
    }
    let entries = match fs::read_dir(data.path()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => {
            let error = file_error("read", data.path(), &error);
            return Err(Failure::new(format!("{error}; pass another directory with --data")));
        }
    };
    let ours = ["hihooi.lock", "hihooi.log", "cluster.key", "lost+found"];
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !ours.iter().any(|our| name == *our) {
            return Err(Failure::new(format!(
                "{} holds {} but no hihooi.toml: it is no cluster that `hihooi up` made; restore \
                 hihooi.toml or pass another directory with --data",
                data.path().display(),
                name.display()
            )));
        }
    }
    Ok(Found::Nothing)
}

/// The user who owns the data of a cluster, by name, if that isn't ourselves.
#[must_use]
pub fn owner(data: &DataDir) -> Option<String> {
    let uid = fs::metadata(data.file("primary")).ok()?.uid();
    let uid = nix::unistd::Uid::from_raw(uid);
    if uid == nix::unistd::geteuid() {
        return None;
    }
    Some(nix::unistd::User::from_uid(uid).ok()??.name)
}

/// The major version that the data of a cluster were made with.
#[must_use]
pub fn made_with(data: &DataDir) -> Option<u32> {
    binaries::made_with(&data.file("primary"))
}

/// The sites of a new cluster, on free ports.
///
/// # Errors
/// Too many replicas or too few free ports.
pub fn plan(listen_port: u16, replicas: usize) -> Result<Vec<SiteConfig>> {
    if replicas >= SITES_MAX {
        return Err(Failure::new(format!("at most {} replicas are supported", SITES_MAX - 1)));
    }
    let ports = free_ports(listen_port, replicas + 1, &[])?;
    Ok(ports.into_iter().enumerate().map(|(number, port)| site_of(number, port)).collect())
}

/// The primary is number 0.
fn site_of(number: usize, port: u16) -> SiteConfig {
    SiteConfig {
        name: if number == 0 { "primary".to_owned() } else { format!("replica{number}") },
        role: if number == 0 { RoleName::Primary } else { RoleName::Replica },
        kind: (number > 0).then_some(Kind::Applied),
        host: Ipv4Addr::LOCALHOST.to_string(),
        port,
        user: SUPERUSER.to_owned(),
        weight: None,
        // They listen on loopback only, and have no TLS.
        tls: Mode::Disable,
        ca_file: None,
        cert_file: None,
        key_file: None,
    }
}

/// Adds replicas to a cluster that doesn't run: their sites to its configuration file, which otherwise stays as it is,
/// and marks that they have to be copied. Returns their names.
///
/// # Errors
/// Too many replicas or too few free ports; a directory is in the way. Nothing was changed.
pub fn add_replicas(
    data: &DataDir,
    config: &Config,
    listen_port: u16,
    count: usize,
) -> Result<Vec<String>> {
    if config.sites.len() + count > SITES_MAX {
        return Err(Failure::new(format!("at most {} replicas are supported", SITES_MAX - 1)));
    }
    let taken: Vec<u16> = config.sites.iter().map(|site| site.port).collect();
    let is_free = |site: &SiteConfig| !config.sites.iter().any(|known| known.name == site.name);
    let sites = (1..).map(|number| site_of(number, 0)).filter(is_free);
    let ports = free_ports(listen_port, count, &taken)?;
    let sites: Vec<SiteConfig> =
        sites.zip(ports).map(|(site, port)| SiteConfig { port, ..site }).collect();
    for site in &sites {
        // An earlier attempt may have got so far.
        if data.file(&site.name).exists() && !data.copying(&site.name).exists() {
            return Err(Failure::new(format!(
                "{} would be the directory of a new replica, but exists: remove it",
                data.file(&site.name).display()
            )));
        }
    }
    for site in &sites {
        write_durably(&data.copying(&site.name), "", 0o644)?;
    }
    let path = data.config();
    let text = fs::read_to_string(&path).map_err(|error| file_error("read", &path, &error))?;
    let text = format!("{}\n\n{}", text.trim_end(), Config::text_of(&sites));
    Config::parse(&text)?;
    let meta = fs::metadata(&path).map_err(|error| file_error("read", &path, &error))?;
    write_durably(&path, &text, meta.mode() & 0o777)?;
    Ok(sites.into_iter().map(|site| site.name).collect())
}

fn free_ports(listen_port: u16, count: usize, taken: &[u16]) -> Result<Vec<u16>> {
    let above = listen_port.saturating_add(PORT_DISTANCE).saturating_add(1)..=u16::MAX;
    // Bound until all are chosen.
    let bound: Vec<TcpListener> = above
        .filter(|port| !taken.contains(port))
        .filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
        .take(count)
        .collect();
    if bound.len() < count {
        return Err(Failure::new(format!(
            "no {count} free ports above {listen_port} for the servers: pass a lower port with \
             --listen"
        )));
    }
    bound
        .iter()
        .map(|listener| listener.local_addr().map(|address| address.port()))
        .collect::<std::io::Result<_>>()
        .map_err(|error| Failure::new(plain(&error)))
}

/// The servers of a cluster, the primary first.
///
/// # Errors
/// A site of the configuration that is not on this machine.
pub fn servers(
    data: &DataDir,
    config: &Config,
    binaries: &Binaries,
    os_user: &OsUser,
) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    for site in &config.sites {
        let directory = data.file(&site.name);
        if site.host != Ipv4Addr::LOCALHOST.to_string() {
            return Err(Failure::new(format!(
                "site {} is on {}: `hihooi up` runs servers of 127.0.0.1 only; use `hihooi serve`",
                site.name, site.host
            )));
        }
        servers.push(Server {
            name: site.name.clone(),
            role: site.role.into(),
            data: directory,
            log_file: data.file(&format!("{}.log", site.name)),
            socket_dir: data.file("sockets"),
            port: site.port,
            binaries: binaries.clone(),
            os_user: os_user.clone(),
        });
    }
    servers.sort_by_key(|server| server.role != site::Role::Primary);
    Ok(servers)
}

/// Makes the directory for Unix sockets where missing.
///
/// # Errors
/// What the operating system says.
pub fn make_socket_dir(server: &Server) -> Result<()> {
    let directory = &server.socket_dir;
    match fs::create_dir(directory) {
        Ok(()) => Ok(server.os_user.own(directory)?),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(file_error("create", directory, &error).into()),
    }
}

/// Makes a cluster: the primary, what we need on it, and copies of it. `tell` gets lines for
/// the user. Afterwards no server runs.
///
/// # Errors
/// One line; the directory is then recognised as half made.
pub async fn make(
    data: &DataDir,
    config: &Config,
    servers: &[Server],
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<()> {
    write_durably(&data.creating(), &config.to_text(), 0o644)?;
    let (primary, replicas) = servers.split_first().expect("a cluster has a primary");
    tell(format!("creating {} with PostgreSQL {}", primary.name, primary.binaries.major));
    primary.init()?;
    make_socket_dir(primary)?;
    prepare(primary, config.database()).await?;
    copy_all(primary, replicas, tell)?;
    sync(data.path())?;
    write_durably(&data.config(), &config.to_text(), 0o644)?;
    remove_file(&data.creating())
}

/// Makes the replicas anew, as copies of the primary, and forgets the log: what was the matter with any of
/// them, or with the slot, is over then. `tell` gets lines for the user. Afterwards no server runs.
///
/// # Errors
/// One line. Either nothing was changed, or the directory is recognised as half made.
pub async fn make_replicas_anew(
    data: &DataDir,
    config: &Config,
    servers: &[Server],
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<()> {
    let (primary, replicas) = servers.split_first().expect("a cluster has a primary");
    for replica in replicas {
        replica.give_up(Stop::Fast).await;
    }
    make_socket_dir(primary)?;
    tell(format!("starting {}", primary.name));
    let mut postmaster = primary.start().await?;
    let prepared = prepare_anew(data, config, primary).await;
    postmaster.stop(Stop::Fast, STOP_LIMIT).await;
    prepared?;
    remove_directory(&data.file("log"))?;
    copy_all(primary, replicas, tell)?;
    sync(data.path())?;
    for mark in replicas.iter().map(|replica| data.copying(&replica.name)) {
        if mark.exists() {
            remove_file(&mark)?;
        }
    }
    remove_file(&data.rebuilding())
}

/// The mark comes before the first step that replicas and log don't survive.
async fn prepare_anew(data: &DataDir, config: &Config, primary: &Server) -> Result<()> {
    let login = Login::new(primary.address(), SUPERUSER, config.database(), "hihooi setup");
    let mut connection = Connection::open(&login).await.map_err(Failure::new)?;
    setup::check_copyable(&mut connection).await.map_err(Failure::new)?;
    setup::free_slot(&mut connection).await.map_err(Failure::new)?;
    setup::install_objects(&mut connection).await.map_err(Failure::new)?;
    write_durably(&data.rebuilding(), "", 0o644)?;
    setup::forget_replicas(&mut connection).await.map_err(Failure::new)?;
    setup::install(&mut connection).await.map_err(Failure::new)?;
    connection.close().await;
    Ok(())
}

/// Starts the new primary, installs what we need there, and stops it: what the copies will then
/// hold is everything before the slot's first entry.
async fn prepare(primary: &Server, database: &str) -> Result<()> {
    let mut postmaster = primary.start().await?;
    let installed = install(primary, database).await;
    postmaster.stop(Stop::Fast, STOP_LIMIT).await;
    installed
}

async fn install(primary: &Server, database: &str) -> Result<()> {
    let login = Login::new(primary.address(), SUPERUSER, database, "hihooi setup");
    let mut connection = Connection::open(&login).await.map_err(Failure::new)?;
    setup::install(&mut connection).await.map_err(Failure::new)?;
    connection.close().await;
    Ok(())
}

fn copy_all(
    primary: &Server,
    replicas: &[Server],
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<()> {
    for replica in replicas {
        tell(format!("copying {} to {}", primary.name, replica.name));
        copy(primary, replica, tell)?;
    }
    Ok(())
}

fn copy(primary: &Server, replica: &Server, tell: &mut (dyn FnMut(String) + Send)) -> Result<()> {
    let mut told = Instant::now();
    let mut progress = |Progress { done, total }: Progress| {
        if told.elapsed() > TELL_EVERY && total > 0 {
            told = Instant::now();
            tell(format!("{}: {} % of {} MB", replica.name, done * 100 / total, total >> 20));
        }
    };
    Ok(clone::copy(primary, replica, &mut progress)?)
}

/// Flushes everything below the directory to disk.
fn sync(directory: &Path) -> Result<()> {
    let file = fs::File::open(directory).map_err(|e| file_error("read", directory, &e))?;
    nix::unistd::syncfs(file)
        .map_err(|error| Failure::new(format!("cannot flush {}: {error}", directory.display())))
}

/// The cluster that is being made.
fn planned(data: &DataDir) -> Config {
    Config::read(&data.creating()).unwrap_or_default()
}

/// Stops what runs of a cluster that is half made.
pub async fn stop_half_made(data: &DataDir) {
    for site in &planned(data).sites {
        halt(&data.file(&site.name)).await;
    }
}

/// Removes what an interrupted `up` left: only what it makes, and nothing of it was ever served.
///
/// # Errors
/// What the operating system says.
pub async fn clear_half_made(data: &DataDir) -> Result<()> {
    stop_half_made(data).await;
    for site in &planned(data).sites {
        remove_directory(&data.file(&site.name))?;
    }
    remove_directory(&data.file("sockets"))?;
    remove_directory(&data.file("log"))?;
    remove_file(&data.creating())
}

/// An `initdb` that outlived its `up` has the directory locked until it ends.
fn remove_directory(path: &Path) -> Result<()> {
    let unlocked = fs::File::open(path).and_then(|directory| directory.lock());
    match unlocked.and_then(|()| fs::remove_dir_all(path)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(file_error("remove", path, &error).into())
        }
        _ => Ok(()),
    }
}

fn remove_file(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|error| file_error("remove", path, &error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_cluster_has_named_sites_on_free_ports() {
        let sites = plan(40_000, 2).expect("free ports");
        let names: Vec<&str> = sites.iter().map(|site| site.name.as_str()).collect();
        assert_eq!(names, ["primary", "replica1", "replica2"]);
        assert!(sites.iter().all(|site| site.port > 40_100));
        assert!(sites[0].port < sites[1].port && sites[1].port < sites[2].port);
    }

    #[test]
    fn ports_that_do_not_exist_are_refused() {
        assert!(plan(65_500, 2).is_err());
    }

    #[test]
    fn a_directory_of_others_is_not_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = DataDir::new(folder.path()).expect("it exists");
        assert_eq!(look(&data), Ok(Found::Nothing));
        fs::write(data.file("hihooi.lock"), "").expect("writable");
        assert_eq!(look(&data), Ok(Found::Nothing));
        fs::write(data.file("thesis.tex"), "").expect("writable");
        let error = look(&data).expect_err("not ours").to_string();
        assert!(error.contains("thesis.tex"), "{error}");
        fs::write(data.creating(), "").expect("writable");
        assert_eq!(look(&data), Ok(Found::HalfMade));
        fs::write(data.config(), "").expect("writable");
        assert_eq!(look(&data), Ok(Found::Cluster));
    }
}
