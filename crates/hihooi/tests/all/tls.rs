//! TLS to clients: what `sslmode` asks for is what there is, and nothing that isn't encrypted is taken for it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::BytesMut;
use hihooi_wire::{frontend, startup};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::reaper::Folder;
use crate::harness::{
    self, Cluster, HANG_S_MAX, METRICS_DISTANCE, Options, assert_names, eventually, finish, ms, s,
    succeed, target_is_plain, tool,
};

pub const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const ALPN: &[u8] = b"postgresql";

/// Certificates of an authority, in a folder: its own, a server's, and a client's for `postgres`.
pub struct Authority {
    folder: Folder,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let folder = Folder::new();
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let own = params.self_signed(&key).expect("a certificate");
        fs::write(folder.path().join("ca.crt"), own.pem()).expect("own folder");
        let authority = Authority { folder, issuer: Issuer::new(params, key) };
        authority.certify("server", &["localhost", "127.0.0.1"]);
        authority.certify("client", &["postgres"]);
        authority
    }

    /// Makes a key and its certificate; the first name is its common name.
    pub fn certify(&self, file: &str, names: &[&str]) {
        self.certify_until(file, names, 4096);
    }

    /// One that ends on the first of May of a year.
    pub fn certify_until(&self, file: &str, names: &[&str], year: i32) {
        let key = KeyPair::generate().expect("a key");
        let all = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(all).expect("names");
        params.distinguished_name.push(DnType::CommonName, names[0]);
        params.not_after = rcgen::date_time_ymd(year, 5, 1);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.write_key(file, &key.serialize_pem());
        fs::write(self.path(&format!("{file}.crt")), certificate.pem()).expect("own folder");
    }

    fn write_key(&self, file: &str, pem: &str) {
        let path = self.path(&format!("{file}.key"));
        fs::write(&path, pem).expect("own folder");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("own file");
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn text(&self, file: &str) -> String {
        self.path(file).to_str().expect("a name").to_owned()
    }

    /// The options of a cluster that has this server's certificate.
    pub fn options(&self, mode: &str) -> Options {
        Options::replicas(1)
            .env("HIHOOI_TLS_MODE", mode)
            .env("HIHOOI_TLS_CERT_FILE", &self.text("server.crt"))
            .env("HIHOOI_TLS_KEY_FILE", &self.text("server.key"))
    }

    /// What trusts it, with a protocol's name or none.
    pub fn client(&self, alpn: Option<&[u8]>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_file(self.path("ca.crt")).expect("its certificate");
        roots.add(own).expect("an authority");
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions");
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

/// A cluster that the tests share, and who certifies its server.
fn shared() -> &'static (Authority, Cluster) {
    static SHARED: OnceLock<(Authority, Cluster)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let authority = Authority::new("ours");
        let cluster = Cluster::start(authority.options("prefer"));
        (authority, cluster)
    })
}

fn tcp(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("hihooi listens");
    stream.set_read_timeout(Some(s(HANG_S_MAX))).expect("a time limit");
    stream
}

/// A client's TLS, its handshake done.
pub fn encrypt(
    mut tcp: TcpStream,
    config: Arc<ClientConfig>,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(config, name).expect("a configuration");
    tls.complete_io(&mut tcp)?;
    Ok(StreamOwned::new(tls, tcp))
}

/// Asks for TLS, and begins it.
fn negotiated(port: u16, authority: &Authority) -> StreamOwned<ClientConnection, TcpStream> {
    let mut tcp = tcp(port);
    tcp.write_all(&SSL_REQUEST).expect("it is read");
    let mut answer = [0];
    tcp.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"S");
    encrypt(tcp, authority.client(None)).expect("TLS")
}

/// Sends a start-up packet; the first byte of the answer.
fn open(stream: &mut (impl Read + Write)) -> u8 {
    let mut packet = BytesMut::new();
    startup::startup([("user", "postgres"), ("database", "postgres")], &mut packet);
    stream.write_all(&packet).expect("it is read");
    let mut answer = [0];
    stream.read_exact(&mut answer).expect("an answer");
    answer[0]
}

/// psql over a connection string with these parts.
fn psql(port: u16, parts: &str) -> Command {
    let mut command = tool("psql", port);
    command.env_remove("PGHOST").args(["-XAtq", "-d"]);
    command.arg(format!("host=localhost hostaddr=127.0.0.1 dbname=postgres {parts}"));
    command
}

