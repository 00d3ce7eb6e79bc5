//! What a user-defined function may change in the session that runs it. This is determined by the words of its
//! body, and of all functions, views and so on that these words could name.
//!
//! No catalog view lists custom settings (names with a dot), so their names are searched for in code. A session
//! that sets one whose name can't be found keeps its server connection. All other state can be queried
//! afterwards, so a word that is mistaken for a name costs only one query. One case is not detected: a command
//! whose beginning is in the code and whose rest is computed at run time. For this case, the connection's
//! settings are reset before another session gets it ([`SessionEffect::unseen_code`]).

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::sync::Arc;

use crate::builtins::Builtin;
use crate::catalog::Map;
use crate::catalog_builder::{Builder, Function, Volatility};
use crate::facts::SessionEffect;
use crate::lexer::{Token, TokenKind, has_escaped_names, tokens, without_words, words};
use crate::routines::{first_word, is_harmless};

/// What the code in a catalog may leave in a session.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    /// By the name of a function or relation, or its first word.
    by_name: Map<String, Arc<SessionEffect>>,
    /// By the name of an operator, and names of signs and digits only.
    symbols: Vec<(Box<str>, Arc<SessionEffect>)>,
    /// Of casts, which no text shows.
    casts: SessionEffect,
    /// Of event triggers.
    event_triggers: SessionEffect,
    /// What may depend on when the transaction began.
    clocks: Clocks,
    /// The settings with a dot in their names that code gives a value or asks for.
    pub custom_settings: Vec<Box<str>>,
}

/// Whose code may depend on when the transaction began: `now()` and the like.
#[derive(Debug, Default)]
struct Clocks {
    names: BTreeSet<String>,
    symbols: Vec<Box<str>>,
    has_casts: bool,
}

impl Leaves {
    /// Whether what a text runs may depend on when the transaction began, by its words.
    pub fn reads_clock(&self, text: &str) -> bool {
        let is_clock = |word: &str| is_clock(word) || self.clocks.names.contains(word);
        self.clocks.has_casts
            || has_escaped_names(text)
            || self.clocks.symbols.iter().any(|symbol| text.contains(&**symbol))
            || words(text).any(|word| is_clock(&word.text))
    }

    /// What a function may leave, or what runs where a relation is read or written.
    pub fn of_name(&self, name: &str) -> Option<&SessionEffect> {
        self.by_name.get(&first_word(name)).map(|effect| &**effect)
    }

    /// What an operator of a user may leave.
    pub fn of_operator(&self, name: &str) -> Option<&SessionEffect> {
        self.symbols.iter().find(|(known, _)| **known == *name).map(|(_, effect)| &**effect)
    }

    /// What casts of users may leave.
    pub fn of_casts(&self) -> &SessionEffect {
        &self.casts
    }

    /// What event triggers may leave.
    pub fn of_event_triggers(&self) -> &SessionEffect {
        &self.event_triggers
    }

    /// What running a block of code may leave.
    pub fn of_block(&self, text: &str) -> SessionEffect {
        let mut effect = of_body(text);
        effect.merge(&self.of_names(text));
        effect
    }

    /// What running a command may leave.
    pub fn of_command(&self, text: &str) -> SessionEffect {
        let mut effect = of_words(text);
        effect.merge(&self.of_names(text));
        effect
    }

    /// What the code may leave that a text names.
    fn of_names(&self, text: &str) -> SessionEffect {
        let mut effect = self.casts.clone();
        let mut met = BTreeSet::new();
        for word in words(text) {
            if defines(&word.text) && met.insert(String::new()) {
                effect.merge(&self.event_triggers);
            }
            if let Some(leaves) = self.by_name.get(&word.text)
                && met.insert(word.text)
            {
                effect.merge(leaves);
            }
        }
        for (_, leaves) in self.symbols.iter().filter(|(name, _)| text.contains(&**name)) {
            effect.merge(leaves);
        }
        effect
    }
}

/// The code of one name.
#[derive(Default)]
struct Named {
    own: SessionEffect,
    reads_clock: bool,
    /// The names whose code may run its code.
    mentioned_by: BTreeSet<usize>,
}

