//! Who a client is: the rules of `auth.hba_file` hold, a password is checked with what the primary stores at that
//! moment, and what a client has shown is enough to log in for it at servers that want passwords, too.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::BytesMut;
use hihooi_auth::scram::Nonce;
use hihooi_auth::scram::client::{Binding, Client, Secret};
use hihooi_wire::authentication::{Request, sasl_initial, sasl_response};
use hihooi_wire::{frontend, startup};

use crate::harness::reaper::Folder;
use crate::harness::{
    self, Cluster, HANG_S_MAX, METRICS_DISTANCE, assert_names, eventually, finish, ms, s, succeed,
    target_is_plain, tool,
};
use crate::tls::Authority;

/// What all tests ask of clients, unless they say otherwise: the harness itself is let in as the superuser.
const RULES: &str = "\
host  all     postgres  127.0.0.1/32  trust
host  all     nobody    127.0.0.1/32  reject
host  all     +staff    127.0.0.1/32  password
host  all     md        127.0.0.1/32  md5
hostssl all   certified 127.0.0.1/32  cert map=certificates
host  all     all       127.0.0.1/32  scram-sha-256
";

const ROLES: &str = "
    CREATE ROLE alice LOGIN PASSWORD 'alice''s secret';
    CREATE ROLE staff;
    CREATE ROLE stan LOGIN PASSWORD 'stan''s' IN ROLE staff;
    CREATE ROLE certified LOGIN;
    CREATE ROLE without LOGIN;
    CREATE ROLE expired LOGIN PASSWORD 'x' VALID UNTIL '2001-01-01';
    CREATE ROLE nobody LOGIN PASSWORD 'x';
    CREATE TABLE t (id int PRIMARY KEY, v text);
    GRANT ALL ON t TO PUBLIC;
    INSERT INTO t VALUES (1, 'one')";

/// A cluster with rules, and the folder in which they stand.
struct Guarded {
    cluster: Cluster,
    folder: Folder,
    authority: Authority,
}

impl Guarded {
    fn start(rules: &str) -> Guarded {
        Guarded::start_with(rules, &[])
    }

    fn start_with(rules: &str, environment: &[(&str, &str)]) -> Guarded {
        let (folder, authority) = (Folder::new(), Authority::new("ours"));
        let hba = folder.path().join("hba.conf");
        fs::write(&hba, rules).expect("own folder");
        let ident = folder.path().join("ident.conf");
        fs::write(&ident, "certificates /^client-(.*)$ \\1\n").expect("own folder");
        authority.certify("certified", &["client-certified"]);
        authority.certify("other", &["client-alice"]);
        let text = |path: &Path| path.to_str().expect("a name").to_owned();
        let options = authority
            .options("prefer")
            .env("HIHOOI_TLS_CA_FILE", &text(&authority.path("ca.crt")))
            .env("HIHOOI_HBA_FILE", &text(&hba))
            .env("HIHOOI_IDENT_FILE", &text(&ident))
            .env("HIHOOI_ADMIN_USERS", "postgres,adm")
            .env("HIHOOI_LOG", "debug")
            .env("PGPASSFILE", &text(&folder.path().join("pgpass")));
        let set =
            |options: harness::Options, (name, value): &(&str, &str)| options.env(name, value);
        let cluster = Cluster::start(environment.iter().fold(options, set));
        cluster.connect().run(ROLES);
        // (A password for md5 is stored as it is typed.)
        let md5 = "SET password_encryption = md5; CREATE ROLE md LOGIN PASSWORD 'md''s'";
        md5.split("; ").fold(cluster.connect(), |mut session, statement| {
            session.run(statement);
            session
        });
        cluster.caught_up();
        Guarded { cluster, folder, authority }
    }

    fn psql(&self, role: &str, password: &str, more: &str) -> Command {
        let mut command = tool("psql", self.cluster.port);
        command.env_remove("PGHOST").env_remove("PGUSER").env("PGPASSWORD", password);
        command.args(["-XAtqw", "-d"]);
        command
            .arg(format!("host=localhost hostaddr=127.0.0.1 dbname=postgres user={role} {more}"));
        command
    }

