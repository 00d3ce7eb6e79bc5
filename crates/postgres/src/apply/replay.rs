//! The commands that replicas execute for a note. Pure.
//!
//! A note contains a text in which the command occurs: a client's query, which may have several statements, or
//! PostgreSQL's description of the call stack, in which a quoted name can look like the end of the text. So
//! there may be several interpretations (*readings*). They are returned here with the most likely first. The
//! applier uses the one after which the objects are as the primary described them.

use std::borrow::Cow;
use std::ops::Range;

use ahash::{AHashMap, AHashSet};
use hihooi_replication::note::{Command, Drop, Object};
use hihooi_sql::ddl_text::{
    AddedValue, at_moment, ends, granted_kind, is_cut_alike, pieces, statements,
    with_escape_strings, with_values, without_tablespaces,
};
use hihooi_sql::lexer::{Token, TokenKind, tokens, without_concurrently};

use super::privileges;
use super::statements::{literal, quote};

/// Readings of a note that are tried.
const READINGS_MAX: usize = 20;
/// Places that are tried as the end of a text, in a call stack.
const ENDS_MAX: usize = 100;

/// How the frame below an SQL statement's begins in PostgreSQL's description of the call stack.
const FRAMES: [&str; 3] = ["\nPL/", "\nSQL statement \"", "\nSQL function \""];
/// Words of a statement that its command tag leaves out.
const BESIDE_TAG: [&str; 13] = [
    "OR",
    "REPLACE",
    "TEMP",
    "TEMPORARY",
    "GLOBAL",
    "LOCAL",
    "UNLOGGED",
    "UNIQUE",
    "RECURSIVE",
    "TRUSTED",
    "PROCEDURAL",
    "CONSTRAINT",
    "DEFAULT",
];

/// What is known of texts with several statements.
pub(super) type Memory = AHashMap<String, Known>;

/// The statements of a text, and which of them ran last: those of one text run in order.
pub(super) struct Known {
    statements: Vec<Statement>,
    last: Option<usize>,
}

impl Known {
    fn new(text: &str, ranges: Vec<Range<usize>>) -> Known {
        let statements = ranges.into_iter().map(|range| Statement::new(text, range)).collect();
        Known { statements, last: None }
    }
}

/// A statement of a text.
struct Statement {
    range: Range<usize>,
    /// Its words and signs, in capitals.
    words: Vec<String>,
    /// The names in it.
    names: AHashSet<String>,
}

/// The texts that may be the command's own, as replicas execute them; empty if there is nothing to execute.
pub(super) fn readings(command: &Command, memory: &mut Memory) -> Vec<String> {
    if let Some(create) = &command.create {
        return vec![create.clone()];
    }
    let found = sources(command).into_iter().flat_map(|source| parts(command, &source, memory));
    let mut texts: Vec<String> = Vec::new();
    for text in found.flat_map(|text| at_replicas(command, &text)) {
        if !texts.contains(&text) {
            texts.push(text);
        }
        if texts.len() == READINGS_MAX {
            break;
        }
    }
    texts.extend(command.definition.clone());
    texts
}

/// A text that contains the command.
struct Source<'a> {
    text: Cow<'a, str>,
    /// Which of its statements is the command, from 1. Without, any may be.
    number: Option<usize>,
}

fn sources(command: &Command) -> Vec<Source<'_>> {
    let (texts, number) = texts(command);
    let meanings = texts.into_iter().flat_map(|text| meanings(command, text));
    meanings.map(|text| Source { text, number }).collect()
}

/// The texts that may contain the command, and which of their statements it is, if that is known.
fn texts(command: &Command) -> (Vec<&str>, Option<usize>) {
    let Some(context) = &command.context else {
        return (command.query.as_deref().into_iter().collect(), None);
    };
    if let Some(text) = context.strip_prefix("SQL statement \"") {
        let ends = ends_in_stack(text).take(if command.is_definer { 1 } else { READINGS_MAX });
        return (ends.map(|at| &text[..at]).collect(), None);
    }
    let body = command.body.as_deref().filter(|_| command.statement.is_some());
    (body.into_iter().collect(), command.statement)
}

/// Where a text may end that begins a call stack: at a quote before the next frame or the end, in nothing that is open, as SQL that
/// makes sense. What comes behind the first such place may be the text of somebody with other rights.
fn ends_in_stack(stack: &str) -> impl Iterator<Item = usize> {
    let quotes = stack.match_indices('"').map(|(at, _)| at);
    let is_before_frame = |at: &usize| {
        let rest = &stack[at + 1..];
        rest.is_empty() || FRAMES.iter().any(|frame| rest.starts_with(frame))
    };
    let makes_sense = |at: &usize| {
        let meanings = [true, false].map(|on| with_escape_strings(&stack[..*at], on));
        meanings.iter().any(|text| statements(text).is_some())
    };
    let ends = ends(stack, &quotes.filter(is_before_frame).collect::<Vec<_>>());
    ends.into_iter().take(ENDS_MAX).filter(makes_sense)
}

