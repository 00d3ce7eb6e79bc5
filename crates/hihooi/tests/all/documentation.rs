//! What comments and documents cite is defined: invariants and their rules, algorithms of the paper,
//! decisions, files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the project")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below `folder` whose names end so.
fn files(folder: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            files(&path, ends, found);
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

/// Sources, scripts and documents, with their texts.
fn texts() -> Vec<(PathBuf, String)> {
    let mut paths =
        vec![root().join("README.md"), root().join("CHANGELOG.md"), root().join("Makefile")];
    files(&root().join("crates"), &[".rs", ".sql", ".toml", ".md"], &mut paths);
    files(&root().join("docs"), &[".md"], &mut paths);
    files(&root().join("scripts"), &[".sh", ".py", "test", "bench", "demo"], &mut paths);
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// The numbers that stand behind a word, as whole words: `I` finds 3 in `(I3)`.
fn cited(text: &str, word: &str) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(word) {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if text[..at].chars().next_back().is_some_and(is_word) {
            continue;
        }
        let rest = &text[at + word.len()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if !rest[digits..].chars().next().is_some_and(is_word) {
            found.extend(rest[..digits].parse::<u32>());
        }
    }
    found
}

#[test]
fn cited_invariants_and_rules_are_defined() {
    let invariants = read(root().join("docs/invariants.md"));
    let defined = |heading: &str, number| invariants.contains(&format!("{heading}{number}"));
    for (path, text) in texts() {
        for number in cited(&text, "I") {
            assert!(defined("## I", number), "{}: I{number}", path.display());
        }
        // The word "rule" may end a line of a comment.
        let text = text.replace("\n//! ", " ").replace("\n/// ", " ");
        for number in cited(&text.replace('(', ""), "rule ") {
            assert!(defined("**Rule (", number), "{}: rule ({number})", path.display());
        }
    }
}

#[test]
fn algorithms_of_the_paper_are_found_both_ways() {
    let paper = read(root().join("docs/paper.md"));
    for number in 1..=4 {
        let row = paper.lines().find(|line| line.starts_with(&format!("| Algorithm {number} ")));
        let row = row.unwrap_or_else(|| panic!("docs/paper.md lacks Algorithm {number}"));
        let (_, file) = row.rsplit_once("](").expect("a link");
        let file = file.split(')').next().expect("its end");
        let text = read(root().join("docs").join(file));
        assert!(text.contains(&format!("Algorithm {number}")), "{file}: Algorithm {number}");
    }
}

#[test]
fn metrics_that_are_named_exist() {
    let (page, known) =
        (read(root().join("docs/operating.md")), read(root().join("docs/metrics.md")));
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut count = 0;
    for (_, rest) in page.match_indices("`hihooi_").map(|(at, _)| page.split_at(at + 1)) {
        let name = rest.split(|c| !is_part(c)).next().expect("its beginning");
        assert!(known.contains(&format!("| `{name}` |")), "docs/operating.md: {name}");
        count += 1;
    }
    assert!(count > 5);
}

#[test]
fn links_lead_somewhere() {
    let mut documents = vec![root().join("README.md")];
    files(&root().join("docs"), &[".md"], &mut documents);
    for document in documents {
        let text = read(&document);
        let folder = document.parent().expect("a folder");
        for (_, rest) in text.match_indices("](").map(|(at, _)| text.split_at(at + 2)) {
            let target = rest.split(')').next().expect("its end");
            if target.starts_with("http") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { document.clone() } else { folder.join(file) };
            assert!(file.exists(), "{}: {target}", document.display());
            let known =
                || read(&file).lines().any(|line| line.starts_with('#') && anchor(line) == heading);
            assert!(heading.is_empty() || known(), "{}: {target}", document.display());
        }
    }
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
