//! The commands of the admin database in one table: syntax, purpose, and result columns. Parsing, `SHOW HELP`,
//! the error about an unknown command, and docs/admin.md are all made from it.

use super::words;

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
    /// `SHOW CONFIG`.
    Config,
    /// `SHOW VERSION`.
    Version,
    /// `SHOW HELP`.
    Help,
    /// `PAUSE REPLICA`.
    Pause,
    /// `RESUME REPLICA`.
    Resume,
    /// `VERIFY`.
    Verify,
}

/// A command.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Command {
    /// What is typed: keywords in upper case, `name` for an argument.
    pub syntax: &'static str,
    /// What it does.
    pub action: Action,
    /// What it is for, a sentence.
    pub help: &'static str,
    /// The columns of its result, with their meanings; none if it returns no rows.
    pub columns: &'static [(&'static str, &'static str)],
}

impl Command {
    /// The names of the columns.
    pub(super) fn column_names(&self) -> Vec<&'static str> {
        self.columns.iter().map(|(name, _)| *name).collect()
    }

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
                "name" => argument = word,
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

/// All commands, in the order in which help and documentation list them.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        syntax: "SHOW REPLICAS",
        action: Action::Replicas,
        help: "Lists the replicas: their states, their applied positions, and how long transactions take to become \
               visible there.",
        columns: &[
            ("replica", "its name"),
            (
                "state",
                "`cloning` (its first copy is being made), `catching_up`, `serving`, `paused`, \
                 `failed` (serves no reads), `different` (known to differ from the primary; serves no \
                 reads)",
            ),
            ("applied", "the position in the log (TSID) up to which it has applied everything"),
            (
                "lag_entries",
                "number of transactions that had been committed at the primary when the command arrived, but are \
                 not applied at the replica; NULL if the primary's position is not known",
            ),
            (
                "lag_ms",
                "time since the oldest of these transactions was committed, in milliseconds",
            ),
            (
                "apply_median_us",
                "time from a transaction's commit at the primary until it was visible at the replica, in \
                 microseconds: the median of some thousand recent transactions, accurate to 1 %",
            ),
            ("apply_p99_us", "the 99th percentile of these times"),
            (
                "reason",
                "why the replica is in this state, or why it lags; NULL if neither needs an explanation",
            ),
            ("weight", "its share of reads, compared with other replicas (`weight` in `[[site]]`)"),
            (
                "share_percent",
                "percentage of its weight that it gets now: less than 100 for some time after it comes back, 0 while \
                 it serves no reads, or while its reads fail or are not answered (docs/routes.md)",
            ),
            (
                "slowdown",
                "time that its reads take, divided by the time that the same statements usually take; 1.00 if \
                 there were no reads lately",
            ),
        ],
    },
    Command {
        syntax: "SHOW SERVERS",
        action: Action::Servers,
        help: "Lists the PostgreSQL servers of the cluster.",
        columns: &[
            ("site", "the server's name"),
            ("role", "`primary` or `replica`"),
            ("host", "the host where the server listens"),
            ("port", "the port where the server listens"),
            (
                "state",
                "a replica's state as in SHOW REPLICAS; the primary's is `serving` or `unreachable`",
            ),
            ("active", "number of clients' statements that are running there"),
            (
                "tls",
                "the version of TLS that connections to it are encrypted with; NULL if they are not encrypted",
            ),
        ],
    },
    Command {
        syntax: "SHOW POOLS",
        action: Action::Pools,
        help: "Lists the pools of server connections, one for each site, user and database.",
        columns: &[
            ("site", "the server's name"),
            ("user", "the role of the connections"),
            ("database", "the database of the connections"),
            ("used", "number of connections in use by sessions"),
            ("idle", "number of open connections that are not in use"),
            ("size", "maximum number of connections (`pool.size`)"),
        ],
    },
    Command {
        syntax: "SHOW CLIENTS",
        action: Action::Clients,
        help: "Lists the sessions of clients.",
        columns: &[
            ("id", "the process ID in the session's cancel key"),
            ("user", "the session's role"),
            ("database", "its database"),
            ("application_name", "as the client gave it when it connected"),
            ("address", "the client's address"),
            ("state", "`idle`, `active` or `in transaction`"),
            ("site", "the server where its current statement runs; NULL if none is running"),
            ("last_route", "where its previous statement ran, and why (docs/routes.md)"),
            ("age_s", "seconds since it connected"),
            ("tls", "the version of TLS that its connection uses; NULL if it is not encrypted"),
            (
                "auth",
                "how the client proved who it is: `trust`, `scram-sha-256`, `md5`, `password` or `cert`",
            ),
        ],
    },
    Command {
        syntax: "SHOW STATS",
        action: Action::Stats,
        help: "Counts statements at each site since hihooi was started.",
        columns: &[
            ("site", "the server's name"),
            (
                "reads",
                "statements that only read, except BEGIN, COMMIT and ROLLBACK; a pipeline up to its Sync counts as one \
                 statement",
            ),
            ("writes", "statements that write or may write"),
            ("commits", "transactions that wrote something and were committed"),
            ("errors", "statements that failed"),
            (
                "misjudged",
                "statements that were sent to a replica as reads, but tried to write there; they then ran on the \
                 primary",
            ),
            (
                "discarded",
                "results of reads at a replica that were discarded, because they may have shown two transactions in \
                 a different order than the primary did; the reads ran again",
            ),
        ],
    },
    Command {
        syntax: "SHOW CONFIG",
        action: Action::Config,
        help: "Lists the settings that are in force.",
        columns: &[("key", "as in hihooi.toml"), ("value", "its value")],
    },
    Command {
        syntax: "SHOW VERSION",
        action: Action::Version,
        help: "Shows the version of hihooi.",
        columns: &[("version", "its version")],
    },
    Command {
        syntax: "SHOW HELP",
        action: Action::Help,
        help: "Lists these commands.",
        columns: &[("command", "its syntax"), ("help", "what it does")],
    },
    Command {
        syntax: "PAUSE REPLICA name",
        action: Action::Pause,
        help: "Stops applying changes at a replica; it still serves reads of rows and columns that have not \
               changed since.",
        columns: &[],
    },
    Command {
        syntax: "RESUME REPLICA name",
        action: Action::Resume,
        help: "Applies changes and serves reads at a replica again, after PAUSE REPLICA, or after the cause of a \
               failure or difference was repaired there.",
        columns: &[],
    },
    Command {
        syntax: "VERIFY",
        action: Action::Verify,
        help: "Compares the replicas with the primary at one position of the log, as `hihooi verify` does. Returns \
               one row for a replica that is equal, and otherwise one row for each difference.",
        columns: &[
            ("replica", "its name"),
            ("tsid", "the position in the log at which they were compared"),
            ("tables", "number of tables that were compared"),
            ("rows", "number of rows that were compared"),
            ("result", "`equal` or `different`"),
            ("object", "the object that differs"),
            ("detail", "how it differs"),
        ],
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
            Connect with any client to the database `hihooi`, as one of the roles in `admin_users`.\n\
            It takes the following commands instead of SQL. As in SQL, keywords are not case-sensitive, and\n\
            names are folded to lower case unless they are in double quotes.\n"
            .to_owned();
        for command in COMMANDS {
            let _ = write!(page, "\n## {}\n\n{}\n", command.syntax, command.help);
            if !command.columns.is_empty() {
                page.push_str("\n| column | |\n|---|---|\n");
            }
            for (name, tells) in command.columns {
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
            let is_ours = ["SHOW ", "PAUSE ", "RESUME ", "VERIFY"]
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
