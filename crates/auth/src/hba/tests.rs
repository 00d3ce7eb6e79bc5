use proptest::prelude::*;

use super::*;
use crate::files::{self, BYTES_MAX, LineError};

const ODD: &str = include_str!("odd/pg_hba.conf");
/// Of PostgreSQL 18: line_number, then error, or type, database, user_name, address, netmask, auth_method and
/// options of `pg_hba_file_rules`.
const ODD_VERDICTS: &str = include_str!("odd/postgresql-18.txt");
const ATTEMPTS: &str = include_str!("attempts/pg_hba.conf");
/// Where from, user, database; then the line of `attempts/pg_hba.conf` that PostgreSQL 18 took, or how it
/// refused.
const ATTEMPTS_VERDICTS: &str = include_str!("attempts/postgresql-18.txt");

fn rules(text: &str) -> Rules {
    Rules::parse(Path::new("pg_hba.conf"), text).unwrap()
}

fn errors(text: &str) -> Vec<LineError> {
    Rules::parse(Path::new("pg_hba.conf"), text).unwrap_err().0
}

fn with(files: &[(&str, &str)]) -> Result<Rules, FileErrors> {
    let files = files.iter().map(|&(path, text)| (path.into(), text.into()));
    Rules::read(Path::new("/etc/pg_hba.conf"), &files.collect::<BTreeMap<PathBuf, String>>())
}

fn attempt<'a>(user: &'a str, database: &'a str, address: Option<&str>) -> Attempt<'a> {
    let address = address.map(|address| address.parse().unwrap());
    let (tls, replication, networks, host_name) = (false, false, &[], None);
    Attempt { user, database, address, tls, replication, networks, host_name }
}

/// The line that decides, 0 if none; nobody is a member of anything.
fn decides(rules: &Rules, attempt: &Attempt<'_>) -> usize {
    match rules.find(attempt, &|_| false) {
        Found::Allowed(rule) | Found::Rejected(rule) => rule.line,
        Found::Nothing => 0,
    }
}

/// A rule as `pg_hba_file_rules` shows it.
fn shown(rule: &Rule) -> String {
    let databases = rule.databases.iter().map(|database| match database {
        Database::All => "all".to_owned(),
        Database::SameUser => "sameuser".to_owned(),
        Database::SameRole => "samerole".to_owned(),
        Database::Replication => "replication".to_owned(),
        Database::Matches(pattern) => format!("/{}", pattern.text()),
        Database::Is(name) => name.clone(),
    });
    let roles = rule.roles.iter().map(|role| match role {
        Role::All => "all".to_owned(),
        Role::MemberOf(group) => format!("+{group}"),
        Role::Matches(pattern) => format!("/{}", pattern.text()),
        Role::Is(name) => name.clone(),
    });
    let addresses = match &rule.addresses {
        _ if rule.connection == Connection::Local => String::new(),
        Addresses::All => " all".to_owned(),
        Addresses::SameHost => " samehost".to_owned(),
        Addresses::SameNet => " samenet".to_owned(),
        Addresses::In(Network { address, mask }) => format!(" {address} {mask}"),
        Addresses::Named(name) => format!(" {name}"),
    };
    let method = match rule.method {
        Method::Scram => "scram-sha-256".to_owned(),
        method => format!("{method:?}").to_lowercase(),
    };
    let certificate = match rule.client_cert {
        ClientCert::Optional => None,
        ClientCert::VerifyCa => Some("clientcert=verify-ca".to_owned()),
        ClientCert::VerifyFull => Some("clientcert=verify-full".to_owned()),
    };
    let options: Vec<_> =
        rule.map.iter().map(|map| format!("map={map}")).chain(certificate).collect();
    let options =
        if options.is_empty() { String::new() } else { format!(" {}", options.join(",")) };
    let kind = format!("{:?}", rule.connection).to_lowercase();
    let (databases, roles) =
        (databases.collect::<Vec<_>>().join(","), roles.collect::<Vec<_>>().join(","));
    format!("{kind} {databases} {roles}{addresses} {method}{options}")
}