    /// What a role gets for a statement: rows, or the error.
    fn ask(&self, role: &str, password: &str, more: &str, sql: &str) -> Result<String, String> {
        let output = finish(self.psql(role, password, more).args(["-c", sql]));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// Whether a role is let in, and as whom.
    fn lets_in(&self, role: &str, password: &str) -> Result<String, String> {
        self.ask(role, password, "", "SELECT session_user")
    }

    /// Neither a password nor what is stored of one is in the log, which tells all that it can, in what the admin
    /// database shows, in metrics, or in the list of processes.
    fn tells_no_secret(&self) {
        let mut told = fs::read_to_string(self.cluster.data().join("hihooi.log")).expect("a log");
        assert!(told.contains("DEBUG"), "it tells all that it can");
        let mut admin = self.cluster.admin();
        for command in admin.run("SHOW HELP").records() {
            if command["command"].starts_with("SHOW ") {
                told += &format!("{:?}\n", admin.run(&command["command"]).rows);
            }
        }
        told += &crate::metrics::metrics_at(self.cluster.port + METRICS_DISTANCE);
        for process in fs::read_dir("/proc").expect("Linux").flatten() {
            // One that has ended meanwhile has nothing to tell.
            let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
            told += &String::from_utf8_lossy(&arguments);
        }
        for secret in ["alice's secret", "stan's", "md's", "SCRAM-SHA-256$"] {
            let line = told.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret}");
        }
    }

    fn rules(&self, rules: &str) {
        fs::write(self.folder.path().join("hba.conf"), rules).expect("own folder");
    }

    /// Has a server ask roles for passwords, by its own rules.
    fn guard(&self, site: &str, rules: &str) {
        let hba = self.cluster.data().join(site).join("pg_hba.conf");
        fs::write(hba, rules).expect("own folder");
        self.cluster.direct(site).run("SELECT pg_reload_conf()");
        // Sessions that began before go on; those of the pools are to begin anew.
        self.cluster.repair(site).run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE usename <> 'postgres' AND backend_type = 'client backend'",
        );
    }
}

fn failed(role: &str) -> String {
    format!("password authentication failed for user \"{role}\"")
}

/// Each method of the rules lets those in who can prove it, and nobody else; why not is the same for all.
#[test]
fn rules_decide_who_may_connect_and_how() {
    if target_is_plain() {
        return;
    }
    let guarded = Guarded::start(RULES);
    let own = |role: &str| Ok(role.to_owned());
    assert_eq!(guarded.lets_in("alice", "alice's secret"), own("alice"));
    assert_eq!(guarded.lets_in("stan", "stan's"), own("stan"));
    assert_eq!(guarded.lets_in("md", "md's"), own("md"));
    for (role, password) in [
        ("alice", "alice's  secret"),
        ("alice", "Alice's secret"),
        ("stan", "stan"),
        ("md", "md"),
        ("without", "without"),
        ("expired", "x"),
        ("no_such_role", "x"),
    ] {
        let refused = guarded.lets_in(role, password).expect_err("it is wrong");
        assert_names(&refused, &["FATAL", &failed(role)]);
        assert!(!refused.contains("DETAIL") && !refused.contains("expired ("), "{refused}");
    }
    let refused = guarded.lets_in("nobody", "x").expect_err("it is rejected");
    assert_names(&refused, &["pg_hba.conf rejects connection", "127.0.0.1", "\"nobody\"", "SSL"]);
    // The reason is in the log alone.
    for why in ["wrong password", "has expired", "has no password", "does not exist"] {
        assert!(guarded.cluster.logged(&[why]) > 0, "{why}");
    }
    guarded.tells_no_secret();

    // Certificates: the map says whose it is.
    let with = |file: &str, role: &str| {
        let (cert, key) = (format!("{file}.crt"), format!("{file}.key"));
        let (cert, key) = (guarded.authority.path(&cert), guarded.authority.path(&key));
        let files = format!("sslmode=require sslcert={} sslkey={}", cert.display(), key.display());
        guarded.ask(role, "", &files, "SELECT session_user")
    };
    assert_eq!(with("certified", "certified"), own("certified"));
    assert_names(
        &with("other", "certified").expect_err("another's"),
        &["certificate authentication failed for user \"certified\""],
    );
    let refused = guarded.ask("certified", "", "sslmode=require", "SELECT 1");
    assert_names(&refused.expect_err("none"), &["requires a valid client certificate"]);
    let refused = guarded.ask("certified", "", "sslmode=disable", "SELECT 1");
    assert_names(&refused.expect_err("hostssl"), &["password"]);
    // Both proofs at once.
    guarded
        .rules(&format!("hostssl all alice 0.0.0.0/0 scram-sha-256 clientcert=verify-ca\n{RULES}"));
    assert_names(
        &guarded
            .ask("alice", "alice's secret", "sslmode=require", "SELECT 1")
            .expect_err("no certificate"),
        &["requires a valid client certificate"],
    );
}

