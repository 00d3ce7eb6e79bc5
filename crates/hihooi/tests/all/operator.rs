//! What the operator sets and does while clients are served: bounds hold for each client (I8), other settings come into
//! force without disturbing a session, and who may do what in the admin database is checked for each command.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use hihooi_wire::backend::tag;
use hihooi_wire::{frontend, startup};
use nix::sys::signal::Signal;

use crate::harness::{
    self, Cluster, Failure, HANG_S_MAX, Options, Session, alone, beside, eventually, ms, s,
    target_is_plain,
};
use crate::tls::Manager;

/// Strangers that hihooi lets wait at most.
const STRANGERS_MAX: usize = 1_000;

/// A cluster whose configuration is a file of its own, behind the one that `up` made.
struct Governed {
    cluster: Cluster,
    made: String,
}

impl Governed {
    fn start(options: Options) -> Governed {
        let cluster = Cluster::start(options);
        let made = fs::read_to_string(cluster.data().join("hihooi.toml")).expect("made by up");
        Governed { cluster, made }
    }

    /// Changes values in the file, given as they stand there and as they are to be.
    fn set(&self, changes: &[(&str, &str)]) {
        let mut text = self.made.clone();
        for (before, after) in changes {
            assert!(text.contains(before), "{before}: {text}");
            text = text.replacen(before, after, 1);
        }
        fs::write(self.cluster.data().join("hihooi.toml"), text).expect("own folder");
    }

    /// RELOAD: the settings that changed, with what they are now, and when.
    fn reload(&self) -> BTreeMap<String, (String, String)> {
        let answer = self.cluster.admin().run("RELOAD");
        assert_eq!(answer.command, "RELOAD");
        let row = |row: &BTreeMap<String, String>| {
            (row["key"].clone(), (row["now"].clone(), row["in_force"].clone()))
        };
        answer.records().iter().map(row).collect()
    }

    fn role(&self, name: &str) -> Result<Session, Failure> {
        self.cluster.try_connect(&[("user", name)])
    }
}

fn told(told: &[(&str, &str, &str)]) -> BTreeMap<String, (String, String)> {
    let each = |(key, now, when): &(&str, &str, &str)| {
        ((*key).to_owned(), ((*now).to_owned(), (*when).to_owned()))
    };
    told.iter().map(each).collect()
}

fn refusal(session: Result<Session, Failure>) -> (String, String) {
    let fields = session.err().expect("refused").server();
    (fields.code().to_owned(), fields.get(b'M').unwrap_or_default().to_owned())
}