/// All names of a catalog that stand for code, and who mentions whom.
struct Graph {
    indices: Map<String, usize>,
    names: Vec<Named>,
    /// Users' operators, with the functions that they mean; and names of signs and digits only.
    symbols: Vec<(Box<str>, usize)>,
    /// Functions of casts: any code may run them.
    casts: BTreeSet<usize>,
    event_triggers: BTreeSet<usize>,
    /// Asked for whatever code ran: no name of code needs its own.
    custom_settings: BTreeSet<Box<str>>,
}

/// What the builder's code may leave.
pub(crate) fn leaves(builder: &Builder) -> Leaves {
    let mut graph = Graph::of(builder);
    for function in &builder.functions {
        let own = match of_language(function) {
            Some(effect) => effect,
            None => of_body(&function.body),
        };
        graph.code(&function.name, &function.body, own);
    }
    for relation in builder.relations.values() {
        let body = builder.runs_with(relation);
        graph.code(&relation.name, &body, of_body(&body));
    }
    for (name, checks) in &builder.domains {
        graph.code(name, checks, of_body(checks));
    }
    graph.spread();
    graph.leaves()
}

impl Graph {
    fn of(builder: &Builder) -> Graph {
        let mut graph = Graph {
            indices: Map::default(),
            names: Vec::new(),
            symbols: Vec::new(),
            casts: BTreeSet::new(),
            event_triggers: BTreeSet::new(),
            custom_settings: BTreeSet::new(),
        };
        let functions = builder.functions.iter().map(|function| &function.name);
        let relations = builder.relations.values().map(|relation| &relation.name);
        let domains = builder.domains.iter().map(|(name, _)| name);
        for name in functions.chain(relations).chain(domains) {
            let index = graph.index(name);
            if let Some(symbol) = without_words(name) {
                graph.symbols.push((symbol, index));
            }
        }
        for operator in &builder.operators {
            let function = match operator.is_builtin {
                true => graph.builtin(&operator.function, builder),
                false => graph.index(&operator.function),
            };
            graph.symbols.push((operator.name.clone(), function));
        }
        for cast in builder.casts.iter().filter(|cast| !cast.is_builtin) {
            let function = graph.index(&cast.function);
            graph.casts.insert(function);
        }
        for function in builder.functions.iter().filter(|function| function.is_event_trigger) {
            let function = graph.index(&function.name);
            graph.event_triggers.insert(function);
        }
        graph
    }

    /// A function of `pg_catalog`: an operator stands for it, and its name doesn't count.
    fn builtin(&mut self, name: &str, builder: &Builder) -> usize {
        let keeps = matches!(
            builder.builtins().get(name),
            Some(Builtin::SessionLock | Builtin::SetSeed | Builtin::SetConfig | Builtin::RunsText)
        );
        let own = if keeps { SessionEffect::anything() } else { SessionEffect::default() };
        self.names.push(Named { own, reads_clock: is_clock(name), ..Named::default() });
        self.names.len() - 1
    }

    fn index(&mut self, name: &str) -> usize {
        let next = self.names.len();
        let index = *self.indices.entry(first_word(name)).or_insert(next);
        if index == next {
            self.names.push(Named::default());
        }
        index
    }

    /// Adds code under a name.
    fn code(&mut self, name: &str, body: &str, mut own: SessionEffect) {
        self.custom_settings.extend(std::mem::take(&mut own.custom_settings));
        let index = self.index(name);
        self.names[index].own.merge(&own);
        self.names[index].reads_clock |= words(body).any(|word| is_clock(&word.text));
        let mut mentions = if body.is_empty() { BTreeSet::new() } else { self.casts.clone() };
        for word in words(body) {
            mentions.extend(self.indices.get(&word.text));
            if defines(&word.text) {
                mentions.extend(&self.event_triggers);
            }
        }
        let used = self.symbols.iter().filter(|(symbol, _)| body.contains(&**symbol));
        mentions.extend(used.map(|(_, function)| function));
        for other in mentions {
            self.names[other].mentioned_by.insert(index);
        }
    }

    /// Gives what code leaves to all that may run it, in circles too: an effect only grows, up to all.
    fn spread(&mut self) {
        let leaves = |named: &Named| !named.own.is_none();
        let mut next: Vec<usize> =
            (0..self.names.len()).filter(|&n| leaves(&self.names[n])).collect();
        while let Some(index) = next.pop() {
            let own = self.names[index].own.clone();
            for other in self.names[index].mentioned_by.clone() {
                let mut merged = self.names[other].own.clone();
                merged.merge(&own);
                if merged != self.names[other].own {
                    self.names[other].own = merged;
                    next.push(other);
                }
            }
        }
    }