/// What a text means if `standard_conforming_strings` was the command's when PostgreSQL parsed it, and if it was the
/// other: it may have been changed since. That is considered if strings then have other contents, but end where they did, so that
/// nothing becomes part of a command that was data; or if the text makes no sense otherwise.
fn meanings<'a>(command: &Command, text: &'a str) -> Vec<Cow<'a, str>> {
    let setting = command.settings.get("standard_conforming_strings");
    let is_conforming = setting.is_none_or(|setting| setting != "off");
    let as_parsed = |is_conforming| with_escape_strings(text, is_conforming);
    let (own, other) = (as_parsed(is_conforming), as_parsed(!is_conforming));
    let may_be_other =
        own != other && (is_cut_alike(text) || !command.is_definer && statements(&own).is_none());
    std::iter::once(own).chain(may_be_other.then_some(other)).collect()
}

/// The statements of a text that may be the command, likeliest first.
fn parts(command: &Command, source: &Source<'_>, memory: &mut Memory) -> Vec<String> {
    let text = &*source.text;
    if !memory.contains_key(text) {
        // The server understood what a client sent as a whole.
        let or_pieces = || command.context.is_none().then(|| pieces(text));
        let Some(ranges) = statements(text).or_else(or_pieces) else {
            return Vec::new();
        };
        memory.insert(text.to_owned(), Known::new(text, ranges));
    }
    let Known { statements, last } = memory.get_mut(text).expect("just put there");
    let part = |at: usize| text[statements[at].range.clone()].to_owned();
    let is_fit = |at: &usize| statements.get(*at).is_some_and(|one| one.is_of_tag(&command.tag));
    if let Some(number) = source.number {
        return number.checked_sub(1).filter(is_fit).map(part).into_iter().collect();
    }
    let mut fit: Vec<usize> = (0..statements.len()).filter(is_fit).collect();
    if fit.len() > 1 {
        let names = |at: &usize| statements[*at].names_object(command);
        fit.sort_by_cached_key(|at| (!names(at), last.is_some_and(|last| *at <= last), *at));
        *last = Some(fit[0]);
    }
    fit.into_iter().take(READINGS_MAX).map(part).collect()
}

impl Statement {
    fn new(text: &str, range: Range<usize>) -> Statement {
        let tokens = || significant(&text[range.clone()]);
        let words = tokens().map(|token| token.text.to_ascii_uppercase()).collect();
        let name = |token: Token<'_>| match token.kind {
            TokenKind::Quoted => Some(token.text.trim_matches('"').replace("\"\"", "\"")),
            TokenKind::Word => Some(token.text.to_lowercase()),
            _ => None,
        };
        let names = tokens().filter_map(name).collect();
        Statement { range, words, names }
    }

    /// Whether it can have that command tag: it begins with the tag's words, in order, with nothing
    /// between them except words that tags leave out.
    fn is_of_tag(&self, tag: &str) -> bool {
        let mut words = tag.split(' ').peekable();
        // There can be many words before AS, and between SELECT and INTO.
        let is_loose = tag.ends_with(" AS") || tag == "SELECT INTO";
        for (at, word) in self.words.iter().enumerate() {
            if words.peek().is_none() {
                break;
            }
            let fits = words.next_if(|wanted| wanted == word).is_some();
            if !fits && (at == 0 || !is_loose && !BESIDE_TAG.contains(&word.as_str())) {
                return false;
            }
        }
        words.peek().is_none()
    }

    /// Whether it names the first object that the command touched.
    fn names_object(&self, command: &Command) -> bool {
        let name = command.objects.first().and_then(|object| object.names.last());
        name.is_none_or(|name| self.names.contains(name))
    }
}

fn significant(text: &str) -> impl Iterator<Item = Token<'_>> {
    tokens(text).filter(|token| token.kind != TokenKind::Space)
}

fn is_word(token: &Token<'_>, word: &str) -> bool {
    token.kind == TokenKind::Word && token.text.eq_ignore_ascii_case(word)
}

/// The text as a replica executes it: as one that can run in a transaction, with the primary's values,
/// and without what belongs to one server only.
fn at_replicas(command: &Command, text: &str) -> Vec<String> {
    if let "GRANT" | "REVOKE" = command.tag.as_str() {
        return vec![by_identity(command, text).unwrap_or_else(|| text.to_owned())];
    }
    let mut text = text.to_owned();
    if ["CREATE INDEX", "ALTER TABLE", "REFRESH MATERIALIZED VIEW"].contains(&command.tag.as_str())
        && let Some(plain) = without_concurrently(&text)
        && statements(&plain).is_some()
    {
        text = plain;
    }
    let mut texts = vec![text];
    let has = |text: &str, word| significant(text).any(|token| is_word(&token, word));
    if command.tag == "ALTER TABLE" && has(&texts[0], "finalize") {
        texts.push(without_word(&texts[0], "finalize"));
    }
    if has(&texts[0], "tablespace") {
        texts.push(without_tablespaces(&texts[0]));
    }
    let at_moment: Vec<_> =
        texts.iter().filter_map(|text| at_moment(text, &command.moment)).collect();
    texts.extend(at_moment);
    let missing = command.missing.iter().flatten();
    let values: Vec<AddedValue<'_>> = missing
        .map(|missing| AddedValue {
            column: &missing.column,
            literal: literal(Some(&missing.value)),
            default: missing.default.as_deref(),
        })
        .collect();
    if values.is_empty() {
        return texts;
    }
    texts.into_iter().map(|text| with_values(&text, &values).unwrap_or(text)).collect()
}

/// The text without a keyword. (DETACH PARTITION … FINALIZE completes what a replica does in one step,
/// hence without FINALIZE. Without quotes, that can't be a name there.)
fn without_word(text: &str, word: &str) -> String {
    match significant(text).find(|token| is_word(token, word)) {
        Some(found) => {
            let rest = &text[found.start + found.text.len()..];
            format!("{}{rest}", &text[..found.start])
        }
        None => text.to_owned(),
    }
}

