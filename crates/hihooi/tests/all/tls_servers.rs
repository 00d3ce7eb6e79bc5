//! TLS to the servers: whatever hihooi sends them is encrypted if the configuration says so, and to nobody else.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use nix::sys::signal::Signal;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::harness::reaper::Folder;
use crate::harness::{
    self, Cluster, assert_names, eventually, finish, succeed, target_is_plain, tool,
};
use crate::tls::{Authority, SSL_REQUEST, encrypt};

/// Who may connect to hihooi, and how.
const RULES: &str =
    "host all postgres,app 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
/// Who may connect to the servers. Both let nobody in without TLS, but one role at the replica.
const PRIMARY_RULES: &str = "\
hostssl all         postgres all cert
hostssl replication postgres all cert
hostssl all         app      all cert
hostssl all         all      all scram-sha-256
";
const REPLICA_RULES: &str = "\
hostssl   all plainly  all reject
hostnossl all plainly  all trust
hostssl   all app      all cert
hostssl   all all      all scram-sha-256
";
/// What `hihooi check` says of a primary with which all is well, while it serves.
const SERVES: &str = "primary: not fit: slot hihooi is read by pid";
/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// A cluster whose servers accept encrypted connections only, and what is in front of them.
struct Encrypted {
    cluster: Cluster,
    folder: Folder,
    authority: Authority,
    doors: Vec<Door>,
}

/// Passes connections on to a server, and counts them by how they begin.
struct Door {
    port: u16,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    encrypted: AtomicUsize,
    plain: AtomicUsize,
}

impl Door {
    fn open(server: u16) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let counts = Arc::new(Counts::default());
        let counted = counts.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let counted = counted.clone();
                thread::spawn(move || pass_on(client, server, &counted));
            }
        });
        Door { port, counts }
    }

    fn encrypted(&self) -> usize {
        self.counts.encrypted.load(Ordering::SeqCst)
    }

    fn plain(&self) -> usize {
        self.counts.plain.load(Ordering::SeqCst)
    }
}

fn pass_on(mut client: TcpStream, server: u16, counts: &Counts) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)) else { return };
    let (mut first, mut answer, mut next) = ([0; 8], [0], [0]);
    let mut begun = || -> std::io::Result<bool> {
        client.read_exact(&mut first)?;
        server.write_all(&first)?;
        if first != SSL_REQUEST {
            return Ok(false);
        }
        server.read_exact(&mut answer)?;
        client.write_all(&answer)?;
        client.read_exact(&mut next)?;
        server.write_all(&next)?;
        Ok(next[0] == HANDSHAKE)
    };
    match begun() {
        Ok(true) => counts.encrypted.fetch_add(1, Ordering::SeqCst),
        Ok(false) => counts.plain.fetch_add(1, Ordering::SeqCst),
        Err(_) => return,
    };
    let (Ok(mut from), Ok(mut to)) = (client.try_clone(), server.try_clone()) else { return };
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
}

fn encrypted() -> &'static Encrypted {
    static SHARED: OnceLock<Encrypted> = OnceLock::new();
    SHARED.get_or_init(Encrypted::start)
}