    /// Gives what depends on the clock to all that may run it.
    fn clocks(&mut self) -> Clocks {
        let mut next: Vec<usize> =
            (0..self.names.len()).filter(|&n| self.names[n].reads_clock).collect();
        while let Some(index) = next.pop() {
            for other in self.names[index].mentioned_by.clone() {
                if !std::mem::replace(&mut self.names[other].reads_clock, true) {
                    next.push(other);
                }
            }
        }
        let reads_clock = |index: &usize| self.names[*index].reads_clock;
        let names = self.indices.iter().filter(|(_, index)| reads_clock(index));
        let symbols = self.symbols.iter().filter(|(_, index)| reads_clock(index));
        Clocks {
            names: names.map(|(name, _)| name.clone()).collect(),
            symbols: symbols.map(|(name, _)| name.clone()).collect(),
            has_casts: self.casts.iter().any(reads_clock),
        }
    }

    fn leaves(mut self) -> Leaves {
        let clocks = self.clocks();
        let shared: Vec<_> = self.names.into_iter().map(|named| Arc::new(named.own)).collect();
        let all = |indices: &BTreeSet<usize>| {
            let mut effect = SessionEffect::default();
            indices.iter().for_each(|&index| effect.merge(&shared[index]));
            effect
        };
        let symbols = self.symbols.into_iter().map(|(name, n)| (name, shared[n].clone()));
        Leaves {
            symbols: symbols.filter(|(_, effect)| !effect.is_none()).collect(),
            casts: all(&self.casts),
            event_triggers: all(&self.event_triggers),
            clocks,
            custom_settings: self.custom_settings.into_iter().collect(),
            by_name: self
                .indices
                .into_iter()
                .filter(|(_, index)| !shared[*index].is_none())
                .map(|(name, index)| (name, shared[index].clone()))
                .collect(),
        }
    }
}

/// What a function may leave whose body says nothing: compiled ones may keep anything (`set_limit` of
/// pg_trgm, `dblink_connect`), and so may those in languages with variables of the session's own.
fn of_language(function: &Function) -> Option<SessionEffect> {
    // Compiled triggers (moddatetime, lo_manage and the like) change rows, and keep nothing.
    let is_trigger = function.compiled && (function.is_trigger || function.is_event_trigger);
    let is_volatile = function.volatility == Volatility::Volatile;
    let may_keep = is_volatile && !is_trigger && !is_harmless(&function.name);
    match function {
        Function { understood: true, .. } => None,
        _ if may_keep => Some(SessionEffect::of_compiled_code()),
        Function { compiled: true, .. } => Some(SessionEffect::default()),
        _ => None,
    }
}

/// Whether a text that runs no code of users may ask for the time, by its words.
pub(crate) fn reads_time(text: &str) -> bool {
    let is_time = |word: &str| is_clock(word) && !word.starts_with("current_schema");
    has_escaped_names(text) || words(text).any(|word| is_time(&word.text))
}

/// Whether a word may mean something that depends on when the transaction began: a function, or a date or time by
/// that name. (Or what may make a temporary schema in it.)
fn is_clock(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "age",
        "current_date",
        "current_schema",
        "current_schemas",
        "current_time",
        "current_timestamp",
        "localtime",
        "localtimestamp",
        "now",
        "timetz",
        "today",
        "tomorrow",
        "transaction_timestamp",
        "yesterday",
    ];
    WORDS.binary_search(&word).is_ok()
}

/// Whether a word may begin a command for which event triggers fire.
fn defines(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "alter", "comment", "create", "drop", "grant", "import", "into", "reassign", "refresh",
        "reindex", "revoke", "security",
    ];
    WORDS.binary_search(&word).is_ok()
}

/// What a body of code may leave, by its words.
fn of_body(body: &str) -> SessionEffect {
    let mut effect = of_words(body);
    for word in words(body).filter(|word| word.text == "execute") {
        effect.merge(&of_execute(&body[word.end..]));
    }
    effect
}