/// GRANT and REVOKE on the objects that they changed at the primary: the names in the text may be those
/// of temporary objects, or the text may mean all objects of a schema.
fn by_identity(command: &Command, text: &str) -> Option<String> {
    let all: Vec<Token<'_>> = significant(text).collect();
    let on = all.iter().position(|token| is_word(token, "on"))?;
    // (Not such as `interval year to month`, in a list of arguments.)
    let mut depth = 0;
    let is_end = |token: &Token<'_>| {
        depth += i32::from(token.text == "(") - i32::from(token.text == ")");
        depth == 0 && (is_word(token, "to") || is_word(token, "from"))
    };
    let end = on + all[on..].iter().position(is_end)?;
    let kind = granted_kind(text)?;
    let identities: Option<Vec<&str>> =
        command.objects.iter().map(|object| object.identity.as_deref()).collect();
    let (before, after) = (&text[..all[on].start], &text[all[end].start..]);
    Some(format!("{before}ON {kind} {} {after}", identities?.join(", ")))
}

/// Commands that make a command's objects equal to the primary's descriptions, where the result of its
/// text depends on the moment: a default or a bound that is computed when the text is parsed, or names
/// that PostgreSQL chooses. `here` are the objects' descriptions after the text was executed, `before`
/// those before it; objects that `before` lacks are new. What the text didn't change is left as it is.
pub(super) fn mends(
    command: &Command,
    here: &[Option<String>],
    before: &[Option<String>],
) -> Vec<String> {
    let before = before.iter().map(Option::as_deref).chain(std::iter::repeat(None));
    let objects = command.objects.iter().zip(here).zip(before);
    let mends = objects.filter_map(|((object, here), before)| {
        let (identity, primary) = (object.identity.as_ref()?, object.description.as_ref()?);
        let mut mends = mends_of(identity, primary, here.as_ref()?, before);
        if before.is_none() {
            mends.extend(shares_of(object, here.as_ref()?));
        }
        Some(mends)
    });
    mends.flatten().map(|mend| printed(&mend)).collect()
}

/// A command that contains what a server printed, under settings where that may mean something else.
fn printed(text: &str) -> String {
    with_escape_strings(text, true).into_owned()
}

/// Commands that give a command's objects, which are new, the primary's privileges. `here` is as for [`mends`].
pub(super) fn shares(command: &Command, here: &[Option<String>]) -> Vec<String> {
    let objects = command.objects.iter().zip(here);
    objects.filter_map(|(object, here)| Some(shares_of(object, here.as_ref()?))).flatten().collect()
}

fn shares_of(object: &Object, here: &str) -> Vec<String> {
    let (Some(identity), Some(primary)) = (&object.identity, &object.description) else {
        return Vec::new();
    };
    privileges::like(&object.kind, identity, &properties(primary), &properties(here))
}

fn mends_of(table: &str, primary: &str, here: &str, before: Option<&str>) -> Vec<String> {
    let is_new = before.is_none();
    let before = properties(before.unwrap_or_default());
    let (primary, here) = (properties(primary), properties(here));
    let is_partition = |all: &[String]| all.iter().any(|line| line.starts_with("partition "));
    let was_detached = is_partition(&before) && !is_partition(&primary);
    let only = |a: &[String], b: &[String]| -> Vec<String> {
        a.iter().filter(|line| !b.contains(line)).cloned().collect()
    };
    let (missing, mut extra) = (only(&primary, &here), only(&here, &primary));
    extra.retain(|line| !before.contains(line));
    let mut mends = Vec::new();
    if let (Some(query), Some(other)) = (view_query(&primary), view_query(&here))
        && query != other
        && view_query(&before) != Some(other)
    {
        mends.push(format!("CREATE OR REPLACE VIEW {table} AS {query}"));
    }
    if let (Some(function), Some(other)) = (function_of(&primary), function_of(&here))
        && function != other
        && function_of(&before) != Some(other)
    {
        mends.push(function.to_owned());
    }
    for line in &missing {
        if is_new && let Some(rename) = extra.iter().find_map(|other| sequence_renamed(other, line))
        {
            mends.push(rename);
        } else if let Some(object) = commented(table, line) {
            mends.extend(is_new.then_some(object));
        } else if let Some((column, default)) = default_of(line)
            && extra.iter().any(|other| default_of(other).is_some_and(|(same, _)| same == column))
        {
            mends.push(format!("ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {default}"));
        } else if let Some((column, _)) = extra
            .iter()
            .filter(|other| other.starts_with(&format!("{line} default ")))
            .find_map(|o| default_of(o))
        {
            mends.push(format!("ALTER TABLE {table} ALTER COLUMN {column} DROP DEFAULT"));
        } else if let Some((name, definition)) = index(line)
            && !missing.iter().any(|other| constraint(other).is_some_and(|other| other.0 == name))
        {
            let like = |other: &&String| {
                index(other).is_some_and(|(old, other)| {
                    other.replacen(&format!(" {old} "), &format!(" {name} "), 1) == definition
                })
            };
            let renamed = extra.iter().find(like).and_then(|other| index(other));
            if let Some((old, _)) = renamed {
                let schema = table.rsplit_once('.').map_or("", |(schema, _)| schema);
                mends.push(format!("ALTER INDEX {schema}.{old} RENAME TO {name}"));
            } else if is_new {
                mends.push(definition.to_owned());
            }
        } else if let Some((name, definition)) = constraint(line)
            && is_new
            && let Some(old) = extra
                .iter()
                .filter_map(|other| constraint(other))
                .find_map(|(old, other)| (other == definition && old != name).then_some(old))
        {
            // LIKE of a temporary table: the names are those that it has.
            mends.push(format!("ALTER TABLE {table} RENAME CONSTRAINT {old} TO {name}"));
        } else if let Some((name, definition)) = constraint(line)
            && (is_new || was_detached)
            && !extra.iter().any(|other| constraint(other).is_some_and(|o| o.0 == name))
        {
            // DETACH PARTITION CONCURRENTLY leaves one; LIKE copies them.
            mends.push(format!("ALTER TABLE {table} ADD CONSTRAINT {name} {definition}"));
        } else if let Some(bound) = line.strip_prefix("partition ")
            && extra.iter().any(|other| other.starts_with("partition "))
            && let Some(parent) = primary.iter().find_map(|line| line.strip_prefix("inherits "))
        {
            mends.push(format!("ALTER TABLE {parent} DETACH PARTITION {table}"));
            mends.push(format!("ALTER TABLE {parent} ATTACH PARTITION {table} {bound}"));
        } else if is_new {
            mends.extend(copied(table, line));
        }
    }
    if is_new {
        let here: Vec<_> = identity_sequences(&here).collect();
        let other = identity_sequences(&primary).filter(|sequence| !here.contains(sequence));
        mends.extend(other.filter_map(|(name, line)| sequence_like(name, line)));
    }
    mends
}

