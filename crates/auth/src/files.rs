//! The syntax that `pg_hba.conf` and `pg_ident.conf` share (manual, "The pg_hba.conf File"): lines of fields,
//! fields of tokens, comments, quotes, continuation by a backslash, and other files: `@file` in a field,
//! `include`, `include_if_exists` and `include_dir` as lines (since PostgreSQL 16; read from 15's files too).
//!
//! Departures: what all files hold together is bounded (I8). A field that consists of an empty file only is an
//! error; in PostgreSQL it disappears, and the next field takes its place.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How deep files may include each other, as in PostgreSQL (`CONF_FILE_MAX_DEPTH`).
pub const DEPTH_MAX: usize = 10;
/// How many files are read in all; one that is included twice counts twice.
pub const FILES_MAX: usize = 1_000;
/// How many bytes are read in all.
pub const BYTES_MAX: usize = 4 << 20;

/// Where configuration files come from.
pub trait Files {
    /// What the file contains.
    ///
    /// # Errors
    /// As reading gives them; `include_if_exists` skips a file that is [`io::ErrorKind::NotFound`].
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The names of the files in a folder, without its subfolders, in any order.
    ///
    /// # Errors
    /// As listing gives them.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
}

/// Files in memory, by path.
impl Files for BTreeMap<PathBuf, String> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = self.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.clone().into_bytes())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let inside = self.keys().filter(|path| path.parent() == Some(folder));
        let names = inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let names: Vec<String> = names.collect();
        if names.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(names) }
    }
}

/// What is wrong with one line of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}configuration file \"{}\": {what}; {hint}", line_of(*line), file.display())]
pub struct LineError {
    /// The file.
    pub file: Arc<Path>,
    /// The number of the line, from 1; of its first one if a backslash continues it. `None` if the file as
    /// a whole is wrong.
    pub line: Option<usize>,
    /// What is wrong, in PostgreSQL's words where it has the same error.
    pub what: String,
    /// What to do.
    pub hint: String,
}

fn line_of(line: Option<usize>) -> String {
    line.map(|line| format!("line {line} of ")).unwrap_or_default()
}

/// All that is wrong with a file and those that it includes: at least one error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct FileErrors(pub Vec<LineError>);

/// An error that doesn't know its line yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) what: String,
    pub(crate) hint: String,
}

impl Wrong {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), hint: hint.into() }
    }

    /// The error of a whole file.
    pub(crate) fn of(self, file: Arc<Path>) -> LineError {
        LineError { file, line: None, what: self.what, hint: self.hint }
    }
}

/// One word of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Without its quotes.
    pub(crate) text: String,
    /// Begins with a quote: it is no keyword and names no file.
    pub(crate) quoted: bool,
}

impl Token {
    /// Whether this is a keyword: quoted, it would be an ordinary name.
    pub(crate) fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }
}

/// Tokens that commas separate: at least one.
pub(crate) type Field = Vec<Token>;

/// A line with at least one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) file: Arc<Path>,
    pub(crate) number: usize,
    pub(crate) fields: Vec<Field>,
}

impl Line {
    /// A field that may have one token only; `None` if there is no such field.
    pub(crate) fn single(&self, at: usize, of: &str) -> Result<Option<&Token>, Wrong> {
        match self.fields.get(at).map(Vec::as_slice) {
            None => Ok(None),
            Some([token]) => Ok(Some(token)),
            Some(_) => Err(Wrong::new(
                format!("multiple values specified for {of}"),
                format!("specify exactly one {of} per line"),
            )),
        }
    }
}