/// The last that a session is told.
fn last_word(session: &mut Session) -> String {
    match session.simple("SELECT 1") {
        Err(Failure::Server(fields)) => fields.code().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// What RELOAD changes is in force at once for all, and for new sessions where it is a session's own; sessions that
/// are open go on with what they are doing.
#[test]
fn settings_are_reloaded_under_sessions() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let governed = Governed::start(Options::replicas(1).noticing_silence());
    let cluster = &governed.cluster;
    cluster.connect().run("CREATE TABLE kept (id int PRIMARY KEY); INSERT INTO kept VALUES (1); CREATE ROLE bob LOGIN");
    cluster.caught_up();
    let mut before = cluster.connect();
    before.run("BEGIN; INSERT INTO kept VALUES (2); CREATE TEMP TABLE own ()");
    assert!(governed.reload().is_empty(), "nothing has changed");

    governed.set(&[
        ("size = 20", "size = 1"),
        ("wait_ms_max = 30000", "wait_ms_max = 2000"),
        ("default = \"gssi\"", "default = \"strict\""),
        ("clients_per_user_max = 0", "clients_per_user_max = 3"),
        ("timeout_ms = 2000", "timeout_ms = 2500"),
        ("role = \"replica\"", "role = \"replica\"\nweight = 7"),
    ]);
    let changed = told(&[
        ("pool.size", "1", "now"),
        ("pool.wait_ms_max", "2000", "now"),
        ("consistency.default", "strict", "now"),
        ("limits.clients_per_user_max", "3", "now"),
        ("site.replica1.weight", "7", "now"),
        ("sites.timeout_ms", "2500", "after a restart"),
    ]);
    assert_eq!(governed.reload(), changed);
    assert_eq!(governed.reload(), told(&[("sites.timeout_ms", "2500", "after a restart")]));
    let config = cluster.admin().run("SHOW CONFIG").records();
    let timeout = config.iter().find(|row| row["key"] == "sites.timeout_ms").expect("it is shown");
    assert_eq!((timeout["value"].as_str(), timeout["after_restart"].as_str()), ("2000", "2500"));
    assert_eq!(cluster.show_replicas()["replica1"]["weight"], "7");

    // The session that was open has its connection, its transaction and its level.
    before.run("INSERT INTO kept VALUES (3); COMMIT");
    assert_eq!(before.value("SELECT count(*) FROM kept, (SELECT count(*) FROM own) o"), "3");
    assert_eq!(before.value("SHOW hihooi.consistency"), "gssi");
    let mut after = cluster.connect();
    assert_eq!(after.value("SHOW hihooi.consistency"), "strict");
    // The other has the only connection of the pool.
    let is_seen = Arc::new(AtomicBool::new(false));
    let was_seen = is_seen.clone();
    let waits = std::thread::spawn(move || {
        while !was_seen.load(Ordering::SeqCst) {
            let refused = after.error("INSERT INTO kept VALUES (4)");
            assert_eq!(refused.code(), "53300", "{refused}");
        }
        after
    });
    eventually("it is seen to wait", || {
        let (clients, pools) =
            (cluster.admin().run("SHOW CLIENTS"), cluster.admin().run("SHOW POOLS"));
        let client = clients.records().into_iter().find(|row| row["state"] == "waiting");
        let pool = pools.records().into_iter().find(|row| row["waiting"] == "1");
        let number = |text: &str| text.parse::<u64>().is_ok_and(|ms| ms > 0);
        client.is_some_and(|row| number(&row["wait_ms"]))
            && pool.is_some_and(|row| row["site"] == "primary" && number(&row["maxwait_ms"]))
    });
    is_seen.store(true, Ordering::SeqCst);
    let mut after = waits.join().expect("it was refused");
    assert!(
        cluster.admin().run("SHOW CLIENTS").records().iter().all(|row| row["state"] != "waiting")
    );
    let _third = cluster.connect();
    let too_many = ("53300".to_owned(), "too many connections for role \"postgres\"".to_owned());
    assert_eq!(refusal(cluster.try_connect(&[])), too_many);
    assert!(governed.role("bob").is_ok(), "others have places of their own");

    // By the signal, and back; the log tells more now.
    assert_eq!(cluster.logged(&["DEBUG"]), 0);
    governed.set(&[("[sites]", "[log]\nfilter = \"debug\"\n[sites]")]);
    cluster.signal_manager(Signal::SIGHUP);
    eventually("it was read again", || cluster.try_connect(&[]).is_ok());
    eventually("the log tells more", || cluster.logged(&["DEBUG"]) > 0);
    after.run("INSERT INTO kept VALUES (4)");

    // What is wrong changes nothing.
    governed.set(&[("size = 20", "size = 0")]);
    let wrong = cluster.admin().error("RELOAD");
    assert!(wrong.to_string().contains("pool.size must be at least 1"), "{wrong}");
    after.run("INSERT INTO kept VALUES (5)");
    drop((before, after));
    cluster.caught_up();
    cluster.assert_verified();
}

/// Sessions that are idle for too long are ended, those that were open before the limit was set, too; a transaction
/// is rolled back, and its locks are free.
#[test]
fn idle_sessions_are_ended() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let governed = Governed::start(Options::replicas(1));
    let cluster = &governed.cluster;
    cluster
        .connect()
        .run("CREATE TABLE locked (id int PRIMARY KEY); INSERT INTO locked VALUES (1)");
    let begun = Instant::now();
    let (mut idle, mut holding, mut lazy) =
        (cluster.connect(), cluster.connect(), cluster.connect());
    holding.run("BEGIN; DELETE FROM locked");
    lazy.run("BEGIN");
    governed.set(&[("\nidle_ms_max = 0", "\nidle_ms_max = 900")]);
    assert_eq!(governed.reload().len(), 1);
    assert_eq!(last_word_after(&mut idle, begun, ms(900)), "57P05");
    let begun = Instant::now();
    assert_eq!(holding.run("DELETE FROM locked").command, "DELETE 0", "it is in a transaction");
    governed.set(&[("transaction_idle_ms_max = 0", "transaction_idle_ms_max = 600")]);
    assert_eq!(governed.reload().len(), 2);
    assert_eq!(last_word_after(&mut holding, begun, ms(600)), "25P03");
    // That no server knows of a transaction makes no difference.
    assert_eq!(last_word_after(&mut lazy, begun, ms(600)), "25P03");
    let mut patient = cluster.connect();
    assert_eq!(patient.run("DELETE FROM locked").command, "DELETE 1", "it was rolled back");
    // What runs isn't idle, however long it takes.
    assert_eq!(patient.value("SELECT count(*) FROM pg_sleep(1)"), "1");
}