/// With TLS a client can make sure that its exchange is with us, not with somebody between.
#[test]
fn scram_is_bound_to_the_connection() {
    if target_is_plain() {
        return;
    }
    let guarded = Guarded::start(RULES);
    let ask = |more: &str| guarded.ask("alice", "alice's secret", more, "SELECT 1");
    assert_eq!(ask("sslmode=require channel_binding=require"), Ok("1".to_owned()));
    assert_eq!(ask("sslmode=require channel_binding=disable"), Ok("1".to_owned()));
    assert_eq!(ask("sslmode=disable channel_binding=disable"), Ok("1".to_owned()));
    assert!(ask("sslmode=disable channel_binding=require").is_err());
    // A renewed certificate: its own hash counts at once.
    guarded.authority.certify("server", &["localhost", "127.0.0.1"]);
    assert_eq!(ask("sslmode=require channel_binding=require"), Ok("1".to_owned()));
}

/// Servers that want SCRAM get it, by what the client has shown; a changed password counts at once, and a replica
/// that doesn't know it yet isn't used.
#[test]
fn servers_may_want_passwords() {
    if target_is_plain() {
        return;
    }
    let guarded = Guarded::start(RULES);
    let cluster = &guarded.cluster;
    let rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 md5\n\
                 host replication all 127.0.0.1/32 trust\n";
    for site in ["primary", "replica1"] {
        guarded.guard(site, &rules.replace("md5", "scram-sha-256"));
    }
    let read = |password: &str| {
        let mut psql = guarded.psql("alice", password, "");
        psql.args(["-c", "SELECT v FROM t WHERE id = 1", "-c", "SHOW hihooi.last_route"]);
        succeed(&mut psql)
    };
    let wrote = guarded.ask("alice", "alice's secret", "", "UPDATE t SET v = 'two' WHERE id = 1");
    assert_eq!(wrote, Ok(String::new()));
    cluster.caught_up();
    eventually("it reads at the replica", || {
        let read = read("alice's secret");
        assert!(read.starts_with("two"), "{read}");
        read.contains("site=replica1")
    });

    cluster.command("PAUSE REPLICA replica1");
    cluster.connect().run("ALTER ROLE alice PASSWORD 'new'");
    assert_names(
        &guarded.lets_in("alice", "alice's secret").expect_err("changed"),
        &[&failed("alice")],
    );
    for _ in 0..20 {
        assert_eq!(
            guarded.ask("alice", "new", "", "SELECT v FROM t WHERE id = 1"),
            Ok("two".into())
        );
    }
    cluster.command("RESUME REPLICA replica1");
    cluster.caught_up();
    eventually("it reads at the replica again", || read("new").contains("site=replica1"));

    // A role without a password can't be logged in at such servers, and is told why.
    guarded.rules("host all all 127.0.0.1/32 trust\n");
    let refused = guarded.lets_in("without", "").expect_err("the primary wants a password");
    assert_names(&refused, &["asks for the password of role \"without\"", "PGPASSFILE"]);
    // With md5, the stored hash is enough.
    guarded.rules(RULES);
    for site in ["primary", "replica1"] {
        guarded.guard(site, rules);
    }
    assert_eq!(guarded.lets_in("md", "md's"), Ok("md".to_owned()));
}