fn verdict(line: &files::Line) -> String {
    match line::parse(line) {
        Ok(rule) => shown(&rule),
        Err(wrong) => format!("error: {}", wrong.what),
    }
}

#[test]
fn odd_lines_are_read_as_postgresql_reads_them() {
    let path = Path::new("pg_hba.conf");
    let in_memory = BTreeMap::from([(path.to_owned(), ODD.to_owned())]);
    let ours = files::read(path, &in_memory, |line| Ok((line.number, verdict(line)))).unwrap();
    let theirs: Vec<(usize, &str)> = ODD_VERDICTS
        .split_terminator('\n')
        .map(|verdict| verdict.split_once(": ").unwrap())
        .map(|(number, verdict)| (number.parse().unwrap(), verdict))
        .collect();
    assert_eq!(ours.len(), theirs.len());
    let mut different = String::new();
    for ((number, ours), (theirs_at, theirs)) in ours.iter().zip(theirs) {
        assert_eq!(*number, theirs_at);
        if ours != theirs {
            different += &format!("{number}\n  ours:       {ours}\n  PostgreSQL: {theirs}\n");
        }
    }
    // What isn't supported, and texts. PostgreSQL's errors for lines 99, 107 and 108 have none.
    assert_eq!(different, include_str!("odd/different.txt"));
}

#[test]
fn connections_are_matched_as_postgresql_matches_them() {
    let rules = rules(ATTEMPTS);
    let here = ["127.0.0.1", "::1"].map(|address| {
        let address: IpAddr = address.parse().unwrap();
        let mask = if address.is_ipv4() { "255.0.0.0" } else { "ffff:ffff::" }.parse().unwrap();
        Network { address, mask }
    });
    for line in ATTEMPTS_VERDICTS.lines() {
        let [from, user, database, expected] =
            line.splitn(4, ' ').collect::<Vec<_>>().try_into().unwrap();
        let attempt = Attempt {
            replication: database == "replication=1",
            networks: &here,
            ..attempt(user, database, Some(from).filter(|&from| from != "local"))
        };
        // The superuser postgres is a member of nothing.
        let is_member = |group: &str| {
            let belongs = [("ann", "staff"), ("eve", "staff"), ("hank", "club")];
            user == group && user != "ghost" || belongs.contains(&(user, group))
        };
        let found = rules.find(&attempt, &is_member);
        let ours = match found {
            Found::Allowed(rule) => format!("line {}", rule.line),
            _ => found.refusal(&attempt).unwrap(),
        };
        assert_eq!(ours, expected, "{line}");
    }
}

#[test]
fn tls_decides_between_hostssl_and_hostnossl() {
    let rules = rules("hostssl all all all scram-sha-256\nhostnossl all all all reject\n");
    let plain = attempt("ann", "shop", Some("192.0.2.1"));
    let encrypted = Attempt { tls: true, ..plain };
    let local = attempt("ann", "shop", None);
    assert_eq!(decides(&rules, &encrypted), 1);
    assert_eq!(decides(&rules, &plain), 2);
    assert_eq!(decides(&rules, &local), 0);
    // PostgreSQL 15's texts.
    let refusal = |attempt: &Attempt<'_>| rules.find(attempt, &|_| false).refusal(attempt);
    assert_eq!(refusal(&encrypted), None);
    assert_eq!(
        refusal(&plain).unwrap(),
        "pg_hba.conf rejects connection for host \"192.0.2.1\", user \"ann\", database \"shop\", no encryption"
    );
    assert_eq!(
        refusal(&local).unwrap(),
        "no pg_hba.conf entry for host \"[local]\", user \"ann\", database \"shop\", no encryption"
    );
}

