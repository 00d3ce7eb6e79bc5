"""The drivers, and how what they need is fetched into .tools/drivers: by each language's own package manager,
in the versions of its own manifest beside the programs. Nothing is installed."""

import hashlib
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOOLS = ROOT / ".tools" / "drivers"
HIHOOI = pathlib.Path(os.environ.get("HIHOOI_BIN") or ROOT / "target" / "debug" / "hihooi").resolve()
# psqlODBC and the driver manager that it is loaded by; pyodbc is linked with it.
DEBIAN = ("odbc-postgresql", "libodbc2", "libodbcinst2", "libltdl7", "libpq5")
FETCH_SECONDS_MAX = 600


class Missing(Exception):
    """Why something can't be had here."""


def answer(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def server_owner():
    """Options for processes of the user who runs servers: root may not."""
    if os.getuid() != 0:
        return {}
    user = next(pwd.getpwnam(name) for name in (os.environ.get("HIHOOI_OS_USER"), "postgres", "nobody")
                if name and any(name == known.pw_name for known in pwd.getpwall()))
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def do(*command, cwd=HERE, **environment):
    """Runs a package manager or a compiler; its last line says why it failed."""
    if not shutil.which(command[0]):
        raise Missing(f"{command[0]} is not there")
    try:
        done = subprocess.run(command, cwd=cwd, env=os.environ | environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=FETCH_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} has not ended after {FETCH_SECONDS_MAX} s") from None
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines() or ["without a word"]
        told = [line for line in lines if "error" in line.lower()] or lines
        raise Missing(f"{' '.join(command[:2])}: {told[0]}")
    return done.stdout


def once(name, manifests, make):
    """A folder that `make` fills; again only if what it is made of changes."""
    text = b"".join((HERE / file).read_bytes() for file in manifests) + f"{sys.version_info[:2]}".encode()
    folder = TOOLS / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"
    if not folder.exists():
        TOOLS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=TOOLS) as made:
            made = pathlib.Path(made) / "new"
            made.mkdir()
            make(made)
            made.rename(folder)
    return folder


class Python:
    """Wheels, from requirements.txt."""

    @staticmethod
    def packages():
        def make(folder):
            do(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary", ":all:", "--target", str(folder), "--requirement", "python/requirements.txt")
        return once("python", ["python/requirements.txt"], make)

    def __init__(self, name, is_fast=False):
        self.name, self.is_fast = name, is_fast

    def fetch(self):
        self.path = str(self.packages())

    def command(self):
        return [sys.executable, "-B", f"python/use_{self.name}.py"]

    def environment(self):
        return {"PYTHONPATH": self.path}


class Odbc(Python):
    """psqlODBC is a library of Debian; it is used by pyodbc."""

    def fetch(self):
        def make(folder):
            # As Debian's current release has them: its archive keeps no other versions.
            do("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *DEBIAN, cwd=folder)
            for package in folder.glob("*.deb"):
                do("dpkg-deb", "-x", str(package), str(folder))
                package.unlink()
        super().fetch()
        folder = once("odbc", [], make)
        self.libraries = str(next(folder.glob("usr/lib/*/odbc")).parent)

    def environment(self):
        return super().environment() | {
            "LD_LIBRARY_PATH": self.libraries, "ODBC_DRIVER": f"{self.libraries}/odbc/psqlodbcw.so"}


class Node:
    """npm's packages, from package-lock.json."""

    def __init__(self, name, is_fast=False):
        self.name, self.is_fast = name, is_fast

    def fetch(self):
        def make(folder):
            for file in ("package.json", "package-lock.json"):
                shutil.copy(HERE / "node" / file, folder)
            do("npm", "ci", "--silent", "--omit=optional", "--omit=peer", "--ignore-scripts", cwd=folder)
        self.folder = once("node", ["node/package.json", "node/package-lock.json"], make)
        do("node", "--version")

    def command(self):
        # A module's own packages are looked for beside it, so that the programs are copied there.
        for program in (HERE / "node").glob("*.mjs"):
            copy = self.folder / program.name
            if not copy.exists() or copy.read_bytes() != program.read_bytes():
                shutil.copy(program, copy)
        return ["node", "--no-deprecation", str(self.folder / f"use_{self.name}.mjs")]

    def environment(self):
        return {}


class Go:
    """Modules of go.mod, checked by go.sum; compiled."""

    def __init__(self, name, is_fast=False):
        self.name, self.is_fast = name, is_fast

    def fetch(self):
        self.program = TOOLS / "go" / self.name
        do("go", "build", "-mod=readonly", "-o", str(self.program), f"./{self.name}", cwd=HERE / "go")

    def command(self):
        return [str(self.program)]

    def environment(self):
        return {}


class Java:
    """Libraries of pom.xml, by Maven; compiled."""

    def __init__(self, name, main, is_fast=False):
        self.name, self.main, self.is_fast = name, main, is_fast

    def fetch(self):
        def libraries(folder):
            do("mvn", "-q", "-B", "-f", "java/pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={folder}")

        def classes(folder):
            do("javac", "-cp", f"{self.libraries}/*", "-d", str(folder), *sources)
        sources = sorted(str(file.relative_to(HERE)) for file in (HERE / "java").glob("*.java"))
        self.libraries = once("java", ["java/pom.xml"], libraries)
        self.classes = once("classes", ["java/pom.xml", *sources], classes)

    def command(self):
        # Without a second compiler it starts faster.
        return ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{self.libraries}/*:{self.classes}", self.main]

    def environment(self):
        return {}


class Rust:
    """Crates of Cargo.lock; compiled."""

    def __init__(self, name, is_fast=False):
        self.name, self.is_fast = name, is_fast

    def fetch(self):
        do(os.environ.get("CARGO", "cargo"), "build", "--quiet", "--locked", "--bin", f"use_{self.name}",
           cwd=HERE / "rust", CARGO_TARGET_DIR=str(TOOLS / "rust"))

    def command(self):
        return [str(TOOLS / "rust" / "debug" / f"use_{self.name}")]

    def environment(self):
        return {}


DRIVERS = (
    Python("psycopg", is_fast=True),
    Python("asyncpg"),
    Python("sqlalchemy"),
    Python("django"),
    Java("pgjdbc", "UsePgjdbc", is_fast=True),
    Java("hibernate", "UseHibernate"),
    Node("pg", is_fast=True),
    Node("drizzle"),
    Go("pgx", is_fast=True),
    Go("pq"),
    Go("gorm"),
    Rust("tokio_postgres"),
    Rust("sqlx"),
    Odbc("odbc"),
)


def fetch(drivers):
    """Gets what these need: why what is left out can't be had, by driver."""
    missing = {}
    for driver in drivers:
        try:
            driver.fetch()
        except Missing as missed:
            missing[driver.name] = str(missed)
    return missing