/// hihooi's own connections find the superuser's password as libpq does.
#[test]
fn our_own_password_is_in_the_password_file() {
    if target_is_plain() {
        return;
    }
    let guarded = Guarded::start(RULES);
    let cluster = &guarded.cluster;
    cluster.connect().run("ALTER ROLE postgres PASSWORD 'it: is\\this'");
    cluster.caught_up();
    cluster.kill_manager();
    let rules = "host all all 127.0.0.1/32 scram-sha-256\nhost replication all 127.0.0.1/32 scram-sha-256\n";
    for site in ["primary", "replica1"] {
        let hba = cluster.data().join(site).join("pg_hba.conf");
        fs::write(hba, rules).expect("own folder");
        cluster.direct(site).run("SELECT pg_reload_conf()");
    }
    let pgpass = guarded.folder.path().join("pgpass");
    fs::write(&pgpass, "127.0.0.1:*:*:postgres:it\\: is\\\\this\n").expect("own folder");
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&pgpass, mode).expect("own file");
    };
    mode(0o644);
    let config = cluster.data().join("hihooi.toml");
    let check = || {
        let mut command = Command::new(harness::program());
        command.arg("check").arg("--config").arg(&config).env("PGPASSFILE", &pgpass);
        let output = finish(&mut command);
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    assert_names(&check(), &["not fit", "asks for the password of role \"postgres\""]);
    mode(0o600);
    assert_names(&check(), &["primary: fit", "replica1: fit"]);
    cluster.serve();
    assert_eq!(guarded.lets_in("alice", "alice's secret"), Ok("alice".to_owned()));
    succeed(guarded.psql("postgres", "", "").args(["-c", "INSERT INTO t VALUES (2, 'x')"]));
    eventually("the replica follows", || {
        let shown = "SHOW REPLICAS";
        let shown = succeed(guarded.psql("postgres", "", "dbname=hihooi").args(["-c", shown]));
        shown.contains("serving") && shown.split('|').nth(3) == Some("0")
    });
}

/// Rules that change count for the next client; rules that can't be used change nothing.
#[test]
fn changed_rules_count_at_once() {
    if target_is_plain() {
        return;
    }
    let guarded = Guarded::start(RULES);
    assert!(guarded.lets_in("without", "").is_err());
    guarded.rules("host all without 127.0.0.1/32 trust\nhost all postgres 127.0.0.1/32 trust\n");
    assert_eq!(guarded.lets_in("without", ""), Ok("without".to_owned()));
    let refused = guarded.lets_in("alice", "alice's secret").expect_err("no rule");
    assert_names(&refused, &["no pg_hba.conf entry for host \"127.0.0.1\"", "\"alice\""]);
    guarded.rules("host all all 127.0.0.1/32 magic\nhost all all 127.0.0.1/999 trust\n");
    assert_eq!(guarded.lets_in("without", ""), Ok("without".to_owned()));
    assert_eq!(guarded.cluster.logged(&["auth.hba_file can't be used", "line 1", "magic"]), 1);
    // At start they are refused, every line of them.
    let mut command = Command::new(harness::program());
    let folder = Folder::new();
    command.arg("up").arg("--data").arg(folder.path().join("data"));
    command.args(["--listen", &format!("0.0.0.0:{}", harness::free_port())]);
    command.arg("--hba-file").arg(guarded.folder.path().join("hba.conf"));
    let output = finish(&mut command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_names(&said, &["line 1", "magic", "line 2", "999"]);
}

/// Reads a message.
fn message(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 5];
    stream.read_exact(&mut head).expect("a message");
    let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
    let mut body = vec![0; len];
    stream.read_exact(&mut body).expect("all of it");
    (head[0], body)
}