/// A CHECK constraint that a command adds to rows, or validates.
pub(super) struct Check {
    /// Adds it NOT VALID, unless it exists; executed as the command's role.
    pub(super) add: Option<String>,
    /// Selects its OID.
    pub(super) find: String,
    /// Validates it against the rows; executed as the command's role.
    pub(super) validate: String,
    /// Marks it as valid without a look at the rows.
    pub(super) mark: Vec<String>,
}

/// The CHECK constraints of a command that differ from the primary's. `here` is as for [`mends`].
pub(super) fn checks(command: &Command, here: &[Option<String>]) -> Vec<Check> {
    let is_domain = command.tag == "ALTER DOMAIN";
    if !is_domain && command.tag != "ALTER TABLE" {
        return Vec::new();
    }
    let mut checks = Vec::new();
    for (object, here) in command.objects.iter().zip(here) {
        let (Some(identity), Some(primary)) = (&object.identity, &object.description) else {
            continue;
        };
        let (primary, here) =
            (properties(primary), properties(here.as_deref().unwrap_or_default()));
        let is_check = |definition: &str| {
            definition.starts_with("CHECK (") && !definition.ends_with(" NOT VALID")
        };
        let missing = primary.iter().filter(|line| !here.contains(line));
        let missing = missing.filter_map(|line| constraint(line));
        for (name, definition) in missing.filter(|(_, definition)| is_check(definition)) {
            let is_here = here.iter().any(|line| line.starts_with(&format!("constraint {name} ")));
            let alter = format!("{} {identity}", command.tag);
            let add = format!("{alter} ADD CONSTRAINT {name} {definition} NOT VALID");
            checks.push(Check {
                add: (!is_here).then(|| printed(&add)),
                find: find_check(identity, name, is_domain),
                validate: format!("{alter} VALIDATE CONSTRAINT {name}"),
                mark: mark_valid(identity, name, is_domain),
            });
        }
    }
    checks
}

fn find_check(identity: &str, name: &str, is_domain: bool) -> String {
    let (identity, name) = (literal(Some(identity)), literal(Some(name)));
    let owner = if is_domain {
        format!("contypid = {identity}::regtype")
    } else {
        format!("conrelid = {identity}::regclass")
    };
    format!(
        "SELECT oid FROM pg_constraint \
         WHERE contype = 'c' AND quote_ident(conname) = {name} AND {owner}"
    )
}

/// Marks a CHECK constraint as valid, for a table also in those that inherit it, and makes PostgreSQL
/// read the tables' definitions again.
fn mark_valid(identity: &str, name: &str, is_domain: bool) -> Vec<String> {
    let (identity, name) = (literal(Some(identity)), literal(Some(name)));
    let mark = format!(
        "UPDATE pg_constraint SET convalidated = true \
         WHERE contype = 'c' AND NOT convalidated AND quote_ident(conname) = {name}"
    );
    if is_domain {
        return vec![format!("{mark} AND contypid = {identity}::regtype")];
    }
    let tree = format!(
        "WITH RECURSIVE tree(relation) AS (SELECT {identity}::regclass::oid \
         UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = relation)"
    );
    vec![
        format!("{tree} {mark} AND conrelid IN (TABLE tree)"),
        format!("{tree} UPDATE pg_class SET relname = relname WHERE oid IN (TABLE tree)"),
    ]
}

/// The properties in a description. (Further lines of one begin with a space.)
fn properties(description: &str) -> Vec<String> {
    let mut properties: Vec<String> = Vec::new();
    for line in description.split('\n') {
        match (line.strip_prefix(' '), properties.last_mut()) {
            (Some(more), Some(last)) => {
                last.push('\n');
                last.push_str(more);
            }
            _ => properties.push(line.to_owned()),
        }
    }
    properties
}