#[test]
fn addresses() {
    for (rule, address, expected) in [
        ("10.1.2.3/8", "10.200.0.1", true),
        ("10.1.2.3/8", "11.1.2.3", false),
        ("10.1.2.3 255.0.255.0", "10.9.2.9", true),
        ("10.1.2.3 255.0.255.0", "10.9.3.9", false),
        ("0.0.0.0/0", "203.0.113.9", true),
        ("0.0.0.0/0", "::1", false),
        ("::/0", "2001:db8::1", true),
        ("::/0", "203.0.113.9", false),
        ("2001:db8::/33", "2001:db8:7fff::1", true),
        ("2001:db8::/33", "2001:db8:8000::1", false),
        ("all", "203.0.113.9", true),
        ("all", "2001:db8::1", true),
        // An IPv4 client at an IPv6 socket.
        ("10.0.0.0/8", "::ffff:10.1.1.1", true),
        ("::ffff:10.0.0.0/104", "::ffff:10.1.1.1", false),
        ("::/0", "::ffff:10.1.1.1", false),
    ] {
        let rules = rules(&format!("host all all {rule} trust"));
        let attempt = attempt("ann", "shop", Some(address));
        assert_eq!(decides(&rules, &attempt) == 1, expected, "{rule} {address}");
    }
}

#[test]
fn samehost_and_samenet_are_this_hosts() {
    let network = |address: &str, mask: &str| Network {
        address: address.parse().unwrap(),
        mask: mask.parse().unwrap(),
    };
    let networks = [
        network("192.0.2.7", "255.255.255.0"),
        network("2001:db8::7", "ffff:ffff:ffff:ffff::"),
        network("198.51.100.1", "0.0.0.0"),
    ];
    for (keyword, address, expected) in [
        ("samehost", "192.0.2.7", true),
        ("samehost", "192.0.2.8", false),
        ("samenet", "192.0.2.8", true),
        ("samenet", "::ffff:192.0.2.8", true),
        ("samenet", "192.0.3.8", false),
        ("samenet", "2001:db8::8", true),
        ("samenet", "2001:db8:0:1::8", false),
        // A point-to-point interface without a netmask isn't everywhere.
        ("samenet", "198.51.100.1", true),
        ("samenet", "198.51.100.2", false),
    ] {
        let rules = rules(&format!("host all all {keyword} trust"));
        assert!(rules.need_networks());
        let attempt = Attempt { networks: &networks, ..attempt("ann", "shop", Some(address)) };
        assert_eq!(decides(&rules, &attempt) == 1, expected, "{keyword} {address}");
    }
    assert!(!rules("host all all all trust").need_networks());
}

/// As PostgreSQL's `hostname_match`.
#[test]
fn hosts_are_told_by_their_names() {
    for (rule, name, expected) in [
        ("db.example.org", Some("db.example.org"), true),
        ("db.example.org", Some("DB.Example.org"), true),
        ("db.example.org", Some("x.db.example.org"), false),
        ("db.example.org", None, false),
        (".example.org", Some("db.example.org"), true),
        (".example.org", Some("a.b.EXAMPLE.org"), true),
        (".example.org", Some("example.org"), false),
        (".example.org", Some("badexample.org"), false),
        (".example.org", Some(".org"), false),
    ] {
        let rules = rules(&format!("host all all {rule} trust"));
        let attempt = Attempt { host_name: name, ..attempt("ann", "shop", Some("2001:db8::1")) };
        assert_eq!(decides(&rules, &attempt) == 1, expected, "{rule} {name:?}");
    }
}