/// What commands may leave, by their words, also those in strings and comments, because of dynamic SQL.
fn of_words(text: &str) -> SessionEffect {
    if has_escaped_names(text) {
        return SessionEffect::anything();
    }
    let mut effect = SessionEffect::default();
    for word in words(text) {
        let behind = &text[word.end..];
        match &*word.text {
            "set" if word.opens_statement => set(behind, &mut effect),
            // Behind a view's or a rule's call its name comes again, as that of the column.
            "set_config" if !matches!(word.next, Some(b'(' | b'\'')) => {}
            "set_config" => match first_argument(behind) {
                Some(name) => named(&name, &mut effect),
                None => (effect.settings, effect.any_setting) = (true, true),
            },
            // Whoever asks for one may tell what a name that wasn't seen is.
            "current_setting" => {
                let name = first_argument(behind).filter(|name| name.contains('.'));
                effect.custom_settings.extend(name.map(String::into_boxed_str));
            }
            "reset" | "discard" | "setseed" => settings(&mut effect),
            "temp" | "temporary" | "pg_temp" => effect.temp = true,
            "listen" | "unlisten" => effect.listen = true,
            "prepare" | "deallocate" => effect.prepared = true,
            "load" => effect.load = true,
            "hold" => effect.cursor_hold = true,
            name if name.contains("_advisory_") && !name.contains("_xact_") => {
                effect.advisory = true;
            }
            _ => {}
        }
    }
    effect.custom_settings.sort_unstable();
    effect.custom_settings.dedup();
    effect
}

fn settings(effect: &mut SessionEffect) {
    effect.settings = true;
    effect.local_settings = true;
    effect.search_path = true;
    effect.role = true;
}

fn named(name: &str, effect: &mut SessionEffect) {
    settings(effect);
    if name.contains('.') {
        effect.custom_settings.push(name.into());
    }
}

/// SET: `text` comes after it.
fn set(text: &str, effect: &mut SessionEffect) {
    const OTHERS: &[&str] = &[
        "authorization",
        "catalog",
        "characteristics",
        "constraints",
        "names",
        "role",
        "schema",
        "seed",
        "session",
        "time",
        "transaction",
        "xml",
    ];
    settings(effect);
    let mut rest = text.trim_start();
    for scope in ["session", "local"] {
        let behind = rest.get(scope.len()..).filter(|_| {
            rest.get(..scope.len()).is_some_and(|word| word.eq_ignore_ascii_case(scope))
        });
        rest = behind
            .filter(|text| text.starts_with(char::is_whitespace))
            .unwrap_or(rest)
            .trim_start();
    }
    let end = rest.find(|c: char| !(is_name(c) || matches!(c, '.' | '"'))).unwrap_or(rest.len());
    let name = rest[..end].replace('"', "").to_lowercase();
    let behind = rest[end..].trim_start();
    let is_set =
        behind.starts_with('=') || behind.get(..2).is_some_and(|to| to.eq_ignore_ascii_case("to"));
    if OTHERS.binary_search(&&*name).is_ok() {
        return;
    }
    let is_whole = is_set && !name.is_empty() && name.split('.').all(|part| !part.is_empty());
    if is_whole { named(&name, effect) } else { effect.any_setting = true }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

/// The string that is the first argument of a call, in lower case, if it has no quotes in itself;
/// perhaps a string in a string.
pub(crate) fn first_argument(text: &str) -> Option<String> {
    let inside = text.trim_start_matches(['"', ' ', '\t', '\n', '\r']).strip_prefix('(')?;
    let string = inside.trim_start().strip_prefix('\'')?.trim_start_matches('\'');
    let (name, behind) = string.split_once('\'')?;
    let is_alone = behind.trim_start_matches('\'').trim_start().starts_with([',', ')', ':']);
    let is_plain = name.chars().all(|c| is_name(c) || c == '.');
    (is_alone && is_plain).then(|| name.to_lowercase())
}

/// EXECUTE of a block: `text` comes after it. Words in its strings are seen elsewhere.
fn of_execute(text: &str) -> SessionEffect {
    let mut parts = tokens(text).filter(|token| token.kind != TokenKind::Space).peekable();
    let mut first = parts.next();
    // In CREATE TRIGGER.
    if first.is_none_or(|token| is_one_of(&token, &["function", "procedure"])) {
        return SessionEffect::default();
    }
    let is_format = first.is_some_and(|token| is_one_of(&token, &["format"]));
    if is_format {
        parts.next_if(|token| token.text == "(");
        first = parts.next();
    }
    let Some(first) = first.filter(|token| token.kind == TokenKind::String) else {
        return SessionEffect::anything();
    };
    let kind = words(first.text).next().map(|word| word.text).unwrap_or_default();
    let is_seen = if is_format {
        let calls = RUNS_EXPRESSIONS.contains(&&*kind) && inserts(first.text, 'I', true);
        !inserts(first.text, 's', false)
            && !calls
            && skip_arguments(&mut parts)
            && ends(parts.peek())
    } else {
        is_quoted(&mut parts)
    };
    if is_seen {
        SessionEffect::default()
    } else if CHANGES.contains(&&*kind) {
        SessionEffect { unseen_code: true, ..SessionEffect::default() }
    } else {
        SessionEffect { any_setting: false, ..SessionEffect::anything() }
    }
}

/// Commands that can't set anything but by what their expressions run.
const CHANGES: &[&str] =
    &["analyze", "delete", "insert", "lock", "merge", "notify", "truncate", "update", "vacuum"];
/// Commands that call what an identifier in front of a parenthesis names.
const RUNS_EXPRESSIONS: &[&str] = &["call", "perform", "select", "values", "with"];

fn is_one_of(token: &Token<'_>, words: &[&str]) -> bool {
    words.iter().any(|word| token.text.eq_ignore_ascii_case(word))
}

/// Whether a command ends in front of this token.
fn ends(token: Option<&Token<'_>>) -> bool {
    token.is_none_or(|token| is_one_of(token, &[";", "into", "using", "loop"]))
}

/// Skips to the end of a call's arguments, whether there is one.
fn skip_arguments<'t>(parts: &mut impl Iterator<Item = Token<'t>>) -> bool {
    let mut depth = 1;
    parts.any(|token| {
        depth += i32::from(token.text == "(") - i32::from(token.text == ")");
        depth == 0
    })
}