/// Whether a description has nothing that the other one lacks. A column has another number if one before it
/// is gone, and it may have lost its default, which stands last.
pub(super) fn is_part_of(here: &str, whole: &str) -> bool {
    let unnumbered = |line: &str| {
        let (_, rest) = line.strip_prefix("column ")?.split_once(' ')?;
        Some(rest.to_owned())
    };
    let without_numbers = |description: &str| -> Vec<String> {
        properties(description).into_iter().map(|line| unnumbered(&line).unwrap_or(line)).collect()
    };
    let whole = without_numbers(whole);
    without_numbers(here).iter().all(|line| {
        whole.iter().any(|other| {
            other
                .strip_prefix(line)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(" default "))
        })
    })
}

/// The COMMENT command for a property of a table.
fn commented(table: &str, line: &str) -> Option<String> {
    let (kind, rest) = line.split_once(' ')?;
    let schema = table.rsplit_once('.').map_or("", |(schema, _)| schema);
    let (name, rest) = match kind {
        "statistics" => {
            let schema = name_of(rest)?;
            let name = name_of(rest[schema.len()..].strip_prefix('.')?)?;
            rest.split_at(schema.len() + 1 + name.len())
        }
        _ => rest.split_at(name_of(rest)?.len()),
    };
    let comment = rest.strip_prefix(" comment ")?.trim_start();
    if !is_string(comment) {
        return None;
    }
    let object = match kind {
        "column" => format!("COLUMN {table}.{name}"),
        "constraint" => format!("CONSTRAINT {name} ON {table}"),
        "index" => format!("INDEX {schema}.{name}"),
        "statistics" => format!("STATISTICS {name}"),
        _ => return None,
    };
    Some(format!("COMMENT ON {object} IS {comment}"))
}

/// Commands for what LIKE copies besides columns: statistics, the storage of a column.
fn copied(table: &str, line: &str) -> Option<String> {
    if line.starts_with("CREATE STATISTICS ") {
        return line.rsplit_once(" owner ").map(|(text, _)| text.to_owned());
    }
    let (column, rest) = column(line)?;
    let storage = match behind(rest, " storage ")?.bytes().next()? {
        b'p' => "PLAIN",
        b'e' => "EXTERNAL",
        b'm' => "MAIN",
        _ => "EXTENDED",
    };
    Some(format!("ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE {storage}"))
}

/// The sequences of a table's identity columns: names and properties.
fn identity_sequences(properties: &[String]) -> impl Iterator<Item = (&str, &str)> {
    let mut name = "";
    properties.iter().filter_map(move |line| {
        if let Some(relation) = line.strip_prefix("relation ") {
            name = relation;
        }
        line.starts_with("sequence ").then_some((name, line.as_str()))
    })
}

/// The command that gives a sequence its properties: LIKE copies bounds that belong to another column's
/// type.
fn sequence_like(name: &str, line: &str) -> Option<String> {
    let (options, cycle) = line.strip_prefix("sequence ")?.rsplit_once(" cycle ")?;
    let words: Vec<&str> = options.split(' ').collect();
    let [kind, _, start, _, increment, _, max, _, min, _, cache] = words[..] else { return None };
    let no = if cycle == "t" { "" } else { "NO " };
    Some(format!(
        "ALTER SEQUENCE {name} AS {kind} START {start} INCREMENT {increment} MAXVALUE {max} \
         MINVALUE {min} CACHE {cache} {no}CYCLE"
    ))
}

/// The command that gives a column's sequence the name that it has at the primary: PostgreSQL chose one that was free there.
fn sequence_renamed(here: &str, primary: &str) -> Option<String> {
    let of = |line| -> Option<(&str, &str)> {
        if let Some((column, default)) = default_of(line) {
            let name = default.strip_prefix("nextval('")?.strip_suffix("'::regclass)")?;
            return Some((column, name));
        }
        // (The one of an identity column; a column has another name.)
        Some(("", line.strip_prefix("relation ")?))
    };
    let ((column, old), (other, new)) = (of(here)?, of(primary)?);
    let schema = name_of(new)?;
    let name = new[schema.len()..].strip_prefix('.')?;
    (column == other && old.starts_with(schema))
        .then(|| format!("ALTER SEQUENCE {old} RENAME TO {name}"))
}

/// The query of a view.
fn view_query(properties: &[String]) -> Option<&str> {
    let rule = properties.iter().find_map(|line| line.strip_prefix("rule \"_RETURN\" "))?;
    let (_, query) = rule.split_once(" DO INSTEAD ")?;
    let is_view = properties.iter().any(|line| line == "kind v");
    query.strip_suffix("; on").filter(|_| is_view).map(str::trim)
}

/// The command that creates a function or procedure.
fn function_of(properties: &[String]) -> Option<&str> {
    let first = properties.first()?;
    first.starts_with("CREATE OR REPLACE ").then_some(first.trim_end())
}

/// The column and the default of a property about a column.
fn default_of(line: &str) -> Option<(&str, &str)> {
    let (column, rest) = column(line)?;
    let default = behind(rest, " default ")?;
    behind(rest, " generated ").is_none().then_some((column, default))
}

/// The column's name in a property about a column, and the rest.
fn column(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.strip_prefix("column ")?.split_once(' ')?;
    Some(rest.split_at(name_of(rest)?.len()))
}

