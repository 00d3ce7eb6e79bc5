//! The commands of the admin database in one table: syntax, purpose, and result columns. Parsing, `SHOW HELP`,
//! the error about an unknown command, and docs/admin.md are all made from it.

use super::table::{Column, float, int, text, time};
use crate::settings::Access;

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// `SHOW REPLICAS`.
    Replicas,
    /// `SHOW SERVERS`.
    Servers,
    /// `SHOW POOLS`.
    Pools,
    /// `SHOW CLIENTS`.
    Clients,
    /// `SHOW STATS`.
    Stats,
    /// `SHOW DATABASES`.
    Databases,
    /// `SHOW USERS`.
    Users,
    /// `SHOW STATE`.
    State,
    /// `SHOW LISTS`.
    Lists,
    /// `SHOW LOG`.
    Log,
    /// `SHOW MEM`.
    Memory,
    /// `SHOW CONFIG`.
    Config,
    /// `SHOW VERSION`.
    Version,
    /// `SHOW HELP`.
    Help,
    /// `PAUSE REPLICA`.
    Pause,
    /// `REBUILD REPLICA`.
    Rebuild {
        /// With FORCE: also one that serves reads.
        is_forced: bool,
    },
    /// `RESUME REPLICA`.
    Resume,
    /// `VERIFY`.
    Verify,
    /// `RELOAD`.
    Reload,
    /// `KILL`.
    Kill,
    /// `SHUTDOWN`.
    Shutdown,
    /// `SHUTDOWN WAIT_FOR_CLIENTS`.
    ShutdownWhenLeft,
}

/// A command.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Command {
    /// What is typed: keywords in upper case, `name` or `id` for an argument.
    pub syntax: &'static str,
    /// What it does.
    pub action: Action,
    /// Who may.
    pub access: Access,
    /// What it is for, a sentence.
    pub help: &'static str,
    /// The columns of its result, with their meanings; none if it returns no rows.
    pub columns: &'static [Column],
}

impl Command {
    /// The argument in these words, empty if the command takes none; `None` if they are another
    /// command.
    fn argument<'a>(&self, words: &'a [String]) -> Option<&'a str> {
        let mut argument = "";
        let syntax: Vec<&str> = self.syntax.split(' ').collect();
        if syntax.len() != words.len() {
            return None;
        }
        for (wanted, word) in syntax.into_iter().zip(words) {
            match wanted {
                "name" | "id" => argument = word,
                keyword if keyword.eq_ignore_ascii_case(word) => {}
                _ => return None,
            }
        }
        Some(argument)
    }
}

/// The command of a text, and its argument.
pub(super) fn find(text: &str) -> Option<(&'static Command, String)> {
    let words = words(text);
    COMMANDS.iter().find_map(|command| Some((command, command.argument(&words)?.to_owned())))
}

/// The words of a command: quoted names as they are, others in lower case.
pub(super) fn words(text: &str) -> Vec<String> {
    text.trim().trim_end_matches(';').split_whitespace().map(word).collect()
}

fn word(text: &str) -> String {
    match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.to_owned(),
        None => text.to_lowercase(),
    }
}

