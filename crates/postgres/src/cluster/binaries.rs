//! Finding PostgreSQL's programs. Only `initdb` and `postgres` are needed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Error, Result, plain};

/// Oldest supported major version.
pub const MAJOR_MIN: u32 = 14;
/// Newest supported major version.
pub const MAJOR_MAX: u32 = 18;

/// The programs that must be there.
const PROGRAMS: [&str; 2] = ["initdb", "postgres"];
/// Where distributions keep one directory for each major version, and what follows the version.
const VERSIONED: [(&str, &str); 2] = [("/usr/lib/postgresql", "bin"), ("/usr", "bin")];

/// An installation of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    /// The directory of its programs.
    pub dir: PathBuf,
    /// Its major version.
    pub major: u32,
}

impl Binaries {
    /// The path of one program.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Finds an installation: the directory that the operator named, else the `PATH`, else the
    /// newest supported one where distributions put them. If data exist already, it must be of
    /// the major version that made them.
    ///
    /// # Errors
    /// One line that says what to install or to pass.
    pub fn find(named: Option<&Path>, made_with: Option<u32>) -> Result<Binaries> {
        match named {
            Some(dir) => Binaries::named(dir, made_with),
            None => choose(&candidates(), made_with),
        }
    }

    fn named(dir: &Path, made_with: Option<u32>) -> Result<Binaries> {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
        let lacking: Vec<&str> =
            PROGRAMS.into_iter().filter(|program| !dir.join(program).is_file()).collect();
        if !lacking.is_empty() {
            return Err(Error::Refused(format!(
                "no {} in {}: pass the directory of PostgreSQL's server programs with --pg-bin",
                lacking.join(" and no "),
                dir.display()
            )));
        }
        let found = Binaries { major: version_of(&dir)?, dir };
        check_supported(&found)?;
        match made_with {
            Some(major) if major != found.major => Err(Error::Refused(format!(
                "the data were made with PostgreSQL {major}, but {} holds version {}: pass the \
                 directory of PostgreSQL {major} with --pg-bin",
                found.dir.display(),
                found.major
            ))),
            _ => Ok(found),
        }
    }
}

/// The major version that a data directory was made with, if it is one.
#[must_use]
pub fn made_with(data: &Path) -> Option<u32> {
    std::fs::read_to_string(data.join("PG_VERSION")).ok()?.trim().parse().ok()
}

fn candidates() -> Vec<Binaries> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs = dirs_on_path(&path);
    for (base, tail) in VERSIONED {
        dirs.extend(versioned_dirs(Path::new(base), tail));
    }
    dirs.into_iter()
        .filter(|dir| PROGRAMS.iter().all(|program| dir.join(program).is_file()))
        .filter_map(|dir| Some(Binaries { major: version_of(&dir).ok()?, dir }))
        .collect()
}

/// The directories on the `PATH`, and those that the programs there are links into.
fn dirs_on_path(path: &OsString) -> Vec<PathBuf> {
    std::env::split_paths(path)
        .flat_map(|dir| {
            let real = dir.join("postgres").canonicalize().ok();
            let real = real.and_then(|program| program.parent().map(Path::to_path_buf));
            [Some(dir), real].into_iter().flatten()
        })
        .collect()
}

/// `base/15/bin` (Debian) and `base/pgsql-15/bin` (Red Hat), newest first.
fn versioned_dirs(base: &Path, tail: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(base) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let major = name.strip_prefix("pgsql-").unwrap_or(&name).parse().ok()?;
            Some((major, entry.path().join(tail)))
        })
        .collect();
    found.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    found.into_iter().map(|(_, dir)| dir).collect()
}

/// The first fitting candidate: of the version that made the data, else supported.
fn choose(candidates: &[Binaries], made_with: Option<u32>) -> Result<Binaries> {
    let fits = |candidate: &&Binaries| match made_with {
        Some(major) => candidate.major == major,
        None => (MAJOR_MIN..=MAJOR_MAX).contains(&candidate.major),
    };
    if let Some(found) = candidates.iter().find(fits) {
        check_supported(found)?;
        return Ok(found.clone());
    }
    Err(Error::Refused(match (made_with, candidates.first()) {
        (Some(major), _) => format!(
            "the data were made with PostgreSQL {major}, which is not found here: install it \
             (Debian, Ubuntu: apt-get install postgresql-{major}) or pass its directory with \
             --pg-bin"
        ),
        (None, Some(found)) => unsupported(found),
        (None, None) => format!(
            "PostgreSQL's server programs are not found: install PostgreSQL {MAJOR_MIN} to \
             {MAJOR_MAX} (Debian, Ubuntu: apt-get install postgresql) or pass their directory \
             with --pg-bin"
        ),
    }))
}

fn check_supported(found: &Binaries) -> Result<()> {
    match (MAJOR_MIN..=MAJOR_MAX).contains(&found.major) {
        true => Ok(()),
        false => Err(Error::Refused(unsupported(found))),
    }
}

fn unsupported(found: &Binaries) -> String {
    format!(
        "PostgreSQL {} in {} is not supported: install version {MAJOR_MIN} to {MAJOR_MAX} or \
         pass its directory with --pg-bin",
        found.major,
        found.dir.display()
    )
}

fn version_of(dir: &Path) -> Result<u32> {
    let program = dir.join("postgres");
    let answer = Command::new(&program).arg("--version").output().map_err(|error| {
        Error::Refused(format!("cannot run {}: {}", program.display(), plain(&error)))
    })?;
    let text = String::from_utf8_lossy(&answer.stdout);
    major_of(&text)
        .ok_or_else(|| Error::Refused(format!("{} --version prints no version", program.display())))
}

/// The major version in `postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)` or `… 19beta1`.
fn major_of(text: &str) -> Option<u32> {
    let version = text.split_once("(PostgreSQL)")?.1.trim_start();
    let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(dir: &str, major: u32) -> Binaries {
        Binaries { dir: dir.into(), major }
    }

    #[test]
    fn versions_of_releases_and_betas_are_read() {
        assert_eq!(major_of("postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)\n"), Some(15));
        assert_eq!(major_of("postgres (PostgreSQL) 19beta1\n"), Some(19));
        assert_eq!(major_of("postgres (PostgreSQL) 9.6.24\n"), Some(9));
        assert_eq!(major_of("mysqld 8\n"), None);
    }

    #[test]
    fn the_first_supported_candidate_is_taken() {
        let found = choose(&[at("/a", 13), at("/b", 16), at("/c", 17)], None);
        assert_eq!(found.expect("one fits"), at("/b", 16));
    }

    #[test]
    fn data_are_run_by_the_version_that_made_them() {
        let found = choose(&[at("/b", 16), at("/c", 15)], Some(15));
        assert_eq!(found.expect("one fits"), at("/c", 15));
        let error = choose(&[at("/b", 16)], Some(15)).expect_err("none fits");
        assert!(error.to_string().contains("postgresql-15"), "{error}");
    }

    #[test]
    fn missing_and_too_old_say_what_to_install() {
        let missing = choose(&[], None).expect_err("nothing there").to_string();
        assert!(missing.contains("apt-get install postgresql"), "{missing}");
        let old = choose(&[at("/old", 13)], None).expect_err("too old").to_string();
        assert!(old.contains("PostgreSQL 13 in /old is not supported"), "{old}");
    }

    #[test]
    fn a_named_directory_without_the_programs_is_refused() {
        let error = Binaries::find(Some(Path::new("/nonexistent")), None).expect_err("empty");
        assert!(error.to_string().contains("no initdb and no postgres"), "{error}");
    }
}
