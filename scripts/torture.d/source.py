"""Gets PostgreSQL's own regression suite and builds what its tests load into servers.

Debian's source package of the installed server is downloaded with apt directories of our own, so
that the machine's package lists and sources stay as they are; nothing is installed either. It is
kept below `.tools`. `HIHOOI_TORTURE_SOURCE` names an unpacked source tree instead.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

from trouble import Skipped

MAJOR = "15"
CACHE = pathlib.Path(".tools/torture")
# Of the source tree; spi holds the triggers refint and autoinc.
PARTS = ("src/test/regress/", "contrib/spi/")
LIBRARIES = {
    "regress": "src/test/regress/regress.c",
    "refint": "contrib/spi/refint.c",
    "autoinc": "contrib/spi/autoinc.c",
}
# What src/test/regress/pg_regress.c set until 2024, should another tree not say it.
TIME_ZONE = "PST8PDT"


class Suite:
    """The suite's files and the time zone that its expected output is for."""

    def __init__(self, version, tree, libraries):
        self.version = version
        self.files = tree / "src/test/regress"
        self.libraries = libraries
        runner = self.files / "pg_regress.c"
        found = runner.exists() and re.search(r'setenv\("PGTZ", "([^"]+)"', runner.read_text())
        self.time_zone = found[1] if found else TIME_ZONE


