//! Reads the case files of this folder: SQL, with directives as comments in front of statements.
//!
//! A statement is one line or several and ends with `;` at a line's end, outside of quotes and
//! comments. A line may hold several statements: they are sent as one string, as written.
//! `:schema` is the case's own schema, which is first in the search path of every session.
//!
//! ```text
//! -- case: name        begins a case
//! -- needs: 15         from this major version on: the case, or (behind others) the statement
//! -- until: 16         … up to this major version
//! -- as: role          the following statements run in a session of that role
//! -- session: 2        … in another session, beside the first
//! -- database: name    … in another database
//! -- direct            … at the primary's own port; `-- through`: through hihooi again
//! -- reconnect         ends the session; the next statement runs in a new one
//! -- error: 23505      the next statement fails with this SQLSTATE
//! -- expect: 5         … answers this first value
//! -- eventually: x     … sooner or later, since other sessions may have a hand in it
//! -- extended          … is sent by the extended protocol; `-- params: a, b`: with these values
//! -- background        … waits for a lock: the case goes on, up to its session's next statement
//! -- together: 3       the next 3 statements are sent as one string
//! -- pipeline: 3       … as one pipeline of the extended protocol
//! -- lines             from here on each line of the case is a statement, whatever quotes say
//! -- refused           hihooi refuses the next statement (0A000); PostgreSQL does it, and the rest is left out there
//! -- refusable         hihooi may refuse it; then the rest, up to `finally`, is left out
//! -- stoppable         replicas may stop in this case, or set tables aside, for they can't know; they may not differ
//! -- fallible          statements of this case may fail; what counts is that replicas follow
//! -- sleep: 3          seconds in which nothing comes
//! -- check             all sites are compared here, not only at the end
//! -- finally           sessions end, all sites are compared; what follows removes what isn't in the schema
//! ```
//! Other comments are comments.

use std::path::Path;

/// Major versions of PostgreSQL.
#[derive(Debug, Clone, Copy, Default)]
pub struct Versions {
    first: u32,
    last: Option<u32>,
}

impl Versions {
    pub fn contains(&self, version: u32) -> bool {
        self.first <= version && self.last.is_none_or(|last| version <= last)
    }
}

/// A case: its statements, and those that clean up behind it.
#[derive(Debug, Default)]
pub struct Case {
    pub name: String,
    /// Major versions of PostgreSQL that it is for.
    pub versions: Versions,
    /// Replicas may stop instead of being equal.
    pub stoppable: bool,
    /// Its statements may fail.
    pub fallible: bool,
    pub body: Vec<Step>,
    pub finally: Vec<Step>,
    in_finally: bool,
    by_line: bool,
}

impl Case {
    fn steps(&mut self) -> &mut Vec<Step> {
        if self.in_finally { &mut self.finally } else { &mut self.body }
    }
}

/// What happens next in a case.
#[derive(Debug)]
pub enum Step {
    Run(Statement),
    As(String),
    Session(String),
    Database(String),
    Direct(bool),
    Reconnect,
    Check,
    /// Seconds.
    Sleep(u64),
}

/// Whether hihooi refuses a statement that PostgreSQL accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    #[default]
    Never,
    May,
    Must,
}

/// A statement, or several in one string, and what is expected of it.
#[derive(Clone, Debug, Default)]
pub struct Statement {
    pub text: String,
    /// SQLSTATE; empty if it must succeed.
    pub error: String,
    /// The first value that it answers.
    pub expect: Option<String>,
    /// It is asked again until it answers that.
    pub repeats: bool,
    /// Sent by the extended protocol.
    pub extended: bool,
    pub parameters: Vec<String>,
    pub background: bool,
    /// The statements of a pipeline, one by one.
    pub pipeline: Vec<String>,
    pub refusal: Refusal,
    /// Major versions of PostgreSQL that it is for.
    pub versions: Versions,
    /// So many statements are one string, or one pipeline.
    together: usize,
    pipelined: bool,
}

