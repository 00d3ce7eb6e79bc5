//! Unix sockets, clients' and servers': who has the other end of one is known without a password, and rules of
//! `auth.hba_file` tell clients by host as well.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};

use crate::harness::reaper::Folder;
use crate::harness::{
    self, Cluster, Options, assert_names, eventually, finish, succeed, target_is_plain, tool,
};

/// A system user that every Debian has, and that has nothing to do with PostgreSQL.
const SOMEBODY: &str = "nobody";

/// The harness comes from 127.0.0.1, as postgres.
const RULES: &str = "\
local  all  alice,postgres                 peer map=system
local  all  bob                            scram-sha-256
local  all  nobody                         peer
local  all  all                            reject
host   all  postgres  127.0.0.1/32         trust
host   all  alice     no-such-host.example trust
host   all  alice     samehost             trust
host   all  nobody    localhost            trust
";

fn text(path: &Path) -> String {
    path.to_str().expect("a name").to_owned()
}

/// psql at a Unix socket.
fn psql(folder: &Path, port: u16, role: &str) -> Command {
    let mut command = tool("psql", port);
    command.env("PGHOST", folder).env("PGUSER", role).args(["-XAtqw"]);
    command
}

/// What a role gets for a statement: rows, or the error.
fn ask(mut psql: Command, sql: &str) -> Result<String, String> {
    let output = finish(psql.args(["-c", sql]));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

#[test]
fn clients_connect_through_unix_sockets() {
    if target_is_plain() {
        return;
    }
    let folder = Folder::new();
    let (hba, ident) = (folder.path().join("hba.conf"), folder.path().join("ident.conf"));
    fs::write(&hba, RULES).expect("own folder");
    let own = User::from_uid(Uid::effective()).expect("users").expect("we are one").name;
    fs::write(&ident, format!("system {own} alice\nsystem {own} postgres\n")).expect("own folder");
    let sockets = folder.path().join("sockets");
    fs::create_dir(&sockets).expect("own folder");
    // Others may enter, the system user nobody among them.
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let made: [&Path; 2] = [folder.path(), &sockets];
    made.into_iter()
        .for_each(|folder| fs::set_permissions(folder, Clone::clone(&all)).expect("own"));
    let options = Options { listen: vec![text(&sockets)], ..Options::replicas(1) }
        .env("HIHOOI_HBA_FILE", &text(&hba))
        .env("HIHOOI_IDENT_FILE", &text(&ident));
    let cluster = Cluster::start(options);
    let port = cluster.port;
    let local = |role: &str| psql(&sockets, port, role);
    cluster.connect().run(
        "CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN PASSWORD 'bob''s'; CREATE ROLE nobody LOGIN;
         CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)",
    );
    cluster.caught_up();

    // By the system user.
    assert_eq!(ask(local("alice"), "SELECT session_user"), Ok("alice".to_owned()));
    let refused = ask(local("nobody"), "SELECT 1").expect_err("another system user");
    assert_names(&refused, &["FATAL", "Peer authentication failed for user \"nobody\""]);
    assert!(cluster.logged(&["do not match"]) > 0, "the log says why");
    if Uid::effective().is_root() {
        let somebody = User::from_name(SOMEBODY).expect("users").expect("Debian has it");
        let as_somebody = |role: &str| {
            let mut command = local(role);
            command.uid(somebody.uid.as_raw()).gid(somebody.gid.as_raw());
            command
        };
        assert_eq!(ask(as_somebody("nobody"), "SELECT session_user"), Ok("nobody".to_owned()));
        let refused = ask(as_somebody("alice"), "SELECT 1").expect_err("not in the map");
        assert_names(&refused, &["Peer authentication failed for user \"alice\""]);
    }
    // By a password, and not at all.
    let with = |password: &str| {
        let mut command = local("bob");
        command.env("PGPASSWORD", password);
        command
    };
    assert_eq!(ask(with("bob's"), "SELECT session_user"), Ok("bob".to_owned()));
    assert_names(
        &ask(with("wrong"), "SELECT 1").expect_err("wrong"),
        &["password authentication failed for user \"bob\""],
    );
    assert_names(
        &ask(local("carol"), "SELECT 1").expect_err("rejected"),
        &["pg_hba.conf rejects connection for host \"[local]\", user \"carol\""],
    );

    // By the client's host. (The first such rule names another, which can't even be found.)
    let remote = |role: &str| {
        let mut command = tool("psql", port);
        command.env("PGUSER", role).arg("-XAtqw");
        command
    };
    assert_eq!(ask(remote("alice"), "SELECT session_user"), Ok("alice".to_owned()));
    assert_eq!(ask(remote("nobody"), "SELECT session_user"), Ok("nobody".to_owned()));
    assert_names(
        &ask(remote("bob"), "SELECT 1").expect_err("no rule"),
        &["no pg_hba.conf entry for host \"127.0.0.1\", user \"bob\""],
    );

    // A request to cancel comes through the socket, too.
    let sleep = "SELECT pg_sleep(600)";
    let mut sleeping = local("alice");
    sleeping.args(["-c", sleep]).stdin(Stdio::null()).stderr(Stdio::piped());
    let sleeping = sleeping.spawn().expect("psql");
    cluster.until_active(&format!("query = '{sleep}'"));
    let shown = cluster.admin().run("SHOW CLIENTS").records();
    let shown = shown.iter().find(|row| row["user"] == "alice").expect("it is there");
    assert_eq!((shown["address"].as_str(), shown["auth"].as_str()), ("[local]", "peer"));
    let pid = Pid::from_raw(sleeping.id().try_into().expect("a process"));
    kill(pid, Signal::SIGINT).expect("it runs");
    let cancelled = sleeping.wait_with_output().expect("it ends");
    assert_names(&String::from_utf8_lossy(&cancelled.stderr), &["canceling statement"]);

    // Commands take a path as well.
    let path = sockets.join(format!(".s.PGSQL.{port}"));
    let mut verify = Command::new(harness::program());
    assert_names(&succeed(verify.args(["verify", "--listen", &text(&path)])), &["equal"]);

    // One that a killed manager left behind is in nobody's way; one that stops takes it along.
    cluster.kill_manager();
    assert!(path.exists());
    cluster.up();
    assert_eq!(ask(local("alice"), "SELECT session_user"), Ok("alice".to_owned()));
    cluster.stop_manager(Signal::SIGTERM);
    assert!(!path.exists());
}

