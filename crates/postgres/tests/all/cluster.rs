//! Servers made, killed, adopted, copied, and managers of older epochs fenced off, on real
//! PostgreSQL servers (I5).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hihooi_log::Log;
use hihooi_postgres::cluster::binaries::Binaries;
use hihooi_postgres::cluster::clone;
use hihooi_postgres::cluster::fence::{self, Fence};
use hihooi_postgres::cluster::os_user::OsUser;
use hihooi_postgres::cluster::pidfile::{self, Occupant};
use hihooi_postgres::cluster::postmaster::{Stop, halt};
use hihooi_postgres::cluster::server::{STOP_LIMIT, SUPERUSER, Server};
use hihooi_postgres::cluster::supervise::supervise;
use hihooi_postgres::connection::{Connection, Login};
use hihooi_postgres::site::{Role, Site, Trouble};
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::support::{PATIENCE, free_port};

/// A folder whose servers end with it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::Builder::new().prefix("hihooi-test-").tempdir().expect("a folder");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), mode).expect("own folder");
        Folder(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn server(&self, name: &str, role: Role) -> Server {
        let named = std::env::var_os("HIHOOI_TEST_PGBIN").map(PathBuf::from);
        Server {
            name: name.to_owned(),
            role,
            data: self.path().join(name),
            log_file: self.path().join(format!("{name}.log")),
            socket_dir: self.path().to_path_buf(),
            port: free_port(),
            binaries: Binaries::find(named.as_deref(), None).expect("PostgreSQL"),
            os_user: OsUser::choose(None).expect("a user"),
        }
    }

    /// Without Unix sockets, whose directory is not the servers' own here.
    fn made(&self, name: &str) -> Server {
        let mut server = self.server(name, Role::Primary);
        server.socket_dir = "/".repeat(200).into();
        server.init().expect("initdb");
        server
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.path()).into_iter().flatten().flatten() {
            for pid in pidfile::processes(&entry.path()) {
                pidfile::signal(pid, Signal::SIGKILL);
            }
        }
    }
}

async fn connect(server: &Server, application: &str) -> Connection {
    let login = Login::new(server.address(), SUPERUSER, "postgres", application);
    let login = login.with("search_path", "public");
    Connection::open(&login).await.expect("a running server")
}

async fn lives(server: &Server, pid: i32) -> bool {
    is_so(server, &format!("pid = {pid}")).await
}

/// Whether there is such a backend.
async fn is_so(server: &Server, condition: &str) -> bool {
    let mut asking = connect(server, "asking").await;
    let text = format!("SELECT 1 FROM pg_stat_activity WHERE {condition}");
    !asking.query(&text).await.expect("an answer").rows.is_empty()
}

/// What an older manager recorded is ended, also in a lock wait; nothing else.
#[tokio::test]
async fn i5_connections_of_older_epochs_are_ended_and_no_others() {
    let folder = Folder::new();
    let server = folder.made("primary");
    let mut postmaster = server.start().await.expect("starts");
    let log = Log::open(&folder.path().join("log")).expect("a log");
    let site = Site {
        name: "primary".to_owned(),
        role: Role::Primary,
        address: server.address(),
        user: SUPERUSER.to_owned(),
    };

    let mut holder = connect(&server, "holder").await;
    holder.query("CREATE TABLE t (a int)").await.expect("created");
    holder.simple("BEGIN; LOCK TABLE t").await.expect("locked");
    let old = Fence::take(log.clone()).await.expect("an epoch");
    let mut waiter = connect(&server, "a client").await;
    let waiter_pid = waiter.key().process;
    old.record("primary", &mut waiter).await.expect("recorded");
    let waiting = tokio::spawn(async move { waiter.query("SELECT * FROM t").await });
    // The same process id at another start time is somebody else's backend.
    let bystander = connect(&server, "a client").await;
    let bystander_pid = bystander.key().process;
    old.record_backend("primary", bystander_pid, "1".to_owned()).await.expect("recorded");

    let new = Fence::take(log.clone()).await.expect("an epoch");
    assert!(new.epoch() > old.epoch());
    let mut own = connect(&server, "a client").await;
    new.record("primary", &mut own).await.expect("recorded");
    let ended = new.end_older(&site).await.expect("ended");
    assert_eq!(ended, 2, "records of the older epoch");
    assert!(!lives(&server, waiter_pid).await, "gone when end_older returns");
    assert!(waiting.await.expect("no panic").is_err());
    assert!(lives(&server, bystander_pid).await);
    assert!(lives(&server, own.key().process).await);
    assert_eq!(new.end_older(&site).await.expect("asked again"), 0, "forgotten once ended");

    // What managers open for themselves is known by its name, and by being older.
    let applier = connect(&server, "hihooi applier").await;
    let mut later = connect(&server, "hihooi fence").await;
    fence::end_unrecorded(&mut later).await.expect("ended");
    assert!(!lives(&server, applier.key().process).await);
    assert!(lives(&server, bystander_pid).await);
    postmaster.stop(Stop::Fast, STOP_LIMIT).await;
}