/// Reads the cases of a file.
pub fn read(path: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(path);
    parse(&text.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// Takes a text of cases apart.
pub fn parse(text: &str) -> Vec<Case> {
    let mut reader = Reader::default();
    text.lines().for_each(|line| reader.line(line));
    assert!(reader.text.is_empty(), "a statement without end: {}", reader.text);
    reader.cases
}

#[derive(Default)]
struct Reader {
    cases: Vec<Case>,
    /// Expectations of the statement to come.
    next: Statement,
    /// Lines of the statement so far.
    text: String,
}

impl Reader {
    fn line(&mut self, line: &str) {
        if self.text.is_empty() {
            if let Some(directive) = line.strip_prefix("--") {
                return self.directive(directive.trim());
            }
            if line.trim().is_empty() {
                return;
            }
        } else {
            self.text.push('\n');
        }
        self.text.push_str(line);
        let case = self.cases.last().expect("a statement belongs to a case");
        if case.by_line || ended(self.text.trim_end()) {
            self.statement();
        }
    }

    fn directive(&mut self, directive: &str) {
        let (key, value) = directive.split_once(':').unwrap_or((directive, ""));
        let (key, value) = (key.trim(), value.trim().to_owned());
        if key == "case" {
            self.cases.push(Case { name: value, ..Case::default() });
            return;
        }
        let Some(case) = self.cases.last_mut() else { return };
        let next = &mut self.next;
        match key {
            "as" => case.steps().push(Step::As(value)),
            "session" => case.steps().push(Step::Session(value)),
            "database" => case.steps().push(Step::Database(value)),
            "direct" => case.steps().push(Step::Direct(true)),
            "through" => case.steps().push(Step::Direct(false)),
            "reconnect" => case.steps().push(Step::Reconnect),
            "check" => case.steps().push(Step::Check),
            "sleep" => case.steps().push(Step::Sleep(number(&value))),
            "finally" => case.in_finally = true,
            "lines" => case.by_line = true,
            "stoppable" => case.stoppable = true,
            "fallible" => case.fallible = true,
            "needs" if case.body.is_empty() => case.versions.first = number(&value) as u32,
            "needs" => next.versions.first = number(&value) as u32,
            "until" if case.body.is_empty() => case.versions.last = Some(number(&value) as u32),
            "until" => next.versions.last = Some(number(&value) as u32),
            "error" => next.error = value,
            "expect" => next.expect = Some(value),
            "eventually" => (next.expect, next.repeats) = (Some(value), true),
            "extended" => next.extended = true,
            "params" => next.parameters = value.split(", ").map(str::to_owned).collect(),
            "background" => next.background = true,
            "together" => next.together = number(&value) as usize,
            "pipeline" => (next.together, next.pipelined) = (number(&value) as usize, true),
            "refusable" => next.refusal = Refusal::May,
            "refused" => next.refusal = Refusal::Must,
            _ => {}
        }
    }

    /// A statement is complete; it waits for others that go with it.
    fn statement(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !self.next.text.is_empty() {
            self.next.text.push('\n');
        }
        self.next.text.push_str(&text);
        if self.next.pipelined {
            self.next.pipeline.push(text);
        }
        self.next.together = self.next.together.saturating_sub(1);
        if self.next.together == 0 {
            let statement = std::mem::take(&mut self.next);
            let case = self.cases.last_mut().expect("a statement belongs to a case");
            case.steps().push(Step::Run(statement));
        }
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// Whether the last character is a semicolon outside of quotes and comments.
fn ended(text: &str) -> bool {
    let (mut at, mut last) = (0, ' ');
    while let Some(next) = text[at..].chars().next() {
        let Some(hidden) = hidden(text, at) else { return false };
        last = if hidden == 0 { next } else { ' ' };
        at += hidden.max(next.len_utf8());
    }
    last == ';'
}

/// Length of the quoted text or comment that begins here, 0 if none does; `None` if it doesn't
/// end in this text.
fn hidden(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    if let Some(body) = rest.strip_prefix('\'') {
        let escapes = text[..at].ends_with(['e', 'E']) && !follows_word(&text[..at - 1]);
        return Some(string_len(body, escapes)? + 1);
    }
    if let Some(body) = rest.strip_prefix('"') {
        return Some(body.find('"')? + 2);
    }
    if rest.starts_with("--") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return comment_len(rest);
    }
    if rest.starts_with('$') && !follows_word(&text[..at]) {
        let Some(tag) = dollar_tag(rest) else { return Some(0) };
        return Some(rest[tag.len()..].find(tag)? + 2 * tag.len());
    }
    Some(0)
}

fn follows_word(before: &str) -> bool {
    before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Length of a string's rest, its closing quote included.
fn string_len(body: &str, escapes: bool) -> Option<usize> {
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Some(at + 1),
            '\\' if escapes => {
                chars.next();
            }
            _ => {}
        }
    }
    None
}

/// Length of a comment, in which others may be nested.
fn comment_len(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    None
}

/// `$$` or `$tag$` at the beginning of a text.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 1;
    let name = &text[1..end];
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    is_name.then(|| &text[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_outside_of_quotes() {
        for whole in
            ["A;", "A; B;", "DO $$ a; $$;", "A 'it''s;';", "A \"x;\";", "A E'\\';';", "$1;"]
        {
            assert!(ended(whole), "{whole}");
        }
        for part in ["A", "DO $$ a;", "A 'x;", "A -- b;", "/* /* */ ;", "A \"x;", "A;--", "$x$ $$;"]
        {
            assert!(!ended(part), "{part}");
        }
    }

    #[test]
    fn directives_belong_to_the_next_statement() {
        let cases = parse(
            "-- a comment\n-- case: one\n-- needs: 15\n-- error: 42P01\nA;\nB\n;\n\n\
             -- finally\n-- together: 2\nC;\nD;\n-- case: two\nE;\n",
        );
        assert_eq!((cases.len(), cases[0].versions.first, cases[0].name.as_str()), (2, 15, "one"));
        let texts = |steps: &[Step]| -> Vec<(String, String)> {
            let run = |step: &Step| match step {
                Step::Run(statement) => (statement.text.clone(), statement.error.clone()),
                other => panic!("{other:?}"),
            };
            steps.iter().map(run).collect()
        };
        let pair = |text: &str, error: &str| (text.to_owned(), error.to_owned());
        assert_eq!(texts(&cases[0].body), [pair("A;", "42P01"), pair("B\n;", "")]);
        assert_eq!(texts(&cases[0].finally), [pair("C;\nD;", "")]);
        assert_eq!(texts(&cases[1].body), [pair("E;", "")]);
    }
}