/// Servers of this machine may be reached through their Unix sockets, where they can use `peer` themselves.
#[test]
fn servers_are_reached_through_unix_sockets() {
    if target_is_plain() {
        return;
    }
    let cluster = Cluster::start(Options::replicas(1));
    cluster.connect().run("CREATE TABLE t (id int PRIMARY KEY, v text)");
    cluster.caught_up();
    cluster.kill_manager();
    let (file, sockets) = (cluster.data().join("hihooi.toml"), cluster.data().join("sockets"));
    let config = fs::read_to_string(&file).expect("a configuration");
    let hosts = format!("host = \"{}\"", sockets.display());
    let local = config.replace("host = \"127.0.0.1\"", &hosts).replace("tls = \"disable\"\n", "");
    assert_eq!(local.matches(&hosts).count(), 2, "{local}");
    fs::write(&file, local).expect("own file");
    cluster.serve();
    let mut session = cluster.connect();
    session.run("INSERT INTO t VALUES (1, 'one')");
    eventually("a read at the replica", || {
        assert_eq!(session.value("SELECT v FROM t WHERE id = 1"), "one");
        session.route().site() == "replica1"
    });
    let shown = cluster.admin().run("SHOW SERVERS").records();
    assert!(shown.iter().all(|row| row["host"] == text(&sockets)), "{shown:?}");
    cluster.assert_verified();
    // Nothing has come by TCP but what the harness itself asks.
    let by_tcp = "client_addr IS NOT NULL AND application_name LIKE 'hihooi%'";
    assert_eq!(cluster.activity(by_tcp), 0);
    let through = "client_addr IS NULL AND application_name LIKE 'hihooi%'";
    assert!(cluster.activity(through) > 0);
    // Cancel requests find their way.
    let sleep = "SELECT pg_sleep(600)";
    let mut sleeping = tool("psql", cluster.port);
    sleeping.args(["-XAtq", "-c", sleep]).stdin(Stdio::null()).stderr(Stdio::piped());
    let sleeping = sleeping.spawn().expect("psql");
    cluster.until_active(&format!("query = '{sleep}'"));
    let pid = Pid::from_raw(sleeping.id().try_into().expect("a process"));
    kill(pid, Signal::SIGINT).expect("it runs");
    let cancelled = sleeping.wait_with_output().expect("it ends");
    assert_names(&String::from_utf8_lossy(&cancelled.stderr), &["canceling statement"]);
}
