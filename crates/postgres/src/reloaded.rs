//! What is made of files, such as certificates and rules of authentication, and made again when these have changed:
//! a connection that begins gets what the files say then, without a restart. Looking costs a `stat` for each file.

use std::cell::RefCell;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tracing::{info, warn};

/// Something made of files. Files that can't be used change nothing: the log says so, once.
pub struct Reloaded<T> {
    /// What it is, for the log.
    what: &'static str,
    load: Box<Load<T>>,
    current: RefCell<Current<T>>,
}

/// Makes it, reading files through its argument; what is wrong with them.
type Load<T> = dyn Fn(&Files) -> Result<T, String> + Send;

struct Current<T> {
    value: T,
    files: Files,
}

/// The files that were read, each with what it was like before.
#[derive(Default)]
pub struct Files(RefCell<Vec<(PathBuf, Option<Stamp>)>>);

/// A file's device, number, length, and time of its last change in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

impl<T: Clone> Reloaded<T> {
    /// Makes it for the first time. `load` reads files through its argument.
    ///
    /// # Errors
    /// Those of `load`, which name the file.
    pub fn new(
        what: &'static str,
        load: impl Fn(&Files) -> Result<T, String> + Send + 'static,
    ) -> Result<Reloaded<T>, String> {
        let files = Files::default();
        let value = load(&files)?;
        let current = RefCell::new(Current { value, files });
        Ok(Reloaded { what, load: Box::new(load), current })
    }

    /// It, as the files are now.
    #[must_use]
    pub fn get(&self) -> T {
        let mut current = self.current.borrow_mut();
        if current.files.have_changed() {
            let files = Files::default();
            match (self.load)(&files) {
                Ok(value) => {
                    info!("the changed {} is in use", self.what);
                    current.value = value;
                }
                Err(why) => {
                    warn!(why, "the changed {} can't be used; the former stays in use", self.what);
                }
            }
            current.files = files;
        }
        current.value.clone()
    }
}

impl<T> fmt::Debug for Reloaded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reloaded").field(&self.what).finish()
    }
}

impl Files {
    /// Reads a file.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.note(path);
        fs::read(path)
    }

    /// To be called before reading: a change meanwhile is seen later.
    fn note(&self, path: &Path) {
        self.0.borrow_mut().push((path.to_owned(), stamp(path)));
    }

    fn have_changed(&self) -> bool {
        self.0.borrow().iter().any(|(path, then)| stamp(path) != *then)
    }
}

/// Rules include files, and all files of a folder.
impl hihooi_auth::files::Files for Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Files::read(self, path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.note(folder);
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // A link to a file counts as one.
            if fs::metadata(entry.path()).is_ok_and(|found| found.is_file())
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A changed file is used at the next look; one that can't be used, or has gone, changes nothing.
    #[test]
    fn changed_files_are_loaded_again() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("number");
        let write = |text: &str| fs::write(&path, text).expect("own directory");
        let load = {
            let path = path.clone();
            move |files: &Files| {
                let text = files.read(&path).map_err(|error| format!("number: {error}"))?;
                String::from_utf8_lossy(&text).parse::<u32>().map_err(|error| error.to_string())
            }
        };
        let why = Reloaded::new("number", load.clone()).expect_err("there is no file");
        assert!(why.contains("number"), "{why}");
        write("1");
        let number = Reloaded::new("number", load).expect("a number");
        assert_eq!(number.get(), 1);
        write("22");
        assert_eq!(number.get(), 22);
        write("none");
        assert_eq!((number.get(), number.get()), (22, 22));
        fs::remove_file(&path).expect("own directory");
        assert_eq!(number.get(), 22);
        write("333");
        assert_eq!(number.get(), 333);
    }
}