/// Names are looked up only if they can decide.
#[test]
fn a_hosts_name_is_needed_only_where_it_decides() {
    let rules = rules(
        "hostssl all all a.example trust\nhost shop eve a.example reject\nhost all bob all trust\n\
         host all all 192.0.2.1/32 trust\nhost all all .example trust\n",
    );
    for (user, database, address, expected) in [
        ("eve", "shop", Some("192.0.2.1"), true),
        ("eve", "other", Some("192.0.2.1"), false),
        ("bob", "shop", Some("192.0.2.2"), false),
        ("ann", "shop", Some("192.0.2.2"), true),
        ("ann", "shop", None, false),
    ] {
        let attempt = attempt(user, database, address);
        assert_eq!(rules.need_host_name(&attempt, &|_| false), expected, "{user} {address:?}");
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = rules("local all eve reject\nlocal shop all md5\nlocal all all peer map=m\n");
    for (user, database, expected) in [("eve", "shop", 1), ("ann", "shop", 2), ("ann", "other", 3)]
    {
        assert_eq!(decides(&rules, &attempt(user, database, None)), expected);
    }
    let rule = rules.iter().nth(2).unwrap();
    assert_eq!((rule.method, rule.map.as_deref()), (Method::Peer, Some("m")));
}

#[test]
fn groups_are_all_that_find_may_ask_for() {
    let text = "local all +a,\"+no\" md5\nlocal samerole +b,+a md5\nlocal x +c md5";
    let mixed = rules(text);
    assert_eq!(mixed.groups("shop").into_iter().collect::<Vec<_>>(), ["a", "b", "c", "shop"]);
    assert_eq!(rules("local all +a md5").groups("shop").into_iter().collect::<Vec<_>>(), ["a"]);
    let asked = std::cell::RefCell::new(BTreeSet::new());
    let note = |group: &str| {
        asked.borrow_mut().insert(group.to_owned());
        false
    };
    assert!(matches!(mixed.find(&attempt("ann", "shop", None), &note), Found::Nothing));
    assert!(asked.borrow().iter().all(|group| mixed.groups("shop").contains(group.as_str())));
}

#[test]
fn our_own_rules() {
    let (everyone, loopback) = (Rules::trust_everyone(), Rules::trust_loopback());
    for (address, on_loopback) in [
        (None, true),
        (Some("127.0.0.1"), true),
        (Some("::1"), true),
        (Some("::ffff:127.0.0.1"), true),
        (Some("192.0.2.1"), false),
        (Some("2001:db8::1"), false),
    ] {
        let attempt = attempt("ann", "shop", address);
        assert!(matches!(everyone.find(&attempt, &|_| false), Found::Allowed(_)));
        assert_eq!(decides(&loopback, &attempt) > 0, on_loopback, "{address:?}");
    }
}

#[test]
fn all_errors_are_told_with_their_places() {
    let found =
        errors("# comment\nlocal all all trust\nhots all\n\nhost all all \\\n 192.0.2 md5\n");
    let told: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "line 3 of configuration file \"pg_hba.conf\": invalid connection type \"hots\"; use local, host, \
             hostssl or hostnossl",
            "line 5 of configuration file \"pg_hba.conf\": invalid IP address \"192.0.2\"; use an address, as \
             in 192.0.2.0/24, or the name of a host",
        ]
    );
    let told = errors("# nothing\n")[0].to_string();
    assert_eq!(
        told,
        "configuration file \"pg_hba.conf\": it contains no entries; without any, nobody may connect"
    );
}

#[test]
fn files_are_included() {
    let rules = with(&[
        (
            "/etc/pg_hba.conf",
            "local @users/dbs,extra @\"users/a b\" trust\ninclude more.conf\n\
             include_if_exists missing.conf\ninclude_dir d\n\"include_if_exists\" more.conf\n",
        ),
        ("/etc/users/dbs", "one two # comment\nthree,\"all\"\n@nested\n"),
        ("/etc/users/nested", "four"),
        ("/etc/users/a b", "ann"),
        ("/etc/more.conf", "local more all md5"),
        ("/etc/d/b.conf", "local b all md5"),
        ("/etc/d/a.conf", "local a all md5"),
        ("/etc/d/.hidden.conf", "wrong"),
        ("/etc/d/c.conf~", "wrong"),
    ])
    .unwrap();
    let shown: Vec<_> = rules.iter().map(shown).collect();
    assert_eq!(
        shown,
        [
            "local one,two,three,all,four,extra ann trust",
            "local more all md5",
            "local a all md5",
            "local b all md5",
            "local more all md5",
        ]
    );
    assert_eq!(&*rules.iter().nth(2).unwrap().file, Path::new("/etc/d/a.conf"));
    // A quoted name stays one in the file, too.
    assert_eq!(decides(&rules, &attempt("ann", "other", None)), 0);
}