impl Encrypted {
    fn start() -> Encrypted {
        let (folder, authority) = (Folder::new(), Authority::new("ours"));
        // For this host by its name only.
        authority.certify("database", &["localhost"]);
        authority.certify("app", &["app"]);
        let (hba, pgpass) = (folder.path().join("hba.conf"), folder.path().join("pgpass"));
        fs::write(&hba, RULES).expect("own folder");
        fs::write(&pgpass, "*:*:*:postgres:ours\n").expect("own folder");
        fs::set_permissions(&pgpass, fs::Permissions::from_mode(0o600)).expect("own file");
        let text = |path: &Path| path.to_str().expect("a name").to_owned();
        let options = authority
            .options("prefer")
            .env("HIHOOI_HBA_FILE", &text(&hba))
            .env("PGPASSFILE", &text(&pgpass))
            .env("HIHOOI_SITES_TIMEOUT_MS", "10000"); // servers are probed twice in it
        let cluster = Cluster::start(options);
        cluster.connect().run(
            "ALTER ROLE postgres PASSWORD 'ours';
             CREATE ROLE alice LOGIN PASSWORD 'secret';
             CREATE ROLE plainly SUPERUSER LOGIN;
             CREATE ROLE app LOGIN;
             CREATE TABLE t (id int PRIMARY KEY, v text); GRANT ALL ON t TO PUBLIC;
             INSERT INTO t VALUES (1, 'one')",
        );
        cluster.caught_up();
        cluster.kill_manager();
        let mut doors = Vec::new();
        for (site, rules) in [("primary", PRIMARY_RULES), ("replica1", REPLICA_RULES)] {
            let data = cluster.data().join(site);
            for (from, to) in [
                ("database.crt", "server.crt"),
                ("database.key", "server.key"),
                ("ca.crt", "ca.crt"),
            ] {
                give(&authority.path(from), &data, to);
            }
            let mut server = cluster.direct(site);
            server.run("ALTER SYSTEM SET ssl = on");
            server.run("ALTER SYSTEM SET ssl_ca_file = 'ca.crt'");
            fs::write(data.join("pg_hba.conf"), rules).expect("own folder");
            server.run("SELECT pg_reload_conf()");
            doors.push(Door::open(cluster.site(site).port));
        }
        for file in ["ca.crt", "client.crt", "client.key", "app.crt", "app.key"] {
            fs::copy(authority.path(file), cluster.data().join(file)).expect("own folder");
        }
        let encrypted = Encrypted { cluster, folder, authority, doors };
        let own = encrypted.cluster.data().join("hihooi.toml");
        let mut config = fs::read_to_string(&own).expect("its configuration");
        for (site, door) in ["primary", "replica1"].iter().zip(&encrypted.doors) {
            let port = encrypted.cluster.site(site).port;
            config =
                config.replace(&format!("port = {port}\n"), &format!("port = {}\n", door.port));
        }
        assert_eq!(config.matches("tls = \"disable\"").count(), 2, "{config}");
        let config = config.replace("host = \"127.0.0.1\"", "host = \"localhost\"").replace(
            "tls = \"disable\"",
            "tls = \"verify-full\"\nca_file = \"ca.crt\"\ncert_file = \"client.crt\"\nkey_file = \"client.key\"",
        );
        let user = "[[user]]\nname = \"app\"\ncert_file = \"app.crt\"\nkey_file = \"app.key\"\n";
        fs::write(own, config + user).expect("own folder");
        encrypted.cluster.serve();
        encrypted
    }

    /// What alice gets through hihooi.
    fn alice(&self, statements: &[&str]) -> String {
        self.role("alice", statements)
    }

    fn role(&self, role: &str, statements: &[&str]) -> String {
        let mut command = tool("psql", self.cluster.port);
        command.env_remove("PGHOST").env_remove("PGUSER").env("PGPASSWORD", "secret");
        command.args(["-XAtqw", "-d", &format!("host=127.0.0.1 dbname=postgres user={role}")]);
        statements.iter().for_each(|statement| {
            command.args(["-c", statement]);
        });
        succeed(&mut command)
    }

    /// As the server itself shows it.
    fn at(&self, site: &str, sql: &str) -> String {
        let (cert, key) = (self.authority.path("client.crt"), self.authority.path("client.key"));
        let mut command = tool("psql", self.cluster.site(site).port);
        command.env_remove("PGHOST").env("PGPASSWORD", "ours");
        command.args(["-XAtqw", "-F", " ", "-d"]).arg(format!(
            "host=127.0.0.1 dbname=postgres user=postgres sslmode=require sslcert={} sslkey={}",
            cert.display(),
            key.display()
        ));
        succeed(command.args(["-c", sql]))
    }

    /// What `hihooi check` says of a changed configuration, without the doors.
    fn check(&self, name: &str, change: impl Fn(String) -> String) -> String {
        let own = fs::read_to_string(self.cluster.data().join("hihooi.toml"));
        let mut config = own.expect("its configuration");
        for (site, door) in ["primary", "replica1"].iter().zip(&self.doors) {
            let port = self.cluster.site(site).port;
            config = config.replace(&door.port.to_string(), &port.to_string());
        }
        let path = self.cluster.data().join(name);
        fs::write(&path, change(config)).expect("own folder");
        check(&path, &self.folder.path().join("pgpass"))
    }
}