/// The name and the definition of a constraint of a table's own.
fn constraint(line: &str) -> Option<(&str, &str)> {
    const BEHIND: [&str; 4] = [" not validated", " not local", " inherited ", " of "];
    let (name, definition) = named(line, "constraint ")?;
    // (What is not enforced is never valid.)
    let unenforced = definition.strip_suffix(" not validated");
    let unenforced = unenforced.filter(|definition| definition.ends_with(" NOT ENFORCED"));
    let definition = unenforced.unwrap_or(definition);
    let is_own = !BEHIND.iter().any(|words| behind(definition, words).is_some());
    is_own.then_some((name, definition))
}

/// The name and the definition of an index.
fn index(line: &str) -> Option<(&str, &str)> {
    const BEGINS: [&str; 2] = ["CREATE INDEX ", "CREATE UNIQUE INDEX "];
    named(line, "index ").filter(|(_, text)| BEGINS.iter().any(|begin| text.starts_with(begin)))
}

/// The name in a property of that kind, and the rest.
fn named<'a>(line: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    let rest = line.strip_prefix(kind)?;
    let (name, rest) = rest.split_at(name_of(rest)?.len());
    Some((name, rest.strip_prefix(' ')?))
}

/// The name, perhaps a quoted one, that a text begins with.
fn name_of(text: &str) -> Option<&str> {
    tokens(text)
        .next()
        .filter(|token| matches!(token.kind, TokenKind::Word | TokenKind::Quoted))
        .map(|token| token.text)
}

/// The text after some words that are not in quotes.
fn behind<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    let mut quote = None;
    text.char_indices().find_map(|(at, c)| {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if text[at..].starts_with(words) => return Some(&text[at + words.len()..]),
            _ => {}
        }
        None
    })
}

/// Whether a text is a string constant and nothing else.
fn is_string(text: &str) -> bool {
    let mut tokens = tokens(text);
    let is_one = tokens.next().is_some_and(|token| token.kind == TokenKind::String);
    is_one && tokens.next().is_none()
}

/// The command that drops the same objects, of those that a replica has.
pub(super) fn drops(drop: &Drop) -> Vec<String> {
    let cascade = if drop.cascades { " CASCADE" } else { "" };
    let mut drops: Vec<(String, Vec<String>)> = Vec::new();
    for object in &drop.objects {
        let (kind, name) = droppable(&object.kind, &object.identity);
        match drops.last_mut().filter(|(last, _)| *last == kind && takes_list(&kind)) {
            Some((_, names)) => names.push(name),
            None => drops.push((kind, vec![name])),
        }
    }
    let text = |(kind, names): (String, Vec<String>)| {
        format!("DROP {kind} IF EXISTS {}{cascade}", names.join(", "))
    };
    drops.into_iter().map(text).collect()
}

/// The words of DROP for a kind of object, and its name there.
fn droppable(kind: &str, identity: &str) -> (String, String) {
    let kind = match kind {
        "function" | "aggregate" => "ROUTINE".to_owned(),
        "statistics object" => "STATISTICS".to_owned(),
        "foreign-data wrapper" => "FOREIGN DATA WRAPPER".to_owned(),
        "domain" | "composite type" => "TYPE".to_owned(),
        kind => kind.to_uppercase(),
    };
    let name = match kind.as_str() {
        "USER MAPPING" => {
            let (user, server) = identity.rsplit_once(" on server ").unwrap_or((identity, ""));
            let user = if user == "public" { user.to_owned() } else { quote(user) };
            format!("FOR {user} SERVER {}", quote(server))
        }
        "TRANSFORM" => identity.replacen(" on language ", " LANGUAGE ", 1),
        _ => identity.to_owned(),
    };
    (kind, name)
}

fn takes_list(kind: &str) -> bool {
    const ALONE: [&str; 8] = [
        "TRIGGER",
        "RULE",
        "POLICY",
        "CAST",
        "OPERATOR CLASS",
        "OPERATOR FAMILY",
        "TRANSFORM",
        "USER MAPPING",
    ];
    !ALONE.contains(&kind)
}

#[cfg(test)]
mod tests {
    use hihooi_replication::note::{Dropped, Missing, Object};

    use super::*;

    fn command(tag: &str, names: &[&str]) -> Command {
        let object = Object {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            identity: Some(names.join(".")),
            ..Object::default()
        };
        Command { tag: tag.to_owned(), objects: vec![object], ..Command::default() }
    }

    fn of_query(tag: &str, name: &str, query: &str) -> Vec<String> {
        let command = Command { query: Some(query.to_owned()), ..command(tag, &["public", name]) };
        readings(&command, &mut Memory::default())
    }

    #[test]
    fn what_a_drop_takes_leaves_a_part() {
        let whole =
            "relation s.t\ncolumn 1 a integer\ncolumn 2 b text default 'x'::text\nindex i on s.t";
        let is_part = |here: &str| is_part_of(here, whole);
        assert!(is_part(whole));
        assert!(
            is_part("relation s.t\ncolumn 1 b text default 'x'::text"),
            "a column and the index are gone"
        );
        assert!(
            is_part("relation s.t\ncolumn 1 a integer\ncolumn 2 b text"),
            "the default is gone"
        );
        assert!(!is_part("relation s.t\ncolumn 1 a integer\nSELECT to joe"), "another part");
        assert!(!is_part("relation s.t\ncolumn 1 a integer not null"), "another property");
        assert!(!is_part("relation s.t\ncolumn 1 b text default 'y'::text"), "another default");
        assert!(!is_part("relation s.t\ncolumn 1 b tex"), "another type");
    }