#[test]
fn errors_of_included_files_have_their_places() {
    let found = with(&[
        (
            "/etc/pg_hba.conf",
            "include a.conf\nlocal @missing all trust\nlocal all @empty trust\ninclude none\n",
        ),
        ("/etc/a.conf", "\nhots\ninclude_dir nowhere\n"),
        ("/etc/empty", "# nobody\n"),
    ])
    .unwrap_err();
    let places: Vec<_> = found
        .0
        .iter()
        .map(|error| (error.file.to_str().unwrap(), error.line.unwrap(), error.what.as_str()))
        .collect();
    assert_eq!(
        places,
        [
            ("/etc/a.conf", 2, "invalid connection type \"hots\""),
            ("/etc/a.conf", 3, "could not open directory \"/etc/nowhere\": entity not found"),
            ("/etc/pg_hba.conf", 2, "could not open file \"/etc/missing\": entity not found"),
            ("/etc/pg_hba.conf", 3, "there is nothing in file \"empty\""),
            ("/etc/pg_hba.conf", 4, "could not open file \"/etc/none\": entity not found"),
        ]
    );
}

#[test]
fn files_that_include_themselves_end() {
    for text in ["include pg_hba.conf\n", "local @pg_hba.conf all trust\n"] {
        let found = with(&[("/etc/pg_hba.conf", text)]).unwrap_err();
        assert!(found.0[0].what.ends_with("maximum nesting depth exceeded"), "{found}");
    }
    // Each level has ten more of them.
    let found = with(&[("/etc/pg_hba.conf", &"include pg_hba.conf\n".repeat(10))]).unwrap_err();
    assert!(found.0.iter().any(|error| error.what.ends_with("too many files")), "{found}");
    let large = "#".repeat(BYTES_MAX / 2);
    let text = "include large\n".repeat(3);
    let found = with(&[("/etc/pg_hba.conf", &text), ("/etc/large", &large)]).unwrap_err();
    assert!(found.0[0].what.ends_with("the files are too large"), "{found}");
}

#[test]
fn only_text_is_read() {
    struct Bytes(&'static [u8]);
    impl Files for Bytes {
        fn read(&self, _: &Path) -> std::io::Result<Vec<u8>> {
            Ok(self.0.to_vec())
        }
        fn list(&self, _: &Path) -> std::io::Result<Vec<String>> {
            Ok(Vec::new())
        }
    }
    for bytes in [b"local all all trust\xFF".as_slice(), b"local all all\0 trust"] {
        let found = Rules::read(Path::new("f"), &Bytes(bytes)).unwrap_err().0;
        assert_eq!((found.len(), found[0].line), (1, None));
    }
}

/// Words that lines are made of, and what may stand between them.
fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "local",
        "host",
        "hostssl",
        "all",
        "samerole",
        "+a",
        "/^(x",
        "\"",
        "\"\"",
        "\"a b\"",
        "@f",
        "include",
        "include_dir",
        "10.0.0.0/8",
        "::1",
        "ffff::",
        "trust",
        "cert",
        "map=x",
        "=",
        "\\",
        "#",
        "é",
    ]);
    let between = prop::sample::select(vec!["", " ", ",", "\t", "\n", "\r\n", "\\\n", ", "]);
    prop::collection::vec((word, between), 0..40)
        .prop_map(|parts| parts.into_iter().flat_map(|(word, between)| [word, between]).collect())
}

proptest! {
    #[test]
    fn any_text_is_read(text in prop_oneof![words(), any::<String>()], included in words()) {
        let files = [("/etc/pg_hba.conf", text.as_str()), ("/etc/f", &included)];
        match with(&files) {
            Ok(rules) => {
                let _ = rules.find(&attempt("a", "b", Some("10.0.0.1")), &|_| true);
            }
            Err(errors) => prop_assert!(!errors.0.is_empty() && !errors.to_string().is_empty()),
        }
    }

    /// A name in quotes is that name, whatever is in it.
    #[test]
    fn quoted_names_are_themselves(name in "[^/\n\r\0][^\n\r\0]{0,20}", other in "[a-z]{1,5}") {
        prop_assume!(name != other);
        let quoted = name.replace('"', "\"\"");
        let rules = rules(&format!("local \"{quoted}\" \"{quoted}\" trust"));
        prop_assert_eq!(decides(&rules, &attempt(&name, &name, None)), 1);
        prop_assert_eq!(decides(&rules, &attempt(&other, &name, None)), 0);
        prop_assert_eq!(decides(&rules, &attempt(&name, &other, None)), 0);
    }
}