/// Reads a file and what it includes; `parse` makes something of each line. All errors are collected.
pub(crate) fn read<T>(
    path: &Path,
    files: &dyn Files,
    mut parse: impl FnMut(&Line) -> Result<T, Wrong>,
) -> Result<Vec<T>, FileErrors> {
    let mut reader = Reader { files, files_left: FILES_MAX, bytes_left: BYTES_MAX };
    let lines = reader.open(path, 0).map_err(|wrong| FileErrors(vec![wrong.of(path.into())]))?;
    let (mut parsed, mut errors) = (Vec::with_capacity(lines.len()), Vec::new());
    for line in lines {
        let made = line.and_then(|line| {
            let place = Place { file: &line.file, line: line.number };
            parse(&line).map_err(|wrong| place.error(wrong))
        });
        match made {
            Ok(made) => parsed.push(made),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(parsed) } else { Err(FileErrors(errors)) }
}

/// Where a line stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a Arc<Path>,
    line: usize,
}

impl Place<'_> {
    fn error(self, wrong: Wrong) -> LineError {
        LineError { line: Some(self.line), ..wrong.of(self.file.clone()) }
    }

    /// A path as it is meant in this file: beside the file, unless absolute.
    fn path(self, name: &str) -> PathBuf {
        self.file.parent().map_or_else(|| name.into(), |folder| folder.join(name))
    }
}

/// The lines of a file, each as far as it could be read.
type Lines = Vec<Result<Line, LineError>>;

struct Reader<'a> {
    files: &'a dyn Files,
    files_left: usize,
    bytes_left: usize,
}