/// Opens a connection up to the request for a proof.
fn asked(port: u16, role: &str) -> (TcpStream, Vec<u8>) {
    asked_in(port, role, "postgres")
}

fn asked_in(port: u16, role: &str, database: &str) -> (TcpStream, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(s(HANG_S_MAX))).expect("a time limit");
    let mut packet = BytesMut::new();
    startup::startup([("user", role), ("database", database)], &mut packet);
    stream.write_all(&packet).expect("it is read");
    let (tag, body) = message(&mut stream);
    assert_eq!(tag, b'R');
    (stream, body)
}

/// The server's first SCRAM message.
fn challenged(port: u16, role: &str) -> String {
    let (mut stream, body) = asked(port, role);
    assert_eq!(Request::read(&body), Ok(Request::Sasl(vec![b"SCRAM-SHA-256"])));
    let mut packet = BytesMut::new();
    sasl_initial(b"SCRAM-SHA-256", b"n,,n=,r=abc", &mut packet);
    stream.write_all(&packet).expect("it is read");
    let (_, body) = message(&mut stream);
    let Ok(Request::SaslContinue(data)) = Request::read(&body) else { panic!("{body:?}") };
    let first = String::from_utf8(data.to_vec()).expect("text");
    let (nonce, rest) = first.split_once(",s=").expect("a salt");
    assert!(nonce.starts_with("r=abc") && nonce.len() > 20, "{first}");
    rest.to_owned()
}

/// Who takes his time to prove who he is gets what counts at the end of it.
#[test]
fn a_slow_login_is_checked_at_its_end() {
    if target_is_plain() {
        return;
    }
    let guarded = Guarded::start(RULES);
    let mut primary = guarded.cluster.connect();
    // Logs in as alice, while something is changed; the first error, or the value of work_mem.
    let mut slowly = |meanwhile: &str| {
        let (mut stream, _) = asked(guarded.cluster.port, "alice");
        let (client, first) = Client::begin(Binding::None, &Nonce::new(&[7; 18]));
        let mut packet = BytesMut::new();
        sasl_initial(b"SCRAM-SHA-256", &first, &mut packet);
        stream.write_all(&packet.split()).expect("it is read");
        let (_, body) = message(&mut stream);
        let Ok(Request::SaslContinue(data)) = Request::read(&body) else { panic!("{body:?}") };
        primary.run(meanwhile);
        std::thread::sleep(ms(1_100));
        let secret = Secret::Password(b"alice's secret");
        let (_, last) = client.prove(secret, data).expect("a challenge");
        sasl_response(&last, &mut packet);
        frontend::query(b"SHOW work_mem", &mut packet);
        stream.write_all(&packet).expect("it is read");
        loop {
            match message(&mut stream) {
                (b'E', body) => return Err(String::from_utf8_lossy(&body).into_owned()),
                (b'D', body) => return Ok(String::from_utf8_lossy(&body[6..]).into_owned()),
                _ => {}
            }
        }
    };
    assert_eq!(slowly("ALTER ROLE alice SET work_mem = '7MB'"), Ok("7MB".to_owned()));
    let refused = slowly("ALTER ROLE alice NOLOGIN").expect_err("it may not any more");
    assert_names(&refused, &["FATAL", "\"alice\" is not permitted to log in"]);
    let revoke = "ALTER ROLE alice LOGIN; REVOKE CONNECT ON DATABASE postgres FROM PUBLIC";
    let refused = slowly(revoke).expect_err("it may not any more");
    assert_names(&refused, &["FATAL", "permission denied for database \"postgres\""]);
}

