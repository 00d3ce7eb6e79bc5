//! Extensions of one's own, whose scripts write rows: replicas execute the script, and have the primary's rows behind it (I2).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::harness::{Cluster, Options, alone, bin_dir, target_is_plain};

/// An extension, its first version and what leads to the next two.
const SCRIPTS: [(&str, &str); 4] = [
    ("own.control", "default_version = '1.0'\nrelocatable = false\nschema = 'own'\n"),
    (
        "own--1.0.sql",
        "CREATE TABLE conf (id int PRIMARY KEY, v text);
         INSERT INTO conf VALUES (1, 'script'), (2, gen_random_uuid()::text), (3, clock_timestamp()::text);
         CREATE TABLE keyless (v text);
         INSERT INTO keyless SELECT random()::text FROM generate_series(1, 9);
         UPDATE keyless SET v = v || 'x' WHERE ctid = '(0,1)';
         DELETE FROM keyless WHERE ctid = '(0,2)';
         CREATE TABLE nothing (id int PRIMARY KEY);
         CREATE TABLE keyed (id int);
         ALTER TABLE keyed ADD PRIMARY KEY (id);
         CREATE TABLE parts (id int) PARTITION BY LIST (id);
         CREATE TABLE part PARTITION OF parts FOR VALUES IN (1);
         CREATE INDEX ON parts (id);
         INSERT INTO parts VALUES (1);",
    ),
    (
        "own--1.0--1.1.sql",
        "INSERT INTO conf VALUES (4, random()::text);
         UPDATE conf SET v = v || random() WHERE id = 1;
         DELETE FROM conf WHERE id = 2;
         INSERT INTO public.beside VALUES (9, 'by the script');
         DO $$ BEGIN ALTER TABLE keyless ADD u uuid DEFAULT gen_random_uuid(); END $$;
         ALTER TABLE nothing ADD n int;",
    ),
    ("own--1.1--1.2.sql", "COMMENT ON TABLE nothing IS 'is still empty';"),
];

/// A copy of the installed server in a folder, where [`SCRIPTS`] can be installed; its programs.
fn installation(folder: &Path) -> PathBuf {
    let programs = fs::canonicalize(bin_dir().join("postgres")).expect("the server's program");
    let programs = programs.parent().expect("a folder").to_owned();
    // Debian's folders, and those of an installation of its own.
    let version = programs.parent().and_then(Path::file_name).unwrap_or_default().to_owned();
    let shares =
        [Path::new("share/postgresql").join(version), "share/postgresql".into(), "share".into()];
    let share_below = |root: &Path| {
        shares.iter().find(|share| root.join(share).join("extension").exists()).cloned()
    };
    let (root, share) = programs
        .ancestors()
        .find_map(|root| Some((root.to_owned(), share_below(root)?)))
        .expect("the folder of extensions");
    let inside = |path: &Path| folder.join(path.strip_prefix(&root).expect("below it"));

    let own = inside(&programs);
    fs::create_dir_all(&own).expect("a folder");
    symlink(programs.with_file_name("lib"), own.with_file_name("lib")).expect("a link");
    // (A link would lead to the installed server's folder of extensions.)
    for program in fs::read_dir(&programs).expect("the programs") {
        let program = program.expect("a program").path();
        fs::copy(&program, own.join(program.file_name().expect("a name"))).expect("a copy");
    }
    let share = root.join(share);
    let links = |from: &Path, but: &str| {
        fs::create_dir_all(inside(from)).expect("a folder");
        for entry in fs::read_dir(from).expect("a folder") {
            let entry = entry.expect("an entry");
            if entry.file_name() != but {
                symlink(entry.path(), inside(&entry.path())).expect("a link");
            }
        }
    };
    links(&share, "extension");
    links(&share.join("extension"), "");
    for (name, text) in SCRIPTS {
        fs::write(inside(&share).join("extension").join(name), text).expect("a file");
    }
    own
}

#[test]
fn replicas_have_the_rows_that_extensions_scripts_wrote_at_the_primary() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::Builder::new().prefix("hihooi-test-").tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
        .expect("others may read it");
    let programs = installation(folder.path());
    let programs = programs.to_str().expect("a path in UTF-8");
    let cluster = Cluster::start(Options::replicas(2).env("HIHOOI_PG_BIN", programs));
    let mut session = cluster.connect();
    session.run("CREATE SCHEMA own; CREATE TABLE beside (id int PRIMARY KEY, v text)");
    let assert_equal = || {
        cluster.caught_up();
        for table in ["own.conf", "own.keyless", "own.nothing", "own.parts", "beside"] {
            cluster.assert_equal(&format!("SELECT t::text FROM {table} t ORDER BY 1"));
        }
        cluster.assert_verified();
    };

    session.run("CREATE EXTENSION own");
    assert_equal();
    // What has its key only later in the script, as in dumps, needs no other identity.
    let identities =
        "SELECT string_agg(format('%s %s', relname, relreplident), ', ' ORDER BY relname) FROM pg_class
        WHERE oid IN ('own.keyed'::regclass, 'own.keyless'::regclass)";
    for site in ["primary", "replica1", "replica2"] {
        assert_eq!(cluster.direct(site).value(identities), "keyed d, keyless f", "{site}");
    }
    session.run("INSERT INTO own.conf VALUES (10, 'mine'); UPDATE own.conf SET v = 'mine' WHERE id = 3; DELETE FROM own.keyless WHERE v < '0.5'");
    assert_equal();
    // Rows in front of the script, and behind it, in its transaction.
    for statement in [
        "BEGIN",
        "INSERT INTO own.conf VALUES (11, 'in front')",
        "INSERT INTO own.nothing VALUES (1)",
        "INSERT INTO beside VALUES (1, 'in front')",
        "ALTER EXTENSION own UPDATE TO '1.1'",
        "INSERT INTO own.conf VALUES (12, 'behind')",
        "UPDATE own.nothing SET n = 2",
        "UPDATE beside SET v = v || ', and behind'",
        "COMMIT",
    ] {
        session.run(statement);
    }
    assert_eq!(session.number("SELECT count(*) FROM beside"), 2);
    assert_equal();
    session.run(
        "BEGIN; INSERT INTO own.nothing VALUES (2, 2); ALTER EXTENSION own UPDATE TO '1.2'; COMMIT",
    );
    session.run("BEGIN; INSERT INTO own.nothing VALUES (3, 2); ALTER EXTENSION own DROP TABLE own.nothing; COMMIT");
    assert_equal();
    session.run("DROP EXTENSION own; DROP TABLE own.nothing");
    // Nobody counts rows.
    session.run("SET track_counts = off; CREATE EXTENSION own; BEGIN; INSERT INTO own.conf VALUES (5, 'in front')");
    session.run("ALTER EXTENSION own DROP TABLE own.keyless; COMMIT");
    cluster.caught_up();
    cluster.assert_equal("SELECT * FROM own.conf ORDER BY id");
    cluster.assert_verified();
}