/// Whether psql's connection is encrypted; what it says if it has none.
fn connected(port: u16, parts: &str) -> Result<bool, String> {
    let output = finish(psql(port, parts).args(["-c", "\\conninfo"]));
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).contains("SSL connection")),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Every `sslmode` of a client gives what its manual says (libpq, "SSL Mode Descriptions").
#[test]
fn clients_get_what_sslmode_asks_for() {
    if target_is_plain() {
        return;
    }
    let ((ours, cluster), others) = (shared(), Authority::new("others"));
    let (good, bad) = (ours.text("ca.crt"), others.text("ca.crt"));
    let is_encrypted = |parts: &str| connected(cluster.port, parts);
    assert_eq!(is_encrypted("sslmode=disable"), Ok(false));
    assert_eq!(is_encrypted("sslmode=allow"), Ok(false));
    for mode in ["prefer", "require"] {
        assert_eq!(is_encrypted(&format!("sslmode={mode}")), Ok(true), "{mode}");
    }
    for mode in ["verify-ca", "verify-full"] {
        assert_eq!(is_encrypted(&format!("sslmode={mode} sslrootcert={good}")), Ok(true), "{mode}");
        let refused = is_encrypted(&format!("sslmode={mode} sslrootcert={bad}"));
        assert_names(&refused.expect_err("not its authority"), &["certificate verify failed"]);
    }
    let clients = |tls: &str| {
        let answers = cluster.admin().simple("SHOW CLIENTS").expect("it answers");
        answers[0].column("tls").iter().filter(|found| **found == Some(tls)).count()
    };
    let mut session = negotiated(cluster.port, ours);
    assert_eq!(open(&mut session), b'R');
    eventually("it is shown", || clients("TLSv1.3") > 0);
}

/// A manager that ends with its test.
pub struct Manager(pub Child);