    #[test]
    fn a_query_of_one_statement_is_the_command() {
        let same = |tag, text: &str| assert_eq!(of_query(tag, "t", text), [text]);
        same("CREATE TABLE", "create unlogged table if not exists t (a int)");
        same("CREATE FUNCTION", "create or replace function t() returns int language sql as 'x'");
        same("CREATE TEXT SEARCH CONFIGURATION", "create text search configuration t (copy=c)");
        same("CREATE LANGUAGE", "create or replace trusted procedural language t handler h");
        assert_eq!(
            of_query("ALTER TABLE", "t", " alter table t add a int; "),
            ["alter table t add a int"]
        );
        assert_eq!(of_query("CREATE TABLE", "t", "select 1"), [""; 0]);
        assert_eq!(
            of_query("CREATE INDEX", "i", "create index concurrently i on t (a)"),
            ["create index  i on t (a)"]
        );
    }

    /// Of several statements, the one that names the object; else one after that of the note before.
    #[test]
    fn statements_of_one_query_run_in_order() {
        let query =
            "create table a(); create table b(); alter table a add x int; create table \"B\"()";
        let first = |tag: &str, name: &str| of_query(tag, name, query)[0].clone();
        assert_eq!(first("CREATE TABLE", "b"), "create table b()");
        assert_eq!(first("CREATE TABLE", "B"), "create table \"B\"()");
        assert_eq!(first("ALTER TABLE", "a"), "alter table a add x int");
        let query = "alter table t add a int; alter table t add b int";
        let command =
            Command { query: Some(query.to_owned()), ..command("ALTER TABLE", &["public", "t"]) };
        let mut memory = Memory::default();
        let mut next = || readings(&command, &mut memory)[0].clone();
        assert!(next().contains(" a "));
        assert!(next().contains(" b "));
        assert!(next().contains(" a "), "the text ran again");
    }

    fn nested(tag: &str, name: &str, context: &str) -> Vec<String> {
        let command =
            Command { context: Some(context.to_owned()), ..command(tag, &["public", name]) };
        readings(&command, &mut Memory::default())
    }

    #[test]
    fn the_innermost_statement_of_a_stack_is_the_command() {
        let context = "SQL statement \"create table \"t\" (a int)\"\n\
                       PL/pgSQL function f() line 3 at EXECUTE\nSQL statement \"select f()\"";
        assert_eq!(nested("CREATE TABLE", "t", context), ["create table \"t\" (a int)"]);
        let names = "SQL statement \"create table t (\"b\"\"\nPL/pgSQL function f() line 1 at \
                     EXECUTE\" int)\"\nPL/pgSQL function f() line 3 at EXECUTE";
        assert_eq!(
            nested("CREATE TABLE", "t", names),
            ["create table t (\"b\"\"\nPL/pgSQL function f() line 1 at EXECUTE\" int)"]
        );
    }

    /// After the text of a function with its owner's rights comes the text of its caller.
    #[test]
    fn no_reading_takes_in_what_others_wrote() {
        let context = "SQL statement \"create view a as select relname from pg_class\"\nPL/pgSQL function \
                       mk(text) line 1 at EXECUTE\nSQL statement \"; select mk('a'); create view x as select evil() as \
                       a\"\nPL/pgSQL function inline_code_block line 1 at EXECUTE";
        let texts = |is_definer| {
            let command = Command {
                context: Some(context.to_owned()),
                is_definer,
                ..command("CREATE VIEW", &["public", "a"])
            };
            readings(&command, &mut Memory::default())
        };
        assert_eq!(texts(true), ["create view a as select relname from pg_class"]);
        assert!(texts(false).len() > 1, "all of it is by one role");
        assert_eq!(of_query("CREATE VIEW", "x", "create materialized view x as select 1"), [""; 0]);
    }

    #[test]
    fn sql_functions_tell_a_number() {
        let command = Command {
            context: Some("SQL function \"f\" statement 2\nSQL statement \"x\"".to_owned()),
            statement: Some(2),
            body: Some("create table a(); create index i on a (b)".to_owned()),
            ..command("CREATE INDEX", &["public", "i"])
        };
        let texts = readings(&command, &mut Memory::default());
        assert_eq!(texts, ["create index i on a (b)"]);
    }

    #[test]
    fn rights_are_granted_on_what_was_changed() {
        let granted = |text: &str, names: &[&str]| {
            let command = Command { query: Some(text.to_owned()), ..command("GRANT", names) };
            readings(&command, &mut Memory::default())[0].clone()
        };
        assert_eq!(
            granted("grant select (a, b), insert on tmp, t to joe", &["public", "t"]),
            "grant select (a, b), insert ON TABLE public.t to joe"
        );
        assert_eq!(
            granted("grant execute on all functions in schema s to public", &["s", "f(int)"]),
            "grant execute ON ROUTINE s.f(int) to public"
        );
    }

    #[test]
    fn existing_rows_get_the_primary_s_values() {
        let missing = Missing {
            column: "c".to_owned(),
            value: "it's".to_owned(),
            default: Some("f()".to_owned()),
        };
        let command = Command {
            query: Some("alter table t add c text default f()".to_owned()),
            missing: Some(vec![missing]),
            ..command("ALTER TABLE", &["public", "t"])
        };
        assert_eq!(
            readings(&command, &mut Memory::default()),
            ["alter table t add c text  DEFAULT ('it''s'),\nALTER COLUMN \"c\" SET DEFAULT f()"]
        );
    }