/// Whether strings follow, and what PostgreSQL's own functions put in quotes, to the command's end.
fn is_quoted<'t>(parts: &mut Peekable<impl Iterator<Item = Token<'t>>>) -> bool {
    while !ends(parts.peek()) {
        let is_joined = parts.next().is_some_and(|token| token.text == "|")
            && parts.next().is_some_and(|token| token.text == "|");
        let is_known = is_joined
            && parts.next().is_some_and(|part| match part.kind {
                TokenKind::String => true,
                _ => {
                    is_one_of(&part, &["quote_ident", "quote_literal", "quote_nullable"])
                        && parts.next().is_some_and(|token| token.text == "(")
                        && skip_arguments(parts)
                }
            });
        if !is_known {
            return false;
        }
    }
    true
}

/// Whether a format puts in something of a kind (`%s`, `%I`); `called`: in front of a parenthesis.
fn inserts(format: &str, kind: char, called: bool) -> bool {
    format.split('%').skip(1).any(|part| {
        let part =
            part.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '$' | '-' | '*'));
        part.strip_prefix(kind).is_some_and(|rest| !called || rest.trim_start().starts_with('('))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog_builder::FunctionRow;

    #[test]
    fn circles_of_code_end() {
        let mut builder = Builder::default();
        for (name, body) in [
            ("a", "BEGIN CREATE TABLE t (); PERFORM b(); SET app.a = 1; END"),
            ("b", "BEGIN PERFORM a(); LISTEN x; PERFORM set_config('app.b', '1', false); END"),
            ("c", "SELECT 1"),
        ] {
            builder.function(FunctionRow {
                schema: "public",
                name,
                volatility: Volatility::Volatile,
                language: "plpgsql",
                takes_row: false,
                returns: if name == "a" { "event_trigger" } else { "void" },
                body,
                types: "",
            });
        }
        for (name, returns) in [("compiled", "void"), ("compiled_trigger", "trigger")] {
            builder.function(FunctionRow {
                schema: "public",
                name,
                volatility: Volatility::Volatile,
                language: "c",
                takes_row: false,
                returns,
                body: "",
                types: "",
            });
        }
        let leaves = leaves(&builder);
        assert!(leaves.of_name("compiled").expect("anything").load);
        assert_eq!(leaves.of_name("compiled_trigger"), None);
        for name in ["a", "b"] {
            let effect = leaves.of_name(name).expect("something");
            assert!(effect.settings && effect.listen, "{name}: {effect:?}");
        }
        assert_eq!(leaves.of_name("c"), None);
        assert_eq!(*leaves.custom_settings, ["app.a".into(), "app.b".into()]);
    }

    #[test]
    fn names_of_settings_are_seen() {
        let names = |body: &str| {
            let effect = of_body(body);
            assert!(effect.settings && !effect.any_setting && !effect.unseen_code, "{body}");
            effect.custom_settings.join(" ")
        };
        assert_eq!(names("SELECT set_config('App.Tenant', $1, false)"), "app.tenant");
        assert_eq!(names("BEGIN PERFORM pg_catalog.set_config ( 'a.b' , x, true); END"), "a.b");
        assert_eq!(names("SELECT set_config('a.b'::text, $1, false)"), "a.b");
        assert_eq!(names("BEGIN SET app.x = 'a'; SET LOCAL b.c TO 1; END"), "app.x b.c");
        assert_eq!(names("BEGIN SET SESSION \"app\".y.z = 'a'; END"), "app.y.z");
        assert_eq!(names("BEGIN EXECUTE format('SET app.x = %L', v); END"), "app.x");
        assert_eq!(names("BEGIN EXECUTE 'SET app.x TO ' || quote_literal(v); END"), "app.x");
        assert_eq!(
            names("BEGIN EXECUTE 'SELECT set_config(''a.b'', $1, false)' USING v; END"),
            "a.b"
        );
        assert_eq!(names("BEGIN SET work_mem = '1MB'; SET TIME ZONE 'UTC'; SET ROLE x; END"), "");
        assert_eq!(names("SELECT set_config('work_mem', '1MB', false)"), "");
        assert_eq!(names("SELECT set_config('a.b'::text, new.v, false) AS set_config"), "a.b");
    }

    #[test]
    fn names_that_are_not_seen_may_be_any() {
        for body in [
            "SELECT set_config($1, $2, false)",
            "SELECT set_config('app.' || k, v, false)",
            "SELECT set_config(name, 'app.x', false)",
            "BEGIN EXECUTE format('SELECT %s(%L, 1, false)', 'set_config', n); END",
            "BEGIN EXECUTE 'SET ' || quote_ident(n) || ' = 1'; END",
            "BEGIN EXECUTE 'SET app.' || n || ' = 1'; END",
            "BEGIN EXECUTE format('SET %I = %L', n, v); END",
            "BEGIN EXECUTE format('SET app.%I = %L', n, v); END",
            "BEGIN EXECUTE command; END",
            "BEGIN EXECUTE format(command, 1); END",
            "BEGIN EXECUTE replace('SELECT 1', 'SELECT 1', x); END",
        ] {
            assert!(of_body(body).any_setting, "{body}");
        }
    }

    #[test]
    fn parts_of_commands_are_seen_or_told() {
        let seen = |body: &str| of_body(body) == SessionEffect::default();
        assert!(seen("BEGIN EXECUTE 'INSERT INTO t VALUES ($1)' USING NEW; END"));
        assert!(seen("BEGIN EXECUTE 'SELECT 1 FROM ' || quote_ident(t) || ' LIMIT 1' INTO x; END"));
        assert!(seen("BEGIN EXECUTE format('SELECT max(x) FROM %I.%I', s, t) INTO x; END"));
        assert!(seen("BEGIN EXECUTE format('INSERT INTO %I(a) VALUES (%L)', t, f(x)); END"));
        assert!(seen("FOR r IN EXECUTE 'SELECT 1' LOOP x := 1; END LOOP"));
        assert!(seen("CREATE TRIGGER t BEFORE INSERT ON t EXECUTE FUNCTION f()"));
        for body in [
            "BEGIN EXECUTE 'INSERT INTO ' || t || ' VALUES (1)'; END",
            "BEGIN EXECUTE format('DELETE FROM %s', t); END",
        ] {
            let effect = of_body(body);
            assert!(effect.unseen_code && !effect.settings && !effect.any_setting, "{body}");
        }
        for body in [
            "BEGIN EXECUTE 'SELECT ' || e INTO x; END",
            "BEGIN EXECUTE format('SELECT %I(1)', f) INTO x; END",
            "BEGIN EXECUTE format('SELECT %1$s', e) INTO x; END",
        ] {
            let effect = of_body(body);
            assert!(effect.unseen_code && effect.settings && !effect.any_setting, "{body}");
        }
    }
}