/// What an idle session is told, which must not come before this time has passed.
fn last_word_after(session: &mut Session, begun: Instant, at_least: Duration) -> String {
    let message = session.next().expect("a last word");
    let fields = hihooi_wire::backend::ErrorFields::read(&message.body).expect("an error");
    assert!(begun.elapsed() >= at_least, "{:?}", begun.elapsed());
    fields.code().to_owned()
}

/// Roles that may only look can't change anything in the admin database, and others don't get in.
#[test]
fn access_to_the_admin_database_is_checked_for_each_command() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let options = Options::replicas(1).env("HIHOOI_USERS", "name=monitor,admin=read");
    let cluster = Cluster::start(options);
    cluster.connect().run("CREATE ROLE monitor LOGIN; CREATE ROLE other LOGIN");
    let admin = |role| cluster.try_connect(&[("user", role), ("database", "hihooi")]);
    assert_eq!(refusal(admin("other")).0, "42501");
    let mut monitor = admin("monitor").expect("it may look");
    let commands = monitor.run("SHOW HELP").records();
    for command in commands.iter().map(|row| row["command"].as_str()) {
        let typed = command.replace("name", "replica1").replace("id", "1");
        match command.starts_with("SHOW ") {
            true => drop(monitor.run(&typed)),
            false => assert_eq!(monitor.error(&typed).code(), "42501", "{command}"),
        }
        let extended = monitor.extended(&typed, &[]);
        assert_eq!(extended.is_ok(), command.starts_with("SHOW "), "{command}");
    }
    eventually("nothing is paused", || cluster.state("replica1") == "serving");

    // Who may, ends a session, whatever it does.
    let (mut idle, mut busy) = (cluster.connect(), cluster.connect());
    let id = |session: &mut Session| session.key.0.to_string();
    let (of_idle, of_busy) = (id(&mut idle), id(&mut busy));
    busy.run("BEGIN; CREATE TABLE undone ()");
    let runs = std::thread::spawn(move || last_word_of(&mut busy, "SELECT pg_sleep(60)"));
    let at_work = "query LIKE '%pg_sleep(60)' AND state = 'active'";
    cluster.until_active(at_work);
    cluster.command(&format!("KILL {of_busy}"));
    assert_eq!(runs.join().expect("it ran"), "57P01");
    cluster.command(&format!("KILL {of_idle}"));
    assert_eq!(last_word(&mut idle), "57P01");
    for nobody in [of_idle.as_str(), "0", "nobody"] {
        assert_eq!(cluster.admin().error(&format!("KILL {nobody}")).code(), "22023");
    }
    eventually("its query has ended", || cluster.activity(at_work) == 0);
    assert_eq!(cluster.connect().value("SELECT to_regclass('undone') IS NULL"), "t");

    // The last client that leaves is waited for, and nobody else comes in.
    let mut last = cluster.connect();
    cluster.command("SHUTDOWN WAIT_FOR_CLIENTS");
    assert_eq!(refusal(cluster.try_connect(&[])).0, "57P03");
    assert_eq!(last.value("SELECT 1"), "1");
    assert!(cluster.manager_runs());
    last.close();
    eventually("the manager ends", || !cluster.manager_runs());
    cluster.up();
    let mut open = cluster.connect();
    cluster.command("SHUTDOWN");
    assert_eq!(last_word_after(&mut open, Instant::now(), ms(0)), "57P01");
    eventually("the manager ends", || !cluster.manager_runs());
}