fn check(config: &Path, pgpass: &Path) -> String {
    let mut command = Command::new(harness::program());
    command.arg("check").arg("--config").arg(config).env("PGPASSFILE", pgpass);
    let output = finish(command.stdin(Stdio::null()));
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Copies a file into a server's folder, for its user only.
fn give(from: &Path, folder: &Path, name: &str) {
    let owner = fs::metadata(folder).expect("its folder");
    let path: PathBuf = folder.join(name);
    fs::copy(from, &path).expect("it is copied");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("own file");
    chown(&path, Some(owner.uid()), Some(owner.gid())).expect("own file");
}

/// Every connection that hihooi opens is encrypted: those for clients and its own, also those that cancel.
#[test]
fn all_connections_to_servers_are_encrypted() {
    if target_is_plain() {
        return;
    }
    let encrypted = encrypted();
    let cluster = &encrypted.cluster;
    let alice = |sql: &str| encrypted.alice(&[sql]);
    alice("UPDATE t SET v = 'two' WHERE id = 1");
    cluster.caught_up();
    eventually("it reads at the replica", || {
        let read = encrypted.alice(&["SELECT v FROM t WHERE id = 1", "SHOW hihooi.last_route"]);
        assert!(read.starts_with("two"), "{read}");
        read.contains("site=replica1")
    });
    // Much at once, both ways, more than a record of TLS or a socket's buffer holds.
    alice("INSERT INTO t SELECT i, repeat(i::text, 2000) FROM generate_series(2, 2000) i");
    let long = "x".repeat(100_000);
    alice(&format!("INSERT INTO t VALUES (5000, '{long}')"));
    let wide = alice("SELECT v FROM t WHERE id > 1 ORDER BY id");
    let expected: String = (2..=2000).map(|i: u32| i.to_string().repeat(2000) + "\n").collect();
    assert!(wide == format!("{expected}{long}\n"), "{} bytes", wide.len());
    // More than the sockets hold, to a server that reads slowly.
    let rows = encrypted.folder.path().join("rows");
    fs::write(&rows, format!("{long}\n").repeat(120)).expect("own folder");
    let copied = encrypted.alice(&[
        "CREATE TEMP TABLE slow (v text)",
        "CREATE FUNCTION pg_temp.waits() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_sleep(0.005); RETURN NULL; END'",
        "CREATE TRIGGER waits BEFORE INSERT ON slow FOR EACH ROW EXECUTE FUNCTION pg_temp.waits()",
        &format!("\\copy slow FROM '{}'", rows.display()),
        "SELECT 'copied'",
    ]);
    assert!(copied.ends_with("copied\n"), "{copied}");
    cluster.assert_verified();

    // Pooled connections remain, so what there is can be seen.
    alice("UPDATE t SET v = 'three' WHERE id = 1");
    let seen = "SELECT coalesce(nullif(application_name, ''), usename), ssl, version
                FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                WHERE pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender')
                    AND application_name <> 'hihooi check'"; // by `up` itself, whether a server runs
    for (site, kinds) in [
        ("primary", ["hihooi collector", "hihooi probe", "hihooi defaults", "psql"].as_slice()),
        ("replica1", &["hihooi applier", "hihooi probe", "hihooi defaults", "psql"]),
    ] {
        let mut found = String::new();
        eventually(&format!("{site} has all of {kinds:?}"), || {
            // One that didn't answer for a moment has none of clients until it is read again.
            alice("SELECT v FROM t WHERE id = 1");
            found = encrypted.at(site, seen);
            kinds.iter().all(|kind| found.lines().any(|line| line.starts_with(kind)))
        });
        assert!(found.lines().all(|line| line.ends_with(" t TLSv1.3")), "{site}: {found}");
    }
    eventually("it is shown", || {
        cluster.admin().run("SHOW SERVERS").column("tls") == [Some("TLSv1.3"); 2]
    });
    let config = cluster.admin().run("SHOW CONFIG").records();
    let shown = config.iter().find(|row| row["key"] == "site.replica1").expect("it is there");
    assert!(shown["value"].ends_with(" tls=verify-full"), "{shown:?}");

    // A request to cancel holds a secret.
    let primary = &encrypted.doors[0];
    let mut session = cluster.connect();
    let mut query = bytes::BytesMut::new();
    hihooi_wire::frontend::query(b"SELECT pg_sleep(1000), txid_current()", &mut query);
    session.send(&query).expect("it is read");
    let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(1000)%'";
    eventually("it runs", || encrypted.at("primary", running).trim() == "1");
    let before = primary.encrypted();
    session.cancel();
    assert_eq!(session.answers().expect_err("it is cancelled").code(), "57014");
    assert!(primary.encrypted() > before, "the request went another way");
    for door in &encrypted.doors {
        assert!(door.encrypted() > 3 && door.plain() == 0, "{} in clear text", door.plain());
    }
}

/// A role whose clients show no secret is logged in by a certificate of its own.
#[test]
fn roles_log_in_by_certificates_of_their_own() {
    if target_is_plain() {
        return;
    }
    let encrypted = encrypted();
    encrypted.role("app", &["INSERT INTO t VALUES (-1, 'by certificate')"]);
    eventually("it reads at the replica", || {
        let read = "SELECT v FROM t WHERE id = -1";
        let read = encrypted.role("app", &[read, "SHOW hihooi.last_route"]);
        assert!(read.starts_with("by certificate"), "{read}");
        read.contains("site=replica1")
    });
    encrypted.role("app", &["DELETE FROM t WHERE id = -1"]);
    let presented = "SELECT DISTINCT client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                     WHERE usename = 'app'";
    for site in ["primary", "replica1"] {
        assert_eq!(encrypted.at(site, presented).trim(), "/CN=app");
    }
    let config = encrypted.cluster.admin().run("SHOW CONFIG").records();
    let shown = config.iter().find(|row| row["key"] == "user").expect("it is there");
    assert_names(&shown["value"], &["name=app,cert_file=", "app.key"]);
}

/// Servers that aren't what they should be are named in one line, and get nothing.
#[test]
fn other_servers_are_refused() {
    if target_is_plain() {
        return;
    }
    let (encrypted, others) = (encrypted(), Authority::new("others"));
    assert_names(&encrypted.check("same.toml", |own| own), &[SERVES, "replica1: fit"]);
    let strange = others.path("ca.crt");
    let said = encrypted.check("ca.toml", |own| {
        own.replace("ca_file = \"ca.crt\"", &format!("ca_file = {strange:?}"))
    });
    let refused = format!("from an authority that is not in {}", strange.display());
    assert_names(&said, &["replica1: not fit", &refused]);
    assert!(!said.contains(SERVES), "{said}");
    let said = encrypted.check("host.toml", |own| own.replace("\"localhost\"", "\"127.0.0.1\""));
    assert_names(&said, &["replica1: not fit", "is for localhost, not for 127.0.0.1"]);
    // Whatever the host is called, without verification.
    let less = |mode: &str, own: String| {
        own.replace("ca_file = \"ca.crt\"\n", "").replace("verify-full", mode)
    };
    for mode in ["require", "prefer"] {
        let said = encrypted
            .check("less.toml", |own| less(mode, own).replace("\"localhost\"", "\"127.0.0.1\""));
        assert_names(&said, &[SERVES, "replica1: fit"]);
    }
    // Without TLS they let nobody in.
    let without = |own: String| {
        let keys = "cert_file = \"client.crt\"\nkey_file = \"client.key\"\n";
        less("disable", own).replace(keys, "")
    };
    assert_names(&encrypted.check("disable.toml", without), &["not fit", "no encryption"]);
    // A role that may come without TLS only does so, as with libpq, unless that would be less than was asked for.
    let as_plainly = |mode: &'static str| {
        move |own: String| less(mode, own).replace("user = \"postgres\"", "user = \"plainly\"")
    };
    let said = encrypted.check("plainly.toml", as_plainly("prefer"));
    assert_names(&said, &["primary: not fit", "replica1: fit"]);
    let said = encrypted.check("plainly.toml", as_plainly("require"));
    assert_names(&said, &["replica1: not fit", "pg_hba.conf rejects connection"]);
    // Files that can't be used are named before anything is done.
    let said = encrypted.check("none.toml", |own| own.replace("\"ca.crt\"", "\"none.crt\""));
    assert_names(&said, &["site \"primary\"", "none.crt", "No such file"]);
    assert!(!said.contains("fit"), "{said}");

    // A server that has no TLS, and one that lets others speak for it.
    let plain = harness::shared();
    let own = fs::read_to_string(plain.data().join("hihooi.toml")).expect("its configuration");
    let with = |mode: &str, name: &str| {
        let path = plain.data().join(name);
        fs::write(&path, own.replace("\"disable\"", &format!("\"{mode}\""))).expect("own folder");
        check(&path, Path::new("/nonexistent"))
    };
    assert_names(&with("prefer", "prefer.toml"), &[SERVES]);
    let said = with("require", "require.toml");
    assert_names(&said, &["replica1: not fit", "the server has no TLS", "require needs it"]);
    assert!(!said.contains(SERVES), "{said}");
    let server = encrypted.cluster.site("replica1").port;
    for (answer, words) in [
        (b"Sx".as_slice(), "received unencrypted data after SSL response"),
        (b"E", "failed when it was asked for TLS"),
        (b"?", "the answer to the request for TLS is none"),
    ] {
        let (port, _) = answering(answer);
        let said = encrypted
            .check("strange.toml", |own| own.replace(&server.to_string(), &port.to_string()));
        assert_names(&said, &[SERVES, "replica1: not fit", words]);
    }
}

