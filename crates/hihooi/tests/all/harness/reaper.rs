//! A folder for the servers of a test, and a shell that outlives the test process, however that
//! ends: it stops the servers whose data lie in the folder and removes it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Waits for the end of its input, then stops every process that works in folder `$1` (a
/// PostgreSQL server's working directory is its data folder) or whose pid is in
/// `$1/manager.pid` and whose command line names the folder. Processes of servers that a test froze
/// (`$1/frozen.pids`) go on, so that they notice.
const SCRIPT: &str = r#"
trap '' INT TERM
read -r _
ours() {
    for pid in $(cat "$1/manager.pid" 2>/dev/null); do
        grep -qa "$1" "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
    done
    find "$1" -name postmaster.pid 2>/dev/null | while read -r file; do
        pid=$(head -n 1 "$file")
        case $(readlink "/proc/$pid/cwd") in "$1"*) echo "$pid" ;; esac
    done
}
for pid in $(cat "$1/manager.pid" 2>/dev/null); do
    grep -qa "$1" "/proc/$pid/cmdline" 2>/dev/null && kill -9 "$pid" 2>/dev/null
done
for pid in $(cat "$1/frozen.pids" 2>/dev/null); do
    case $(readlink "/proc/$pid/cwd") in "$1"*) kill -CONT "$pid" 2>/dev/null ;; esac
done
for pid in $(ours "$1"); do kill -QUIT "$pid" 2>/dev/null; done
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -z "$(ours "$1")" ] && break
    sleep 0.1
done
for pid in $(ours "$1"); do kill -9 "$pid" 2>/dev/null; done
[ -n "$HIHOOI_TEST_KEEP" ] || rm -rf "$1"
"#;

/// A folder whose servers end with it.
pub struct Folder {
    path: PathBuf,
    reaper: Child,
}

impl Folder {
    /// Makes a folder that the user of the PostgreSQL servers can traverse.
    pub fn new() -> Folder {
        let folder = tempfile::Builder::new().prefix("hihooi-test-").tempdir().expect("a folder");
        let path = folder.keep();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("own folder");
        let reaper = Command::new("sh")
            .args(["-c", SCRIPT, "reaper"])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh");
        Folder { path, reaper }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(mut input) = self.reaper.stdin.take() {
            // It reads the end of its input all the same.
            let _ = input.write_all(b"\n");
        }
        let _ = self.reaper.wait();
    }
}
