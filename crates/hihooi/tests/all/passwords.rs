//! Passwords in clear text go no further than the relay: what servers and the log get is a SCRAM
//! verifier, the same at every site (manual, "Password Authentication").

use std::path::Path;

use crate::harness::{self, alone, shared, tool};

/// Whether any file below a folder holds these bytes.
fn holds(folder: &Path, needle: &[u8]) -> Option<std::path::PathBuf> {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let found = match path.is_dir() {
            true => holds(&path, needle),
            // Files come and go while a server runs.
            false => std::fs::read(&path).is_ok_and(|b| contains(&b, needle)).then_some(path),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == needle[0]);
    starts.into_iter().any(|(at, _)| bytes[at..].starts_with(needle))
}

/// What sites store for a role, which must be the same at all.
fn stored(role: &str) -> String {
    let query = format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'");
    shared().assert_equal(&query).rows[0][0].clone().unwrap_or_else(|| "NULL".to_owned())
}

/// Whether a site lets somebody in with a password, checked by PostgreSQL's own client.
fn lets_in(port: u16, role: &str, password: &str) -> bool {
    let mut psql = tool("psql", port);
    psql.env("PGUSER", role).env("PGPASSWORD", password).args(["-XAtc", "SELECT 1"]);
    harness::finish(&mut psql).status.success()
}

/// Every way to say a password; no server, log or file of the cluster gets to see it.
#[test]
fn no_server_sees_a_password_and_all_store_the_same() {
    let _alone = alone();
    let cluster = shared();
    let mut session = cluster.connect();
    if cluster.is_hihooi() {
        for site in cluster.sites() {
            cluster.direct(&site.name).run("ALTER SYSTEM SET log_statement = 'all'");
            cluster.direct(&site.name).run("SELECT pg_reload_conf()");
        }
    }
    let ways = [
        ("pw_simple", "CREATE ROLE pw_simple LOGIN PASSWORD 'Tell-nobody-1'"),
        (
            "pw_user",
            "create user pw_user encrypted password $$Tell-nobody-1$$ valid until 'infinity';",
        ),
        (
            "pw_alter",
            "CREATE ROLE pw_alter LOGIN; ALTER USER pw_alter PASSWORD E'Tell-nob\\x6fdy-1'",
        ),
        (
            "pw_block",
            "BEGIN; CREATE ROLE pw_block; ALTER ROLE pw_block LOGIN PASSWORD 'Tell-nobody-1'; COMMIT",
        ),
    ];
    for (_, text) in ways {
        session.run(text);
    }
    session.extended("CREATE USER pw_extended PASSWORD 'Tell-nobody-1'", &[]).expect("created");
    session.run("BEGIN");
    let text = "CREATE ROLE pw_inside LOGIN PASSWORD 'Tell-nobody-1'";
    session.extended(text, &[]).expect("created in a block");
    session.run("COMMIT");
    session
        .run("SET client_encoding = 'LATIN1'; CREATE ROLE pw_latin LOGIN PASSWORD 'Tell-nobody-1'");
    session.run("RESET client_encoding");
    let all =
        ["pw_simple", "pw_user", "pw_alter", "pw_block", "pw_extended", "pw_inside", "pw_latin"];
    if cluster.is_hihooi() {
        cluster.caught_up();
        let found = holds(&cluster.data(), b"Tell-nobody-1");
        assert_eq!(found, None, "a password in clear text is in a file");
    }
    for role in all {
        assert!(stored(role).starts_with("SCRAM-SHA-256$4096:"), "{role}");
    }
    for site in cluster.sites() {
        let hba = cluster.direct(&site.name).value("SHOW hba_file");
        let trusting = std::fs::read_to_string(&hba).expect("pg_hba.conf");
        let asking = format!("host all {} 127.0.0.1/32 scram-sha-256\n{trusting}", all.join(","));
        std::fs::write(&hba, asking).expect("pg_hba.conf");
        cluster.direct(&site.name).run("SELECT pg_reload_conf()");
        harness::eventually("the server asks for passwords", || {
            !lets_in(site.port, "pw_simple", "wrong")
        });
        for role in all {
            assert!(lets_in(site.port, role, "Tell-nobody-1"), "{role} at {}", site.name);
        }
        std::fs::write(&hba, trusting).expect("pg_hba.conf");
        cluster.direct(&site.name).run("SELECT pg_reload_conf()");
    }
    session.run(&format!("DROP ROLE {}", all.join(", ")));
}

/// What is no password in clear text is left to the server: none, an empty one with its notice,
/// hashes, and what an administrator wants hashed otherwise.
#[test]
fn other_passwords_are_the_servers_business() {
    let _alone = alone();
    let mut session = shared().connect();
    session.run("CREATE ROLE pw_other PASSWORD NULL");
    assert_eq!(stored("pw_other"), "NULL");
    session.run("ALTER ROLE pw_other PASSWORD ''");
    let notice = session.notices.last().expect("a notice").to_string();
    assert!(notice.contains("empty string is not a valid password"), "{notice}");
    assert_eq!(stored("pw_other"), "NULL");
    let verifier = "SCRAM-SHA-256$4096:YWJjZGVmZ2hpamtsbW5vcA==$\
        AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    session.run(&format!("ALTER ROLE pw_other PASSWORD '{verifier}'"));
    assert_eq!(stored("pw_other"), verifier);
    session.run("SET password_encryption = 'md5'");
    session.run("ALTER ROLE pw_other PASSWORD 'x'");
    let hashed = shared().direct("primary").value("SELECT 'md5' || md5('xpw_other')");
    assert_eq!(stored("pw_other"), hashed);
    session.run(&format!("ALTER ROLE pw_other PASSWORD '{verifier}'"));
    session.run(&format!("ALTER ROLE pw_other PASSWORD '{hashed}'"));
    assert_eq!(stored("pw_other"), hashed);
    session.run("RESET password_encryption");
    session.run("BEGIN");
    session.error("SELECT 1/0");
    assert_eq!(session.error("ALTER ROLE pw_other PASSWORD 'y'").code(), "25P02");
    session.run("ROLLBACK");
    assert_eq!(session.error("ALTER ROLE pw_nobody PASSWORD 'y'").code(), "42704");
    session.run("DROP ROLE pw_other");
}