/// What can be seen without a password doesn't tell whether a role exists; what is no proof gets an error, and
/// nothing that a stranger sends is kept.
#[test]
fn strangers_learn_nothing() {
    if target_is_plain() {
        return;
    }
    let guarded = Guarded::start(RULES);
    let port = guarded.cluster.port;
    for role in ["alice", "without", "expired", "no_such_role", "", "é\"'"] {
        if role.is_empty() {
            continue;
        }
        let (first, second) = (challenged(port, role), challenged(port, role));
        assert_eq!(first, second, "{role}");
        assert!(first.ends_with(",i=4096") && first.len() == 24 + 7, "{role}: {first}");
    }
    asked_in(port, "no_such_role", "hihooi");
    let salt = challenged(port, "no_such_role");
    assert_ne!(salt, challenged(port, "no_such_rolf"));
    guarded.cluster.kill_manager();
    guarded.cluster.up();
    assert_eq!(salt, challenged(port, "no_such_role"), "also after a restart");

    let bad: [(&[u8], &str); 6] = [
        (b"Q\0\0\0\rSELECT 1\0", "expected password response"),
        (b"p\xff\xff\xff\xff", "invalid password packet size"),
        (b"p\x7f\xff\xff\xff", "invalid password packet size"),
        (b"p\0\0\0\x08abcd", "invalid format"),
        (b"p\0\0\0\x12SCRAM-MD5\0\0\0\0\0", "mechanism"),
        (b"p\0\0\0\x1bSCRAM-SHA-256\0\0\0\0\x05n,,n=", "malformed SCRAM message"),
    ];
    for (bytes, words) in bad {
        let (mut stream, _) = asked(port, "alice");
        stream.write_all(bytes).expect("it is read");
        let (tag, body) = message(&mut stream);
        assert_eq!(tag, b'E', "{words}");
        assert_names(&String::from_utf8_lossy(&body), &["FATAL", words]);
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "the connection ends");
    }
    // Before it has proved who it is, a client can neither query nor be cancelled into a query.
    let (mut stream, _) = asked(port, "alice");
    stream
        .write_all(b"p\0\0\0\x21SCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=abcQ\0\0\0\rSELECT 1\0")
        .expect("read");
    let (tag, _) = message(&mut stream);
    assert_eq!(tag, b'R');
    let (tag, _) = message(&mut stream);
    assert_eq!(tag, b'E', "what follows isn't a proof");
    // Many that say nothing don't keep others out.
    let silent: Vec<TcpStream> = (0..200).map(|_| asked(port, "alice").0).collect();
    assert_eq!(guarded.lets_in("alice", "alice's secret"), Ok("alice".to_owned()));
    drop(silent);
}

/// What is behind the longest length of a name doesn't count, as at the server: it is no way around a rule.
#[test]
fn long_names_are_cut() {
    if target_is_plain() {
        return;
    }
    let long = "a".repeat(63);
    let guarded = Guarded::start(&format!(
        "host all {long} 127.0.0.1/32 reject\nhost {long} all 127.0.0.1/32 reject\n{RULES}"
    ));
    guarded.cluster.connect().run(&format!("CREATE ROLE {long} LOGIN PASSWORD 'x'"));
    for role in [&long, &format!("{long}b")] {
        let refused = guarded.lets_in(role, "x").expect_err("it is rejected");
        assert_names(&refused, &["pg_hba.conf rejects connection"]);
    }
    let refused = guarded.ask("alice", "alice's secret", &format!("dbname={long}b"), "SELECT 1");
    assert_names(&refused.expect_err("it is rejected"), &["pg_hba.conf rejects connection"]);
}

/// Who may not log in at the servers may not use the admin database either.
#[test]
fn the_admin_database_is_for_roles_that_may_log_in() {
    if target_is_plain() {
        return;
    }
    let guarded = Guarded::start(&format!("host hihooi adm 127.0.0.1/32 trust\n{RULES}"));
    let show = || guarded.ask("adm", "", "dbname=hihooi", "SHOW VERSION");
    assert_names(&show().expect_err("there is none"), &["role \"adm\" does not exist"]);
    guarded.cluster.connect().run("CREATE ROLE adm LOGIN");
    show().expect("it may");
    guarded.cluster.connect().run("ALTER ROLE adm NOLOGIN");
    assert_names(&show().expect_err("NOLOGIN"), &["\"adm\" is not permitted to log in"]);
    let refused = guarded.ask("alice", "alice's secret", "dbname=hihooi", "SHOW VERSION");
    assert_names(&refused.expect_err("no admin"), &["may not use the admin database"]);
}