impl Drop for Manager {
    fn drop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).expect("a pid"));
        let _ = kill(pid, Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// What is required is required of every client, also of those that could do without.
#[test]
fn tls_can_be_required() {
    if target_is_plain() {
        return;
    }
    let authority = Authority::new("ours");
    let cluster = Cluster::start(authority.options("prefer"));
    cluster.stop_manager(Signal::SIGTERM);
    let mut required = cluster.up_command();
    required.env("HIHOOI_TLS_MODE", "require");
    let _manager = Manager(required.spawn().expect("it starts"));
    eventually("it serves", || {
        TcpStream::connect(("127.0.0.1", cluster.port)).is_ok()
            && connected(cluster.port, "sslmode=require") == Ok(true)
    });
    assert_eq!(connected(cluster.port, "sslmode=allow"), Ok(true));
    let refused = connected(cluster.port, "sslmode=disable").expect_err("it is required");
    assert_names(&refused, &["requires TLS", "sslmode=require"]);

    // Our own commands have the same choice.
    let others = Authority::new("others");
    let (good, bad) = (authority.text("ca.crt"), others.text("ca.crt"));
    let run = |command: &str, options: &[&str]| {
        let mut hihooi = Command::new(harness::program());
        let listen = format!("localhost:{}", cluster.port);
        hihooi.args(command.split(' ')).args(["--listen", &listen]).args(options);
        let output = finish(&mut hihooi);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    };
    let verify = |options: &[&str]| run("verify", options);
    eventually("the replica is reached", || verify(&[]).is_ok());
    for options in [[].as_slice(), &["--sslmode", "require"]] {
        assert_names(&verify(options).expect("they are equal"), &["replica1", "equal"]);
    }
    verify(&["--sslmode", "verify-full", "--sslrootcert", &good]).expect("they are equal");
    for (options, words) in [
        (["--sslmode", "disable"].as_slice(), "requires TLS"),
        (&["--sslmode", "verify-full", "--sslrootcert", &bad], "an authority that is not in"),
        (&["--sslmode", "verify-full"], "ca-certificates.crt"),
        (&["--sslrootcert", &good], "say verify-full"),
        (&["--sslmode", "verify-ca"], "disable, prefer, require and verify-full"),
    ] {
        assert_names(&verify(options).expect_err(words), &[words]);
    }
    let history = "bench history --level gssi --transactions 40 --sslmode require";
    run(history, &[]).expect("its guarantees are kept");
}

/// TLS without asking for it needs the protocol's name; what comes behind the request, but before TLS, ends the
/// connection (CVE-2021-23214 was that it didn't).
/// When a certificate ends can be seen in time, and that it was renewed.
#[test]
fn metrics_tell_when_certificates_end() {
    if target_is_plain() {
        return;
    }
    let authority = Authority::new("ours");
    let cluster = Cluster::start(authority.options("prefer"));
    let file = authority.text("server.crt");
    let ends = || {
        let metrics = crate::metrics::metrics_at(cluster.port + METRICS_DISTANCE);
        let name = format!("hihooi_certificate_end_timestamp_seconds{{file=\"{file}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
        value.expect(&metrics).parse::<f64>().expect("a number")
    };
    for year in [2031, 2032] {
        authority.certify_until("server", &["localhost"], year);
        let first_of_may = cluster.connect().value(&format!(
            "SELECT extract(epoch FROM timestamptz '{year}-05-01 00:00:00+00')::bigint"
        ));
        // Metrics are read some times a second at most.
        eventually("it is seen", || ends().to_string() == first_of_may);
    }
}

#[test]
fn nothing_that_is_not_encrypted_is_taken_for_it() {
    if target_is_plain() {
        return;
    }
    let (authority, cluster) = shared();
    let direct = |alpn: Option<&[u8]>| {
        let mut stream = encrypt(tcp(cluster.port), authority.client(alpn)).ok()?;
        let mut packet = BytesMut::new();
        startup::startup([("user", "postgres"), ("database", "postgres")], &mut packet);
        stream.write_all(&packet).ok()?;
        let mut answer = [0];
        stream.read_exact(&mut answer).ok().map(|()| answer[0])
    };
    assert_eq!(direct(Some(ALPN)), Some(b'R'));
    assert_eq!(direct(None), None);
    assert_eq!(direct(Some(b"http/1.1")), None);

    let mut packet = BytesMut::from(&SSL_REQUEST[..]);
    startup::startup([("user", "postgres"), ("database", "postgres")], &mut packet);
    let mut stream = tcp(cluster.port);
    stream.write_all(&packet).expect("it is read");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends");
    assert_names(
        &String::from_utf8_lossy(&answer),
        &["received unencrypted data after SSL request"],
    );

    // A second request is no start-up packet.
    let mut stream = negotiated(cluster.port, authority);
    stream.write_all(&SSL_REQUEST).expect("it is read");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_names(&String::from_utf8_lossy(&answer), &["unsupported frontend protocol 1234.5679"]);

    // Bytes that are no TLS, a client that says no more: others are served.
    let mut noise = tcp(cluster.port);
    noise.write_all(&SSL_REQUEST).expect("it is read");
    noise.write_all(&[0x16, 3, 1, 255, 255, 1, 2, 3]).expect("it is read");
    let _silent = tcp(cluster.port);
    assert_eq!(connected(cluster.port, "sslmode=require"), Ok(true));
}

/// A cancel request over TLS, as newer clients send it, is one.
#[test]
fn a_query_is_cancelled_over_tls() {
    if target_is_plain() {
        return;
    }
    let (authority, cluster) = shared();
    let mut session = cluster.connect();
    let (process, secret) = session.key.clone();
    let mut query = BytesMut::new();
    frontend::query(b"SELECT pg_sleep(1000)", &mut query);
    session.send(&query).expect("it is read");
    cluster.until_active("query LIKE 'SELECT pg_sleep%'");
    let mut packet = BytesMut::new();
    startup::cancel(process, &secret, &mut packet);
    let mut stream = negotiated(cluster.port, authority);
    stream.write_all(&packet).expect("it is read");
    // It ends as TLS ends, not just as TCP does: libpq 17 takes that for a failure.
    stream.read_to_end(&mut Vec::new()).expect("close_notify");
    let failure = session.answers().expect_err("it is cancelled");
    assert_eq!(failure.code(), "57014");
}

/// Large answers and COPY in both directions, also to a client that reads slowly.
#[test]
fn much_data_goes_through_tls() {
    if target_is_plain() {
        return;
    }
    let (authority, cluster) = shared();
    let told = |sql: &str| succeed(psql(cluster.port, "sslmode=require").args(["-c", sql]));
    let wide = told("SELECT repeat(i::text, 1000) FROM generate_series(1, 3000) i");
    let expected: String = (1..=3000).map(|i: u32| i.to_string().repeat(1000) + "\n").collect();
    assert!(wide == expected, "{} of {} bytes", wide.len(), expected.len());

    let file = authority.path("rows");
    fs::write(&file, &expected).expect("own folder");
    let copy = format!("\\copy t FROM '{}'", file.display());
    succeed(psql(cluster.port, "sslmode=require").args([
        "-c",
        "CREATE TABLE t (v text)",
        "-c",
        &copy,
    ]));
    cluster.assert_equal("SELECT count(*), sum(length(v)) FROM t");
    // (The table need not have the file's order.)
    let copied = told("\\copy (SELECT v FROM t ORDER BY length(v), v COLLATE \"C\") TO STDOUT");
    assert!(copied == expected, "{} of {} bytes", copied.len(), expected.len());

    let mut slow = negotiated(cluster.port, authority);
    assert_eq!(open(&mut slow), b'R');
    let mut query = BytesMut::new();
    frontend::query(b"SELECT repeat('x', 1000) FROM generate_series(1, 20000)", &mut query);
    frontend::terminate(&mut query);
    slow.write_all(&query).expect("it is read");
    let (mut bytes, mut read, began) = (vec![0; 65_536], 0, Instant::now());
    while let Ok(count) = slow.read(&mut bytes)
        && count > 0
    {
        read += count;
        if read < 2_000_000 && began.elapsed() < s(5) {
            std::thread::sleep(ms(5));
        }
    }
    assert!(read > 20_000_000, "{read} bytes");
}

/// A renewed certificate is presented to the next client; one that can't be used isn't.
#[test]
fn a_renewed_certificate_is_used_at_once() {
    if target_is_plain() {
        return;
    }
    let authority = &Authority::new("ours");
    let cluster = Cluster::start(authority.options("prefer"));
    let presented = || {
        let stream = negotiated(cluster.port, authority);
        stream.conn.peer_certificates().expect("it has one")[0].to_vec()
    };
    let (first, mut session) = (presented(), negotiated(cluster.port, authority));
    assert_eq!(open(&mut session), b'R');
    authority.certify("server", &["localhost", "127.0.0.1"]);
    let second = presented();
    assert_ne!(first, second);
    authority.write_key("server", "no key");
    assert_eq!(presented(), second);
    assert_eq!(cluster.logged(&["certificate can't be used", "server.key"]), 1);
    let mut query = BytesMut::new();
    frontend::query(b"SELECT 'still there'", &mut query);
    session.write_all(&query).expect("it is read");
    let (mut heard, mut bytes) = (Vec::new(), [0; 1_024]);
    while !String::from_utf8_lossy(&heard).contains("still there") {
        let count = session.read(&mut bytes).expect("it goes on");
        assert!(count > 0, "it ended");
        heard.extend_from_slice(&bytes[..count]);
    }
}

/// A client's certificate is checked if it has one, once there are authorities for clients.
#[test]
fn certificates_of_clients_are_checked() {
    if target_is_plain() {
        return;
    }
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let options = ours.options("prefer").env("HIHOOI_TLS_CA_FILE", &ours.text("ca.crt"));
    let cluster = Cluster::start(options);
    let with = |authority: &Authority| {
        let (cert, key) = (authority.text("client.crt"), authority.text("client.key"));
        connected(cluster.port, &format!("sslmode=require sslcert={cert} sslkey={key}"))
    };
    assert_eq!(with(&ours), Ok(true));
    assert_names(&with(&others).expect_err("not its authority"), &["alert"]);
    assert_eq!(connected(cluster.port, "sslmode=require"), Ok(true));
}

/// Files that can't be used are named before anything is made.
#[test]
fn bad_files_are_named() {
    if target_is_plain() {
        return;
    }
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let folder = Folder::new();
    let data = folder.path().join("data");
    let refused = |cert: Option<&Path>, key: Option<&Path>, mode: &str| {
        let mut command = Command::new(harness::program());
        command.args(["up", "--listen", &format!("127.0.0.1:{}", harness::free_port())]);
        command.arg("--data").arg(&data).args(["--tls-mode", mode]);
        for (option, file) in [("--tls-cert-file", cert), ("--tls-key-file", key)] {
            file.iter().for_each(|file| {
                command.arg(option).arg(file);
            });
        }
        let output = finish(&mut command);
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(!data.exists(), "{command:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (cert, key) = (ours.path("server.crt"), ours.path("server.key"));
    assert_names(&refused(Some(&cert), None, "prefer"), &["tls.key_file"]);
    assert_names(&refused(None, None, "require"), &["require", "tls.cert_file"]);
    assert_names(
        &refused(Some(&ours.path("none")), Some(&key), "prefer"),
        &["none", "No such file"],
    );
    assert_names(&refused(Some(&key), Some(&key), "prefer"), &["server.key holds no certificate"]);
    assert_names(&refused(Some(&cert), Some(&cert), "prefer"), &["server.crt"]);
    let strange = others.path("server.key");
    assert_names(
        &refused(Some(&cert), Some(&strange), "prefer"),
        &["server.crt with", "server.key"],
    );
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("own file");
    assert_names(&refused(Some(&cert), Some(&key), "prefer"), &["server.key", "chmod 600"]);
}