/// After kill -9 of a postmaster a busy backend lives on and holds its shared memory.
#[tokio::test]
async fn a_killed_server_starts_again_in_spite_of_what_it_left() {
    let folder = Folder::new();
    let server = folder.made("primary");
    let first = server.start().await.expect("starts");
    let mut again = server.start().await.expect("adopted");
    assert!(again.is_adopted());
    assert_eq!(again.pid(), first.pid());

    let mut busy = connect(&server, "busy").await;
    let loops =
        tokio::spawn(
            async move { busy.query("DO $$ BEGIN LOOP PERFORM 1; END LOOP; END $$").await },
        );
    while !is_so(&server, "application_name = 'busy' AND query LIKE 'DO%'").await {
        sleep(Duration::from_millis(20)).await;
    }
    pidfile::signal(first.pid(), Signal::SIGKILL);
    timeout(PATIENCE, again.ended()).await.expect("killed");
    drop(first);
    let mut second = timeout(PATIENCE, server.start()).await.expect("in time").expect("starts");
    assert_ne!(second.pid(), again.pid());
    assert!(loops.await.expect("no panic").is_err(), "the orphan was ended");
    second.stop(Stop::Fast, STOP_LIMIT).await;
}

/// A stale postmaster.pid that names a live process of somebody else.
#[tokio::test]
async fn a_process_number_used_again_does_not_block_the_start() {
    let folder = Folder::new();
    let server = folder.made("primary");
    // Another server of the same user, as after a restart of a container.
    let other = folder.made("other").start().await.expect("starts");
    let file = server.data.join("postmaster.pid");
    let text = format!("{}\n{}\n1\n1\n\n127.0.0.1\n", other.pid(), server.data.display());
    std::fs::write(&file, text).expect("own folder");
    assert_eq!(pidfile::occupant(&server.data), Occupant::Gone);
    let mut postmaster = timeout(PATIENCE, server.start()).await.expect("in time").expect("starts");
    assert!(!postmaster.is_adopted());
    postmaster.stop(Stop::Fast, STOP_LIMIT).await;
    assert!(pidfile::lives(other.pid()));
}

#[tokio::test]
async fn a_supervised_server_comes_back_until_it_is_to_stop() {
    let folder = Folder::new();
    let server = folder.made("primary");
    let (stop, stopping) = watch::channel(Stop::No);
    let keeper = tokio::spawn(supervise(server.clone(), None, None, stopping, Trouble::default()));
    let pid = || match pidfile::occupant(&server.data) {
        Occupant::Server { pid, .. } => Some(pid),
        _ => None,
    };
    let running = async {
        while pid().is_none() {
            sleep(Duration::from_millis(20)).await;
        }
        pid().expect("just seen")
    };
    let first = timeout(PATIENCE, running).await.expect("started");
    pidfile::signal(first, Signal::SIGKILL);
    let back = async {
        while pid().is_none_or(|pid| pid == first) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, back).await.expect("started again");
    stop.send_replace(Stop::Fast);
    timeout(PATIENCE, keeper).await.expect("in time").expect("no panic");
    assert_eq!(pid(), None);
    assert_eq!(pidfile::processes(&server.data), Vec::<i32>::new());
}

/// A first copy is all but slots and postmaster.*, taken from a stopped server.
#[tokio::test]
async fn a_copy_holds_the_data_but_not_the_slots() {
    let folder = Folder::new();
    let primary = folder.made("primary");
    let mut replica = folder.server("replica1", Role::Replica);
    replica.socket_dir = primary.socket_dir.clone();
    let mut postmaster = primary.start().await.expect("starts");
    let mut connection = connect(&primary, "test").await;
    connection.query("CREATE TABLE t AS SELECT 7 AS a").await.expect("created");
    let slot = "SELECT pg_create_logical_replication_slot('s', 'pgoutput')";
    connection.query(slot).await.expect("created");
    connection.close().await;
    let refused = clone::copy(&primary, &replica, &mut |_| {}).expect_err("it runs");
    assert!(refused.to_string().contains("still running"), "{refused}");
    postmaster.stop(Stop::Fast, STOP_LIMIT).await;

    let mut last = None;
    clone::copy(&primary, &replica, &mut |progress| last = Some(progress)).expect("copied");
    let last = last.expect("progress was told");
    assert_eq!(last.done, last.total);
    let _runs = primary.start().await.expect("starts");
    let _runs = replica.start().await.expect("starts beside its original");
    let mut connection = connect(&replica, "test").await;
    let ask = "SELECT (SELECT a FROM t), (SELECT count(*) FROM pg_replication_slots), \
               current_setting('cluster_name'), current_setting('archive_mode')";
    let row = connection.query(ask).await.expect("an answer").rows.remove(0);
    let row: Vec<&str> = row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect();
    assert_eq!(row, ["7", "0", "replica1", "off"]);
    halt(&replica.data).await;
    halt(&primary.data).await;
}