/// While the primary is away, the password of a role's last login counts, not one that only a replica still has.
#[test]
fn a_replica_vouches_for_nobody() {
    if target_is_plain() {
        return;
    }
    let guarded = Guarded::start_with(RULES, &[("HIHOOI_SITES_TIMEOUT_MS", "2000")]);
    let cluster = &guarded.cluster;
    // At the admin database, which needs no server: the proof comes first.
    let told = |password: &str| {
        let told = guarded.ask("alice", password, "dbname=hihooi", "SHOW VERSION");
        told.expect_err("alice is no admin")
    };
    let proved = ["may not use the admin database"];
    assert_names(&told("alice's secret"), &proved);
    assert_eq!(guarded.lets_in("alice", "alice's secret").as_deref(), Ok("alice"));
    cluster.command("PAUSE REPLICA replica1");
    cluster.connect().run("ALTER ROLE alice PASSWORD 'new'");
    assert_names(&told("new"), &proved);
    let _frozen = cluster.freeze("primary");
    eventually("it is noticed", || cluster.logged(&["the primary does not answer"]) > 0);
    assert_names(&told("new"), &proved);
    assert_names(&told("alice's secret"), &[&failed("alice")]);
    // In whichever database it logged in last.
    let refused = guarded.lets_in("alice", "alice's secret").expect_err("it has another one");
    assert_names(&refused, &[&failed("alice")]);
    let refused = guarded.ask("without", "", "", "SELECT 1").expect_err("it never logged in");
    assert_names(&refused, &["can't be asked for the role's password"]);
    // Rules that need no server let operators in.
    succeed(guarded.psql("postgres", "", "dbname=hihooi").args(["-c", "SHOW REPLICAS"]));
}

/// Passwords may be stored elsewhere at the primary: in a table of the operator's.
#[test]
fn passwords_may_come_from_a_query() {
    if target_is_plain() {
        return;
    }
    let query = "SELECT name, verifier FROM public.logins WHERE name = $1";
    let guarded = Guarded::start_with(RULES, &[("HIHOOI_AUTH_QUERY", query)]);
    let mut session = guarded.cluster.connect();
    let wrong = failed("alice");
    assert_names(
        &guarded.lets_in("alice", "alice's secret").expect_err("there is no such table"),
        &["can't be asked for the role's password"],
    );
    assert!(guarded.cluster.logged(&["public.logins", "does not exist"]) > 0);
    // As the server makes verifiers: that of another role, and another one's later.
    session.run(
        "CREATE TABLE logins (name text, verifier text);
         CREATE ROLE other PASSWORD 'from the table'; CREATE ROLE third PASSWORD 'later';
         INSERT INTO logins SELECT 'alice', rolpassword FROM pg_authid WHERE rolname = 'other'",
    );
    assert_names(&guarded.lets_in("alice", "alice's secret").expect_err("not there"), &[&wrong]);
    assert_eq!(guarded.lets_in("alice", "from the table"), Ok("alice".to_owned()));
    session.run(
        "UPDATE logins SET verifier = rolpassword FROM pg_authid WHERE rolname = 'third' AND name = 'alice'",
    );
    assert_names(&guarded.lets_in("alice", "from the table").expect_err("changed"), &[&wrong]);
    assert_eq!(guarded.lets_in("alice", "later"), Ok("alice".to_owned()));
    // What isn't in it has no password; what is no role is none, whatever it says.
    session.run("INSERT INTO logins SELECT 'ghost', verifier FROM logins");
    for role in ["md", "ghost"] {
        assert_names(&guarded.lets_in(role, "later").expect_err("none"), &[&failed(role)]);
    }
    // VALID UNTIL is the role's.
    session.run("ALTER ROLE alice VALID UNTIL '2001-01-01'");
    assert_names(&guarded.lets_in("alice", "later").expect_err("expired"), &[&wrong]);
    session.run("ALTER ROLE alice VALID UNTIL 'infinity'; INSERT INTO logins TABLE logins");
    assert!(guarded.lets_in("alice", "later").is_err());
    assert!(guarded.cluster.logged(&["auth.query", "alice", "several rows"]) > 0);
    guarded.tells_no_secret();
}