/// Something that gives this answer to the request for TLS.
fn answering(answer: &'static [u8]) -> (u16, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let thread = thread::spawn(move || {
        let mut client = listener.accept().expect("it comes").0;
        client.read_exact(&mut [0; 8]).expect("a request");
        client.write_all(answer).expect("it is read");
        let _ = client.read(&mut [0]); // until it has gone
    });
    (port, thread)
}

/// Somebody between hihooi and a server, with a certificate for the server's host from the right authority, can't
/// pass a login on: it is bound to the server's own certificate (SCRAM-SHA-256-PLUS), also if the offer of that is
/// removed (RFC 5802, section 6).
#[test]
fn a_login_cannot_be_passed_on() {
    if target_is_plain() {
        return;
    }
    let encrypted = encrypted();
    let server = encrypted.cluster.site("replica1").port;
    let authority = &encrypted.authority;
    authority.certify("between", &["localhost"]);
    for (strips, words) in [
        (false, "SCRAM channel binding check failed"),
        (true, "SCRAM channel binding negotiation error"),
    ] {
        let port = between(server, authority, strips);
        let said = encrypted.check("between.toml", |own| {
            let own = own.replace(&server.to_string(), &port.to_string());
            own.replace("cert_file = \"client.crt\"\nkey_file = \"client.key\"\n", "")
        });
        assert_names(&said, &["replica1: not fit", words]);
    }
}