@contextlib.contextmanager
def alone():
    """While another run fills the cache, waits for it: it will find there what it needs."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def get(pg_bin, say):
    """The suite for the server programs in `pg_bin`, built."""
    with alone():
        return get_alone(pg_bin, say)


def get_alone(pg_bin, say):
    """The same, by the only run that gets it now."""
    server = server_version(pg_bin)
    given = os.environ.get("HIHOOI_TORTURE_SOURCE")
    if given:
        tree = pathlib.Path(given).resolve()
        for path in ("src/test/regress/parallel_schedule", *LIBRARIES.values()):
            if not (tree / path).exists():
                raise Skipped(f"HIHOOI_TORTURE_SOURCE={given} holds no {path}")
        version = "given"
    else:
        version, tree = from_debian(server, say)
    code = b"".join((tree / path).read_bytes() for path in LIBRARIES.values())
    digest = hashlib.sha256(code).hexdigest()[:8]
    libraries = CACHE.resolve() / f"lib-{version}-{digest}-server-{server}"
    build(tree, libraries, pg_bin, server, say)
    return Suite(version, tree, libraries)


def get_any(work):
    """A suite of any version, without its functions in C."""
    tree = pathlib.Path(os.environ.get("HIHOOI_TORTURE_SOURCE", "")).resolve()
    if not (tree / "src/test/regress/parallel_schedule").exists():
        raise Skipped("HIHOOI_TORTURE_SOURCE names no unpacked source tree of PostgreSQL")
    libraries = work / "no-libraries"
    libraries.mkdir()
    return Suite("given", tree, libraries)


def server_version(pg_bin, any_version=False):
    """15.18, say."""
    text = output([pg_bin / "postgres", "--version"])
    found = re.search(r"\(PostgreSQL\) (\d+)\.(\d+)", text)
    if not found or found[1] != MAJOR and not any_version:
        raise Skipped(f"the suite is that of PostgreSQL {MAJOR}; {pg_bin} is {text.strip()}")
    return f"{found[1]}.{found[2]}"


def from_debian(server, say):
    """Version and directory of the unpacked source; that of the installed server if it is still
    to be had, else the newest, of which some tests then differ on the plain server too."""
    for version in (server, "newest"):
        tree = CACHE.resolve() / f"source-{version}"
        if tree.exists():
            return version, tree
    for program in ("apt-get", "dpkg-query", "dpkg-deb"):
        if not shutil.which(program):
            raise Skipped(
                f"{program} is missing: this is no Debian; unpack PostgreSQL {MAJOR}'s source and"
                " name its directory in HIHOOI_TORTURE_SOURCE"
            )
    say(f"getting the source package of PostgreSQL {server}")
    apt = Apt(CACHE.resolve() / "apt")
    package = f"postgresql-{MAJOR}"
    exact = output(["dpkg-query", "-W", "-f", "${Version}", package], check=False)
    source = ["source", "--download-only", "--tar-only"]
    version = server
    if not (exact and apt.run(*source, f"{package}={exact}")):
        version = "newest"
        if not apt.run(*source, package):
            raise Skipped(
                f"the source package {package} can't be downloaded ({apt.why_not()}); name an"
                " unpacked source in HIHOOI_TORTURE_SOURCE"
            )
    tree = CACHE.resolve() / f"source-{version}"
    archives = sorted(apt.folder.glob(f"{package}_*.orig.tar.*"))
    unpack(archives[-1], tree)
    shutil.rmtree(apt.folder)
    return version, tree


class Apt:
    """apt-get with lists, cache and sources of its own: source packages are fetched from where
    the machine has this distribution from."""

    def __init__(self, folder):
        self.folder = folder
        self.said = self.error = ""
        shutil.rmtree(folder, ignore_errors=True)
        for part in ("lists/partial", "cache/archives/partial", "etc"):
            (folder / part).mkdir(parents=True)
        self.options = [
            "Dir::Etc::sourcelist=/dev/null",
            f"Dir::Etc::sourceparts={folder}/etc",
            f"Dir::State={folder}",
            "Dir::State::status=/var/lib/dpkg/status",
            f"Dir::Cache={folder}/cache",
            "APT::Sandbox::User=root",
        ]
        self.add_sources()
        self.fetched = self.run("update") and "Failed to fetch" not in self.said

    def add_sources(self):
        """The machine's own, with `deb-src` beside `deb`. Only those of the distribution's suites
        (bookworm, bookworm-security …): others have no source packages for us."""
        about = pathlib.Path("/etc/os-release").read_text()
        found = re.search(r"^VERSION_CODENAME=(\w+)", about, re.M)
        codename = found[1] if found else "stable"
        folder = pathlib.Path("/etc/apt")
        files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
        for number, file in enumerate(file for file in files if file.is_file()):
            text = file.read_text()
            if file.suffix == ".sources":
                stanzas = re.split(r"\n\s*\n", text)
                ours = [s for s in stanzas if re.search(rf"^Suites:.*\b{codename}", s, re.M)]
                text = re.sub(r"^Types:.*$", "Types: deb deb-src", "\n\n".join(ours), flags=re.M)
            elif file.suffix == ".list":
                lines = re.findall(rf"^deb\s.*\s{codename}[\w/-]*\s.*$", text, re.M)
                text = "\n".join(line + "\n" + re.sub("^deb", "deb-src", line) for line in lines)
            else:
                continue
            (self.folder / "etc" / f"{number}{file.suffix}").write_text(text + "\n")

    def run(self, *words):
        """Whether it succeeded; if not, `error` tells why. Files land in the folder."""
        options = [word for option in self.options for word in ("-o", option)]
        done = subprocess.run(
            ["apt-get", "-q", *options, *words], cwd=self.folder, capture_output=True, text=True
        )
        self.said = done.stderr
        errors = re.findall(r"^E: (.*)$", done.stderr, re.M)
        self.error = errors[0] if errors else "apt-get failed"
        return done.returncode == 0

    def why_not(self):
        """Why the last command failed: without package lists it had no chance."""
        return self.error if self.fetched else "the package lists can't be fetched: offline?"


def unpack(archive, tree):
    """The parts of the archive that we need, all or nothing."""
    draft = tree.with_suffix(".new")
    shutil.rmtree(draft, ignore_errors=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, path = member.name.partition("/")
            if member.isfile() and path.startswith(PARTS):
                member.name = path
                tar.extract(member, draft)
    draft.rename(tree)


def build(tree, libraries, pg_bin, server, say):
    """Compiles the functions in C that tests define, where missing."""
    if all((libraries / f"{name}.so").exists() for name in LIBRARIES):
        return
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        raise Skipped("a C compiler is missing: run scripts/setup")
    headers = server_headers(pg_bin, server, say)
    say("building regress.so, refint.so and autoinc.so")
    libraries.mkdir(parents=True, exist_ok=True)
    for name, path in LIBRARIES.items():
        include = [f"-I{folder}" for folder in headers]
        draft = libraries / f"{name}.new"
        # refint says what it cascades to, as src/test/regress/GNUmakefile wants it.
        flags = ["-O1", "-w", "-fPIC", "-shared", "-DREFINT_VERBOSE"]
        command = [compiler, *flags, *include, tree / path, "-o", draft]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Skipped(f"{path} can't be compiled: {done.stderr.strip().splitlines()[0]}")
        draft.rename(libraries / f"{name}.so")


def server_headers(pg_bin, server, say):
    """Directories of PostgreSQL's server headers. Installing the package would also upgrade
    servers, so it is only unpacked."""
    config = pg_bin / "pg_config"
    if config.exists():
        installed = pathlib.Path(output([config, "--includedir-server"]).strip())
        if (installed / "postgres.h").exists():
            return [installed]
    unpacked = CACHE.resolve() / f"headers-{server}"
    if not unpacked.exists():
        package = f"postgresql-server-dev-{MAJOR}"
        if not shutil.which("apt-get"):
            raise Skipped(f"PostgreSQL's server headers are missing: install {package}")
        say(f"getting PostgreSQL's server headers ({package}, not installed)")
        apt = Apt(CACHE.resolve() / "apt")
        query = ["dpkg-query", "-W", "-f", "${Version}", f"postgresql-{MAJOR}"]
        exact = output(query, check=False)
        wanted = [f"{package}={exact}", package]
        if not any(apt.run("download", name) for name in wanted):
            raise Skipped(f"{package} is neither installed nor can be downloaded ({apt.why_not()})")
        draft = unpacked.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        archive = next(apt.folder.glob(f"{package}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", archive, draft], check=True)
        draft.rename(unpacked)
        shutil.rmtree(apt.folder)
    include = unpacked / "usr/include/postgresql"
    return [include / MAJOR / "server", include, include / "internal"]


def output(command, check=True):
    """What a command prints; nothing if it fails and that is fine."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        if check:
            raise Skipped(f"{command[0]}: {done.stderr.strip()}")
        return ""
    return done.stdout