/// A file that only names what it includes.
#[test]
fn rules_may_include_files() {
    if target_is_plain() {
        return;
    }
    let guarded = Guarded::start(RULES);
    let path = |name: &str| -> PathBuf { guarded.folder.path().join(name) };
    fs::write(path("staff"), "alice, stan\n").expect("own folder");
    guarded.rules("host all @staff 127.0.0.1/32 trust\nhost all postgres 127.0.0.1/32 trust\n");
    assert_eq!(guarded.lets_in("alice", ""), Ok("alice".to_owned()));
    assert!(guarded.lets_in("without", "").is_err());
    fs::write(path("staff"), "alice, without\n").expect("own folder");
    assert_eq!(guarded.lets_in("without", ""), Ok("without".to_owned()));
    assert!(guarded.lets_in("stan", "").is_err());
}

/// A session whose role was dropped, or got another name, never becomes the role that has its name by then, at no site.
#[test]
fn a_session_never_becomes_another_role_of_the_same_name() {
    if target_is_plain() {
        return;
    }
    let cluster = Cluster::start(crate::harness::Options::replicas(1));
    let mut owner = cluster.connect();
    owner.run("CREATE TABLE secret (id int PRIMARY KEY); INSERT INTO secret VALUES (1)");
    let forbidden = ["CREATE ROLE evil", "INSERT INTO secret VALUES (2)", "SELECT * FROM secret"];
    for change in ["DROP ROLE dave", "ALTER ROLE dave RENAME TO former"] {
        owner.run("CREATE ROLE dave LOGIN");
        cluster.caught_up();
        let dave = || cluster.connect_with(&[("user", "dave")]);
        let mut busy = dave();
        let sessions = forbidden.map(|statement| (dave(), statement));
        // The others need connections of their own.
        busy.run("BEGIN; SELECT pg_advisory_lock(1)");
        owner.run(change);
        owner.run("CREATE ROLE dave LOGIN SUPERUSER");
        cluster.caught_up();
        for (mut session, statement) in sessions {
            let failure = session.simple(statement).expect_err(statement);
            assert!(
                ["08006", "42501"].contains(&failure.code()),
                "{change}, {statement}: {failure}"
            );
        }
        assert_eq!(dave().number("SELECT count(*) FROM secret"), 1);
        drop(busy);
        owner.run("DROP ROLE dave");
    }
    cluster.assert_verified();
}

/// Nor does it get into another database of the same name.
#[test]
fn a_session_never_gets_into_another_database_of_the_same_name() {
    if target_is_plain() {
        return;
    }
    let cluster = Cluster::start(crate::harness::Options::replicas(1));
    let mut owner = cluster.connect();
    owner.run("CREATE DATABASE other");
    let mut session = cluster.connect_with(&[("database", "other")]);
    session.run("SELECT 1");
    owner.run("DROP DATABASE other WITH (FORCE)");
    owner.run("CREATE DATABASE other");
    let failure = session.simple("SELECT 1").expect_err("it is another database");
    assert_eq!(failure.code(), "08006", "{failure}");
    cluster.connect_with(&[("database", "other")]).run("SELECT 1");
}

/// What a client sends can't look like a line of the log.
#[test]
fn a_client_forges_no_lines_of_the_log() {
    if target_is_plain() {
        return;
    }
    let cluster = Cluster::start(crate::harness::Options::replicas(1));
    let forged = "no such level\nERROR forged";
    cluster.connect_with(&[("hihooi.consistency", forged)]).run("SELECT 1");
    eventually("it is logged", || cluster.log_tail().contains("no such level"));
    let log = cluster.log_tail();
    assert!(!log.lines().any(|line| line.starts_with("ERROR forged")), "{log}");
}