/// VERIFY waits for locks of clients, says whose, and holds up nothing else: neither other commands nor replicas that have
/// what is compared. It ends, also at the servers, when nobody waits for its result any more.
#[test]
fn verify_holds_up_nobody() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let cluster = Cluster::start(Options::replicas(2));
    let mut session = cluster.connect();
    session.run("CREATE TABLE t (n int); CREATE TABLE other (n int)");
    cluster.caught_up();
    let verify = |heard: Arc<AtomicBool>, what: String| {
        let mut admin = cluster.admin();
        let mut out = BytesMut::new();
        frontend::query(b"VERIFY", &mut out);
        admin.send(&out).expect("sent");
        std::thread::spawn(move || {
            while let Ok(message) = admin.next() {
                let is_it = String::from_utf8_lossy(&message.body).contains(&what);
                heard.fetch_or(is_it, Ordering::SeqCst);
                if is_it || message.tag == tag::READY_FOR_QUERY {
                    return; // and leaves
                }
            }
        })
    };
    let at_work = "application_name = 'hihooi verify'";

    // One replica is behind: the other goes on.
    let mut slow = cluster.repair("replica2");
    slow.run("BEGIN; LOCK TABLE t IN SHARE MODE");
    session.run("INSERT INTO t VALUES (1)");
    let heard = Arc::new(AtomicBool::new(false));
    let waits = verify(heard.clone(), "comparing".to_owned());
    eventually("it looks at the sites", || cluster.activity(at_work) > 0);
    session.run("INSERT INTO other VALUES (1)");
    let mut replica = cluster.direct("replica1");
    eventually("replica1 goes on", || replica.number("SELECT count(*) FROM other") == 1);
    assert!(!heard.load(Ordering::SeqCst), "replica2 is waited for");
    slow.run("COMMIT");
    waits.join().expect("it compared");
    cluster.caught_up();

    // A lock at the primary, which lasts.
    let mut holder = cluster.direct("primary");
    holder.run("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE");
    let pid = holder.value("SELECT pg_backend_pid()");
    let heard = Arc::new(AtomicBool::new(false));
    let waits = verify(heard.clone(), "ACCESS EXCLUSIVE is held by process".to_owned());
    eventually("it says who has the lock", || heard.load(Ordering::SeqCst));
    waits.join().expect("it left");
    eventually("nothing of it is left", || cluster.activity(at_work) == 0);

    let heard = Arc::new(AtomicBool::new(false));
    let waits = verify(heard.clone(), format!("held by process {pid}"));
    eventually("another one has begun", || cluster.activity(at_work) > 0);
    cluster.command("PAUSE REPLICA replica1");
    cluster.command("RESUME REPLICA replica1");
    cluster.command("REBUILD REPLICA replica2 FORCE");
    holder.run("COMMIT");
    waits.join().expect("it left, or has ended");
    cluster.assert_verified();
}

fn last_word_of(session: &mut Session, text: &str) -> String {
    session.simple(text).expect_err("cut off").code().to_owned()
}