    #[test]
    fn what_was_computed_at_a_moment_is_mended() {
        let new = |table, primary, here| mends_of(table, primary, here, None);
        assert_eq!(
            new(
                "s.t",
                "column 1 \"a b\" date storage p default '2026-01-01'::date\nowner x",
                "column 1 \"a b\" date storage p default '2026-01-02'::date\nowner x",
            ),
            ["ALTER TABLE s.t ALTER COLUMN \"a b\" SET DEFAULT '2026-01-01'::date"]
        );
        assert_eq!(
            new("s.t", "inherits s.p\npartition FOR VALUES IN (1)", "inherits s.p\npartition x"),
            [
                "ALTER TABLE s.p DETACH PARTITION s.t",
                "ALTER TABLE s.p ATTACH PARTITION s.t FOR VALUES IN (1)"
            ]
        );
        assert_eq!(
            new("s.t", "index t_a1 CREATE INDEX t_a1 ON s.t", "index t_a CREATE INDEX t_a ON s.t"),
            ["ALTER INDEX s.t_a RENAME TO t_a1"]
        );
        assert_eq!(
            new("s.t", "column 1 a d storage p", "column 1 a d storage p default 1"),
            ["ALTER TABLE s.t ALTER COLUMN a DROP DEFAULT"]
        );
        assert_eq!(new("s.t", "owner x", "owner y"), [""; 0]);
        assert_eq!(
            new(
                "s.t",
                "column 1 a text storage e\ncolumn a comment 'it''s'\nindex t_a comment 'i'\n\
                 CREATE STATISTICS s.t_st ON a, b FROM s.t owner x",
                "column 1 a text storage x",
            ),
            [
                "ALTER TABLE s.t ALTER COLUMN a SET STORAGE EXTERNAL",
                "COMMENT ON COLUMN s.t.a IS 'it''s'",
                "COMMENT ON INDEX s.t_a IS 'i'",
                "CREATE STATISTICS s.t_st ON a, b FROM s.t",
            ]
        );
        assert_eq!(
            new(
                "s.t",
                "relation s.t\nrelation s.t_a_seq\nsequence bigint start 1 increment 1 max 9 min 1 \
                 cache 1 cycle f",
                "relation s.t\nrelation s.t_a_seq\nsequence integer start 1 increment 1 max 9 min 1 \
                 cache 1 cycle f",
            ),
            [
                "ALTER SEQUENCE s.t_a_seq AS bigint START 1 INCREMENT 1 MAXVALUE 9 MINVALUE 1 CACHE 1 \
              NO CYCLE"
            ]
        );
        // Names and texts of others are no commands.
        let evil = "index \"x do $$ evil $$; --\" CREATE INDEX \"x do $$ evil $$; --\" ON s.t (a)";
        let made = "CREATE INDEX \"x do $$ evil $$; --\" ON s.t (a)";
        assert_eq!(new("s.t", evil, "owner x"), [made]);
        let literal = "index i CREATE INDEX i ON s.t ((a || 'x\n index zz do $$ evil $$\n '))";
        assert_eq!(
            new("s.t", literal, "owner x"),
            ["CREATE INDEX i ON s.t ((a || 'x\nindex zz do $$ evil $$\n'))"]
        );
        assert_eq!(
            new(
                "s.t",
                "column 1 c \"x default evil()\" storage p default 1",
                "column 1 c \"x default evil()\" storage p default 2",
            ),
            ["ALTER TABLE s.t ALTER COLUMN c SET DEFAULT 1"]
        );
        // What was so before stays, and stops the replica.
        let (primary, here) =
            ("column 1 a date storage p default 1", "column 1 a date storage p default 2");
        assert_eq!(mends_of("s.t", primary, here, Some(here)), [""; 0]);
        assert_eq!(mends_of("s.t", primary, here, Some("column 1 a date storage p")).len(), 1);
        let index = "index t_a CREATE INDEX t_a ON s.t";
        assert_eq!(mends_of("s.t", index, "", Some("")), [""; 0]);
    }

    #[test]
    fn what_is_gone_is_dropped_by_identity() {
        let dropped = |objects: &[(&str, &str)], cascades| {
            let object = |(kind, identity): &(&str, &str)| Dropped {
                kind: (*kind).to_owned(),
                identity: (*identity).to_owned(),
            };
            let objects = objects.iter().map(object).collect();
            drops(&Drop { tag: String::new(), role: String::new(), objects, cascades })
        };
        assert_eq!(
            dropped(&[("table", "s.a"), ("table", "s.b")], true),
            ["DROP TABLE IF EXISTS s.a, s.b CASCADE"]
        );
        assert_eq!(
            dropped(&[("trigger", "a on s.t"), ("trigger", "b on s.t")], false),
            ["DROP TRIGGER IF EXISTS a on s.t", "DROP TRIGGER IF EXISTS b on s.t"]
        );
        assert_eq!(dropped(&[("aggregate", "s.a()")], false), ["DROP ROUTINE IF EXISTS s.a()"]);
        assert_eq!(
            dropped(&[("user mapping", "public on server s")], false),
            ["DROP USER MAPPING IF EXISTS FOR public SERVER \"s\""]
        );
        assert_eq!(
            dropped(&[("transform", "for s.t on language l")], false),
            ["DROP TRANSFORM IF EXISTS for s.t LANGUAGE l"]
        );
    }
}