/// All commands, in the order in which help and documentation list them.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        syntax: "SHOW REPLICAS",
        action: Action::Replicas,
        access: Access::Read,
        help: "Lists the replicas: their states, their applied positions, and how long transactions take to become \
               visible there.",
        columns: &[
            text("replica", "its name"),
            text(
                "state",
                "`cloning` (it is being replaced by a copy of the primary), `catching_up`, `serving`, `paused`, \
                 `failed` (serves no reads), `different` (known to differ from the primary; serves no \
                 reads)",
            ),
            int("applied", "the position in the log (TSID) up to which it has applied everything"),
            int(
                "lag_entries",
                "number of transactions that had been committed at the primary when the command arrived, but are \
                 not applied at the replica; NULL if the primary's position is not known",
            ),
            int(
                "lag_ms",
                "time since the oldest of these transactions was committed, in milliseconds",
            ),
            int(
                "apply_median_us",
                "time from a transaction's commit at the primary until it was visible at the replica, in \
                 microseconds: the median of some thousand recent transactions, accurate to 1 %",
            ),
            int("apply_p99_us", "the 99th percentile of these times"),
            text(
                "reason",
                "why the replica is in this state, or why it lags; NULL if neither needs an explanation",
            ),
            int(
                "weight",
                "its share of reads, compared with other replicas (`weight` in `[[site]]`)",
            ),
            int(
                "share_percent",
                "percentage of its weight that it gets now: less than 100 for some time after it comes back, 0 while \
                 it serves no reads, or while its reads fail or are not answered (docs/routes.md)",
            ),
            float(
                "slowdown",
                "time that its reads take, divided by the time that the same statements usually take; 1.00 if \
                 there were no reads lately",
            ),
            time("since", "when this state began, UTC"),
            text("kind", "how it gets what the primary commits: `applied`, by hihooi"),
            int(
                "retained_bytes",
                "bytes of the log that it has not applied yet, counted in whole segments",
            ),
            int(
                "rebuilds",
                "how often it was replaced by a copy of the primary since hihooi was started; hihooi.log tells why",
            ),
            int(
                "tables_set_aside",
                "tables whose rows can't be written there; they are read elsewhere. `reason` names one",
            ),
        ],
    },
    Command {
        syntax: "SHOW SERVERS",
        action: Action::Servers,
        access: Access::Read,
        help: "Lists the PostgreSQL servers of the cluster.",
        columns: &[
            text("site", "the server's name"),
            text("role", "`primary` or `replica`"),
            text("host", "the host where the server listens"),
            int("port", "the port where the server listens"),
            text(
                "state",
                "a replica's state as in SHOW REPLICAS; the primary's is `serving` or `unreachable`",
            ),
            int("active", "number of clients' statements that are running there"),
            text(
                "tls",
                "the version of TLS that connections to it are encrypted with; NULL if they are not encrypted",
            ),
        ],
    },
    Command {
        syntax: "SHOW POOLS",
        action: Action::Pools,
        access: Access::Read,
        help: "Lists the pools of server connections, one for each site, user and database.",
        columns: &[
            text("site", "the server's name"),
            text("user", "the role of the connections"),
            text("database", "the database of the connections"),
            int("used", "number of connections in use by sessions"),
            int("idle", "number of open connections that are not in use"),
            int("size", "maximum number of connections (`pool.size`)"),
            int("waiting", "number of sessions that are waiting for a connection"),
            int("maxwait_ms", "how long the first of them has been waiting, in milliseconds"),
        ],
    },
    Command {
        syntax: "SHOW CLIENTS",
        action: Action::Clients,
        access: Access::Read,
        help: "Lists the sessions of clients.",
        columns: &[
            int("id", "the process ID in the session's cancel key"),
            text("user", "the session's role"),
            text("database", "its database"),
            text("application_name", "as the client gave it when it connected"),
            text("address", "the client's address; `[local]` if it uses a Unix socket"),
            text(
                "state",
                "`idle`, `active`, `in transaction`, or `waiting` for a server connection or a replica",
            ),
            text("site", "the server where its current statement runs; NULL if none is running"),
            text("last_route", "where its previous statement ran, and why (docs/routes.md)"),
            int("age_s", "seconds since it connected"),
            text("tls", "the version of TLS that its connection uses; NULL if it is not encrypted"),
            text(
                "auth",
                "how the client proved who it is: `trust`, `scram-sha-256`, `md5`, `password` or `cert`",
            ),
            int("wait_ms", "how long it has been waiting, in milliseconds; NULL if it isn't"),
        ],
    },
    Command {
        syntax: "SHOW STATS",
        action: Action::Stats,
        access: Access::Read,
        help: "Counts statements at each site since hihooi was started.",
        columns: &[
            text("site", "the server's name"),
            int(
                "reads",
                "statements that only read, except BEGIN, COMMIT and ROLLBACK; a pipeline up to its Sync counts as one \
                 statement",
            ),
            int("writes", "statements that write or may write"),
            int("commits", "transactions that wrote something and were committed"),
            int("errors", "statements that failed"),
            int(
                "misjudged",
                "statements that were sent to a replica as reads, but tried to write there; they then ran on the \
                 primary",
            ),
            int(
                "discarded",
                "results of reads at a replica that were discarded, because they may have shown two transactions in \
                 a different order than the primary did or were too long to be held back; the reads ran again",
            ),
        ],
    },
    Command {
        syntax: "SHOW DATABASES",
        action: Action::Databases,
        access: Access::Read,
        help: "Lists the replicated database, and others that clients use.",
        columns: &[
            text("name", "its name"),
            text("replicated", "`yes` or `no`; statements in other databases run on the primary"),
            int("clients", "number of clients' sessions"),
            text("slot", "the replication slot on the primary"),
            int("tsid", "the last position in the log"),
            int(
                "slot_retained_bytes",
                "bytes of WAL that the primary keeps for the slot; NULL if that is not known",
            ),
            int("log_bytes", "bytes in the log"),
        ],
    },
    Command {
        syntax: "SHOW USERS",
        action: Action::Users,
        access: Access::Read,
        help: "Lists the roles that may use the admin database, and others that clients use.",
        columns: &[
            text("name", "its name"),
            text("admin", "access to the admin database: `full`, `read` or `none`"),
            int("clients", "number of clients' sessions"),
        ],
    },
    Command {
        syntax: "SHOW STATE",
        action: Action::State,
        access: Access::Read,
        help: "Shows whether clients are served, by how many replicas, since how many seconds hihooi is running, and \
               whether it knows the primary's schema, without which reads run on the primary.",
        columns: &[text("key", "what is shown"), text("value", "its value")],
    },
    Command {
        syntax: "SHOW LISTS",
        action: Action::Lists,
        access: Access::Read,
        help: "Counts what the other commands list. `unproved_clients` are connections that have not proved who they \
               are yet.",
        columns: &[text("list", "what is counted"), int("items", "how many there are")],
    },
    Command {
        syntax: "SHOW LOG",
        action: Action::Log,
        access: Access::Read,
        help: "Shows the log of transactions, from which replicas get what the primary commits.",
        columns: &[
            int("first_tsid", "the oldest position in it"),
            int("last_tsid", "the newest position in it"),
            int("durable_tsid", "the newest position that is on disk"),
            int("bytes", "how long it is"),
            text("trouble", "why it can't be written; NULL if it can"),
        ],
    },
    Command {
        syntax: "SHOW MEM",
        action: Action::Memory,
        access: Access::Read,
        help: "Shows the memory that hihooi uses, and how much of what it holds there.",
        columns: &[
            text("name", "what is held"),
            int("items", "how many there are; of `resident_bytes`, bytes"),
        ],
    },
    Command {
        syntax: "SHOW CONFIG",
        action: Action::Config,
        access: Access::Read,
        help: "Lists the settings.",
        columns: &[
            text("key", "as in hihooi.toml"),
            text("value", "the value that is in force"),
            text(
                "after_restart",
                "the value that RELOAD has found in the configuration, if it needs a restart of hihooi; else NULL",
            ),
        ],
    },
    Command {
        syntax: "SHOW VERSION",
        action: Action::Version,
        access: Access::Read,
        help: "Shows the version of hihooi.",
        columns: &[text("version", "its version")],
    },
    Command {
        syntax: "SHOW HELP",
        action: Action::Help,
        access: Access::Read,
        help: "Lists these commands.",
        columns: &[text("command", "its syntax"), text("help", "what it does")],
    },
    Command {
        syntax: "PAUSE REPLICA name",
        action: Action::Pause,
        access: Access::Full,
        help: "Stops applying changes at a replica; it still serves reads of rows and columns that have not \
               changed since. Returns when nothing is committed there any more; a commit of more than 10 s is \
               told as an error, and the replica stops behind it. Lasts until RESUME REPLICA, or until hihooi is \
               started anew.",
        columns: &[],
    },
    Command {
        syntax: "RESUME REPLICA name",
        action: Action::Resume,
        access: Access::Full,
        help: "Applies changes and serves reads at a replica again, after PAUSE REPLICA, or after the cause of a \
               failure or difference was repaired there.",
        columns: &[],
    },
    Command {
        syntax: "VERIFY",
        action: Action::Verify,
        access: Access::Full,
        help: "Compares the replicas with the primary at one position of the log, as `hihooi verify` does. Returns \
               one row for a replica that is equal, and otherwise one row for each difference. Waits for locks that keep \
               readers out, and tells whose they are. Ends if the client leaves.",
        columns: &[
            text("replica", "its name"),
            int("tsid", "the position in the log at which they were compared"),
            int("tables", "number of tables that were compared"),
            int("rows", "number of rows that were compared"),
            text("result", "`equal` or `different`"),
            text("object", "the object that differs"),
            text("detail", "how it differs"),
        ],
    },
    Command {
        syntax: "REBUILD REPLICA name",
        action: Action::Rebuild { is_forced: false },
        access: Access::Full,
        help: "Replaces all data of a replica that serves no reads by a copy of the primary, which goes on serving, \
               and so do the other replicas. Only where `hihooi up` runs the servers. Notices tell how far it is; it \
               goes on if the client leaves. Its own configuration files stay.",
        columns: &[],
    },
    Command {
        syntax: "REBUILD REPLICA name FORCE",
        action: Action::Rebuild { is_forced: true },
        access: Access::Full,
        help: "Does the same with a replica that serves reads; they run elsewhere meanwhile.",
        columns: &[],
    },
    Command {
        syntax: "RELOAD",
        action: Action::Reload,
        access: Access::Full,
        help: "Reads the configuration file and the files that it names again, as the signal SIGHUP does, and returns \
               the settings that changed. No session is disturbed: its consistency level stays what it was when the \
               session began, and bounds apply to all. If anything is wrong in the files, nothing changes.",
        columns: &[
            text("key", "the setting, as in hihooi.toml"),
            text("before", "the value that was in force"),
            text("now", "the value in the configuration"),
            text("in_force", "`now` or `after a restart`"),
        ],
    },
    Command {
        syntax: "KILL id",
        action: Action::Kill,
        access: Access::Full,
        help: "Ends the session with this `id` in SHOW CLIENTS, whatever it does; its transaction is rolled back.",
        columns: &[],
    },
    Command {
        syntax: "SHUTDOWN",
        action: Action::Shutdown,
        access: Access::Full,
        help: "Stops hihooi, as the signal SIGTERM does: sessions that are idle end at once, others get up to a second \
               to finish what they run. After `hihooi up`, the servers are stopped as well.",
        columns: &[],
    },
    Command {
        syntax: "SHUTDOWN WAIT_FOR_CLIENTS",
        action: Action::ShutdownWhenLeft,
        access: Access::Full,
        help: "Accepts no new clients, and stops hihooi when the last one has left.",
        columns: &[],
    },
];

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// docs/admin.md.
    fn page() -> String {
        let mut page = "# The admin database\n\n\
            Connect with any client to the database `hihooi`, as one of the roles in `admin_users`, or as a role of which\n\
            `[[user]]` says `admin = \"full\"` or `admin = \"read\"`; the latter may only use the SHOW commands.\n\
            It takes the following commands instead of SQL. As in SQL, keywords are not case-sensitive, and\n\
            names are folded to lower case unless they are in double quotes.\n"
            .to_owned();
        for command in COMMANDS {
            let who = match command.access {
                Access::Read => "",
                Access::Full => " Needs `full` access.",
            };
            let _ = write!(page, "\n## {}\n\n{}{who}\n", command.syntax, command.help);
            if !command.columns.is_empty() {
                page.push_str("\n| column | |\n|---|---|\n");
            }
            for Column { name, tells, .. } in command.columns {
                let _ = writeln!(page, "| `{name}` | {tells} |");
            }
        }
        page
    }

    /// docs/admin.md is made from the table; `HIHOOI_BLESS=1` rewrites it.
    #[test]
    fn the_documentation_is_this_table() {
        let file = root().join("docs/admin.md");
        if std::env::var_os("HIHOOI_BLESS").is_some() {
            std::fs::write(&file, page()).expect("docs/admin.md is written");
        }
        let known = std::fs::read_to_string(&file).expect("docs/admin.md");
        assert_eq!(known, page(), "docs/admin.md: run this test with HIHOOI_BLESS=1");
    }

    /// README.md has every command, and no other.
    #[test]
    fn the_readme_has_all_commands() {
        let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
        for command in COMMANDS {
            let quoted = format!("`{}`", command.syntax);
            assert!(readme.contains(&quoted), "README.md lacks {quoted}");
        }
        for quoted in readme.split('`').skip(1).step_by(2) {
            let is_ours =
                ["SHOW ", "PAUSE ", "RESUME ", "VERIFY", "REBUILD ", "RELOAD", "KILL ", "SHUTDOWN"]
                    .iter()
                    .any(|word| quoted.starts_with(word));
            if is_ours && !quoted.contains("hihooi.") {
                assert!(find(quoted).is_some(), "README.md has `{quoted}`, which is no command");
            }
        }
    }

    #[test]
    fn commands_are_found_by_their_words() {
        for command in COMMANDS {
            let typed = command.syntax.replace(" name", " \"Replica1\"");
            let typed = typed.replace(" id", " \"Replica1\"");
            for text in [&typed, &format!("  {} ; ", typed.replace("SHOW", "show"))] {
                let (found, argument) = find(text).expect("known");
                assert_eq!(found, command);
                assert_eq!(argument == "Replica1", typed != command.syntax, "{text}");
            }
        }
        assert_eq!(
            find("pause replica Replica1").map(|found| found.1).as_deref(),
            Some("replica1")
        );
        for wrong in ["", "SHOW", "SHOW NONSENSE", "PAUSE REPLICA", "VERIFY replica1", "RESUME"] {
            assert!(find(wrong).is_none(), "{wrong}");
        }
    }
}