/// Connections that never say who they are don't keep clients out, and don't last; those that prove nothing neither.
#[test]
fn strangers_keep_no_client_out() {
    if target_is_plain() {
        return;
    }
    let _alone = alone();
    let folder = harness::reaper::Folder::new();
    let rules = folder.path().join("hba.conf");
    fs::write(&rules, "host all postgres all trust\nhost all all all scram-sha-256\n")
        .expect("own");
    let options = Options::replicas(0)
        .env("HIHOOI_HBA_FILE", rules.to_str().expect("a name"))
        .env("HIHOOI_LIMITS_CLIENTS_MAX", "3");
    let governed = Governed::start(options);
    let cluster = &governed.cluster;
    cluster.connect().run("CREATE ROLE alice LOGIN PASSWORD 'alice'");
    let open = || TcpStream::connect(("127.0.0.1", cluster.port)).expect("it is accepted");
    let mut named = BytesMut::new();
    startup::startup([("user", "alice"), ("database", "postgres")], &mut named);
    let strangers: Vec<TcpStream> = (0..STRANGERS_MAX + 200)
        .map(|number| {
            let mut stream = open();
            if number % 2 == 0 {
                stream.write_all(&named).expect("it is read");
            }
            stream
        })
        .collect();
    let begun = Instant::now();
    let mut clients: Vec<Session> = (0..3).map(|_| cluster.connect()).collect();
    assert!(begun.elapsed() < s(HANG_S_MAX) / 2, "they were let in after {:?}", begun.elapsed());
    // The first ones had to go; none of them is told more than that it shall prove itself.
    let is_closed = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).expect("a socket");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).is_ok()
    };
    let closed = || strangers.iter().filter(|stream| is_closed(stream)).count();
    eventually("those that were silent the longest are closed", || closed() >= 200);
    assert!(closed() < 400, "{}", closed());
    // More clients than there may be are told so before they prove anything, but for operators.
    let too_many = ("53300".to_owned(), "sorry, too many clients already".to_owned());
    assert_eq!(refusal(cluster.try_connect(&[("user", "alice")])), too_many);
    assert_eq!(cluster.admin().run("SHOW CLIENTS").rows.len(), 3);
    clients.pop();
    eventually("a place is free", || cluster.try_connect(&[]).is_ok());
    assert!(closed() < 400, "the others have a minute");
    governed.set(&[("login_ms_max = 60000", "login_ms_max = 1000")]);
    governed.reload();
    let stranger = open();
    eventually("whoever comes now has a second", || is_closed(&stranger));
    assert_eq!(clients[0].value("SELECT 1"), "1");
}

/// A client whose machine is gone without a word is noticed: its connection is asked for a sign of life.
#[test]
fn clients_are_asked_for_a_sign_of_life() {
    if target_is_plain() {
        return;
    }
    let _beside = beside();
    let cluster = harness::shared();
    let idle = cluster.connect();
    // /proc/net/tcp: number, local and remote address, state, queues, and which timer runs; 2 is keepalive's.
    let timers = || {
        let text = fs::read_to_string("/proc/net/tcp").expect("Linux");
        let local = format!("0100007F:{:04X}", cluster.port);
        let of_us = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let of_us = of_us.filter(|line| line[1] == local && line[3] == "01");
        of_us.map(|line| line[5][..2].to_owned()).collect::<Vec<_>>()
    };
    eventually("keepalive's timer runs", || {
        let timers = timers();
        !timers.is_empty() && timers.iter().all(|timer| timer == "02")
    });
    drop(idle);
}

/// Each client takes a file: hihooi opens as many as it may, and says so if these are too few.
#[test]
fn as_many_files_are_opened_as_may_be() {
    const HARD: &str = "5000";
    if target_is_plain() {
        return;
    }
    let cluster = Cluster::start(Options::replicas(1));
    cluster.stop_manager(Signal::SIGTERM);
    let up = cluster.up_command();
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(format!("ulimit -Sn 300 && ulimit -Hn {HARD} && exec \"$0\" \"$@\""));
    limited.arg(up.get_program()).args(up.get_args());
    let manager = Manager(limited.spawn().expect("sh"));
    let limits = || {
        let limits = fs::read_to_string(format!("/proc/{}/limits", manager.0.id()));
        let limits = limits.expect("it runs");
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        files.expect(&limits).split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    eventually("it has raised its limit", || limits() == [HARD, HARD]);
    eventually("it says that this is too few", || {
        cluster.logged(&["only 5000 files can be open", "limits.clients_max 10000"]) > 0
    });
}