/// Passes a login on, message by message, from one encrypted connection to another.
fn between(server: u16, authority: &Authority, strips: bool) -> u16 {
    let chain = CertificateDer::from_pem_file(authority.path("between.crt")).expect("own file");
    let key = PrivateKeyDer::from_pem_file(authority.path("between.key")).expect("own file");
    let own = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("a certificate");
    let trusting = authority.client(None);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        let mut client = listener.accept().expect("it comes").0;
        client.read_exact(&mut [0; 8]).expect("a request");
        client.write_all(b"S").expect("it is read");
        let tls = ServerConnection::new(Arc::new(own)).expect("a configuration");
        let mut client = StreamOwned::new(tls, client);
        let mut tcp = TcpStream::connect(("127.0.0.1", server)).expect("it listens");
        tcp.write_all(&SSL_REQUEST).expect("it is read");
        tcp.read_exact(&mut [0]).expect("an answer");
        let mut server = encrypt(tcp, trusting).expect("TLS");
        let mut bytes = [0; 4_096];
        let plus = b"SCRAM-SHA-256-PLUS\0";
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            server.write_all(&bytes[..count]).expect("it is read");
            let Ok(count @ 1..) = server.read(&mut bytes) else { return };
            let mut answer = bytes[..count].to_vec();
            if strips && let Some(at) = answer.windows(plus.len()).position(|part| part == plus) {
                answer.drain(at..at + plus.len());
                answer[4] -= u8::try_from(plus.len()).expect("it is short");
            }
            client.write_all(&answer).expect("it is read");
        }
    });
    port
}

/// What is wrong with a replica's certificate is shown; right files are used as soon as they are there.
#[test]
fn a_replica_of_another_authority_is_shown_as_failed() {
    if target_is_plain() {
        return;
    }
    let encrypted = Encrypted::start();
    let (cluster, others) = (&encrypted.cluster, Authority::new("others"));
    assert!(cluster.stop_manager(Signal::SIGTERM).success());
    let own = cluster.data().join("hihooi.toml");
    let config = fs::read_to_string(&own).expect("its configuration");
    let (primary, replica) = config.split_once("\"replica1\"").expect("it has one");
    let replica = replica.replace("\"ca.crt\"", "\"other.crt\"");
    fs::write(&own, format!("{primary}\"replica1\"{replica}")).expect("own folder");
    let ca = cluster.data().join("other.crt");
    fs::copy(others.path("ca.crt"), &ca).expect("own folder");
    cluster.serve_without_waiting_for_all();
    let why = format!("from an authority that is not in {}", ca.display());
    eventually("it is shown", || {
        let replica = &cluster.show_replicas()["replica1"];
        replica["state"] == "failed" && replica["reason"].contains(&why)
    });
    assert_names(&cluster.log_tail(), &["the replica has failed", &why]);
    fs::copy(encrypted.authority.path("ca.crt"), &ca).expect("own folder");
    cluster.caught_up();
}