impl Reader<'_> {
    /// The lines of a file; an error if it can't be read at all.
    fn open(&mut self, path: &Path, depth: usize) -> Result<Lines, Wrong> {
        let (text, file) = (self.text(path, depth)?, Arc::from(path));
        let mut lines = Vec::new();
        for (line, text) in logical_lines(&text) {
            self.line(Place { file: &file, line }, &text, depth, &mut lines);
        }
        Ok(lines)
    }

    fn text(&mut self, path: &Path, depth: usize) -> Result<String, Wrong> {
        let wrong = |what: &str, hint: &str| {
            Err(Wrong::new(format!("could not open file \"{}\": {what}", path.display()), hint))
        };
        if depth > DEPTH_MAX {
            return wrong("maximum nesting depth exceeded", "does it include itself?");
        }
        let Some(files_left) = self.files_left.checked_sub(1) else {
            return wrong("too many files", "do files include each other?");
        };
        self.files_left = files_left;
        let bytes = match self.files.read(path) {
            Ok(bytes) => bytes,
            Err(error) => return wrong(&error.to_string(), "check its name and permissions"),
        };
        let Some(bytes_left) = self.bytes_left.checked_sub(bytes.len()) else {
            return wrong("the files are too large", "they may have 4 MiB in all");
        };
        self.bytes_left = bytes_left;
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(text),
            _ => wrong("it is not UTF-8 text", "convert it to UTF-8"),
        }
    }

    /// Reads a line and, if it says so, the files that it includes.
    fn line(&mut self, place: Place<'_>, text: &str, depth: usize, lines: &mut Lines) {
        let fields = match self.fields(place, text, depth) {
            Ok(fields) if fields.is_empty() => return,
            Ok(fields) => fields,
            Err(error) => return lines.push(Err(error)),
        };
        let Some((directive, name)) = included(&fields) else {
            let (file, number) = (place.file.clone(), place.line);
            return lines.push(Ok(Line { file, number, fields }));
        };
        let paths = match self.paths(directive, place.path(name)) {
            Ok(paths) => paths,
            Err(wrong) => return lines.push(Err(place.error(wrong))),
        };
        for path in paths {
            match self.open(&path, depth + 1) {
                Ok(included) => lines.extend(included),
                Err(wrong) => lines.push(Err(place.error(wrong))),
            }
        }
    }

    fn fields(
        &mut self,
        place: Place<'_>,
        mut rest: &str,
        depth: usize,
    ) -> Result<Vec<Field>, LineError> {
        let mut fields = Vec::new();
        while let Some(field) = self.field(place, &mut rest, depth)? {
            fields.push(field);
        }
        Ok(fields)
    }

    /// The next field with the files in it; `None` at the line's end.
    fn field(
        &mut self,
        place: Place<'_>,
        rest: &mut &str,
        depth: usize,
    ) -> Result<Option<Field>, LineError> {
        let mut field = Vec::new();
        while let Some((token, comma)) = next_token(rest) {
            match token.text.strip_prefix('@') {
                Some(name) if !token.quoted && !name.is_empty() => {
                    self.expand(place, name, depth, &mut field)?;
                    if field.is_empty() && !comma {
                        let what = format!("there is nothing in file \"{name}\"");
                        let hint = "write a name into it, or delete this line";
                        return Err(place.error(Wrong::new(what, hint)));
                    }
                }
                _ => field.push(token),
            }
            if !comma {
                break;
            }
        }
        Ok((!field.is_empty()).then_some(field))
    }

    /// Adds all tokens of a file to a field.
    fn expand(
        &mut self,
        place: Place<'_>,
        name: &str,
        depth: usize,
        field: &mut Field,
    ) -> Result<(), LineError> {
        let lines = self.open(&place.path(name), depth + 1).map_err(|wrong| place.error(wrong))?;
        for line in lines {
            field.extend(line?.fields.into_iter().flatten());
        }
        Ok(())
    }

    /// The files that a directive includes.
    fn paths(&self, directive: Directive, path: PathBuf) -> Result<Vec<PathBuf>, Wrong> {
        match directive {
            Directive::IfExists if self.is_missing(&path) => Ok(Vec::new()),
            Directive::File | Directive::IfExists => Ok(vec![path]),
            Directive::Folder => self.configurations(&path),
        }
    }

    fn is_missing(&self, path: &Path) -> bool {
        self.files.read(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// The files of a folder that `include_dir` includes: `*.conf`, no hidden ones, sorted.
    fn configurations(&self, folder: &Path) -> Result<Vec<PathBuf>, Wrong> {
        let mut names = self.files.list(folder).map_err(|error| {
            Wrong::new(
                format!("could not open directory \"{}\": {error}", folder.display()),
                "check its name and permissions",
            )
        })?;
        names.retain(|name| name.ends_with(".conf") && !name.starts_with('.'));
        names.sort_unstable();
        Ok(names.into_iter().map(|name| folder.join(name)).collect())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    File,
    IfExists,
    Folder,
}

/// The directive of a line that includes others, and what it names. Quotes make no difference here.
fn included(fields: &[Field]) -> Option<(Directive, &str)> {
    let [first, second] = fields else { return None };
    let directive = match first[0].text.as_str() {
        "include" => Directive::File,
        "include_if_exists" => Directive::IfExists,
        "include_dir" => Directive::Folder,
        _ => return None,
    };
    Some((directive, &second[0].text))
}

/// Lines with the number of their first one, joined where a backslash ends one.
fn logical_lines(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut physical = text.lines().zip(1..);
    std::iter::from_fn(move || {
        let (first, number) = physical.next()?;
        let mut line = first.trim_end_matches('\r').to_owned();
        while line.ends_with('\\') {
            line.pop();
            let Some((next, _)) = physical.next() else { break };
            let next = next.trim_end_matches('\r');
            line.push_str(next);
            if next.is_empty() {
                // The backslash in front is not this line's.
                break;
            }
        }
        Some((number, line))
    })
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

/// Takes the next token off a line and says whether a comma follows it; `None` at the line's end. A quote
/// that isn't closed reaches to the end, as in PostgreSQL.
fn next_token(rest: &mut &str) -> Option<(Token, bool)> {
    *rest = rest.trim_start_matches(|c| is_blank(c) || c == ',');
    let mut token = Token { text: String::new(), quoted: rest.starts_with('"') };
    let mut inside = false;
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' if inside && chars.as_str().starts_with('"') => {
                token.text.extend(chars.next());
            }
            '"' => inside = !inside,
            c if inside => token.text.push(c),
            '#' => {
                *rest = "";
                break;
            }
            c if is_blank(c) || c == ',' => break,
            c => token.text.push(c),
        }
        *rest = chars.as_str();
    }
    (token.quoted || !token.text.is_empty()).then_some((token, rest.starts_with(',')))
}
