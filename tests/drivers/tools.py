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


class Broken(Exception):
    """Why a program can't be compiled, though all that it needs is there."""


def answer(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def server_owner():
    """Options for processes of the user who runs servers: root may not."""
    if os.getuid() != 0:
        return {}
    user = next(pwd.getpwnam(name) for name in (os.environ.get("HIHOOI_OS_USER"), "postgres", "nobody")
                if name and any(name == known.pw_name for known in pwd.getpwall()))
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def do(*command, cwd=HERE, failure=Missing, **environment):
    """Runs a package manager or a compiler; raises `failure` with what it says."""
    name = pathlib.Path(command[0]).name
    if not shutil.which(command[0]):
        raise Missing(f"{name} is not there")
    try:
        done = subprocess.run(command, cwd=cwd, env=os.environ | environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=FETCH_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise failure(f"{name} has not ended after {FETCH_SECONDS_MAX} s") from None
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines() or ["without a word"]
        told = [line for line in lines if "error" in line.lower()] or lines[-1:]
        raise failure(f"{name}: {told[0]}")


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


class Driver:
    """A program for a driver, and how it is run; of one language."""

    def __init__(self, name, is_fast=False):
        self.name, self.is_fast = name, is_fast

    def compile(self):
        """Not everything is compiled."""

    def environment(self):
        """What it needs beside the server's address."""
        return {}


class Python(Driver):
    """Wheels, from requirements.txt."""

    def fetch(self):
        def make(folder):
            do(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary", ":all:", "--target", str(folder), "--requirement", "python/requirements.txt")
        self.path = str(once("python", ["python/requirements.txt"], make))

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


class Node(Driver):
    """npm's packages, from package-lock.json."""

    def fetch(self):
        def make(folder):
            for file in ("package.json", "package-lock.json"):
                shutil.copy(HERE / "node" / file, folder)
            do("npm", "ci", "--loglevel=error", "--omit=optional", "--omit=peer", "--ignore-scripts", cwd=folder)
        self.folder = once("node", ["node/package.json", "node/package-lock.json"], make)
        do("node", "--version")

    def command(self):
        # A module's own packages are looked for beside it, so that the programs are copied there.
        for program in (HERE / "node").glob("*.mjs"):
            copy = self.folder / program.name
            if not copy.exists() or copy.read_bytes() != program.read_bytes():
                shutil.copy(program, copy)
        return ["node", "--no-deprecation", str(self.folder / f"use_{self.name}.mjs")]


class Go(Driver):
    """Modules of go.mod, checked by go.sum; compiled."""

    def fetch(self):
        do("go", "mod", "download", cwd=HERE / "go")

    def compile(self):
        do("go", "build", "-mod=readonly", "-o", str(self.program()), f"./{self.name}", cwd=HERE / "go", failure=Broken)

    def program(self):
        return TOOLS / "go" / self.name

    def command(self):
        return [str(self.program())]


class Java(Driver):
    """Libraries of pom.xml, by Maven; compiled."""

    def fetch(self):
        def make(folder):
            do("mvn", "-q", "-B", "-f", "java/pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={folder}")
        self.libraries = once("java", ["java/pom.xml"], make)

    def compile(self):
        def make(folder):
            do("javac", "-cp", f"{self.libraries}/*", "-d", str(folder), *sources, failure=Broken)
        sources = sorted(str(file.relative_to(HERE)) for file in (HERE / "java").glob("*.java"))
        self.classes = once("classes", ["java/pom.xml", *sources], make)

    def command(self):
        # Without a second compiler it starts faster.
        return ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{self.libraries}/*:{self.classes}",
                f"Use{self.name.capitalize()}"]


class Rust(Driver):
    """Crates of Cargo.lock; compiled."""

    cargo = os.environ.get("CARGO", "cargo")

    def fetch(self):
        do(self.cargo, "fetch", "--quiet", "--locked", cwd=HERE / "rust")

    def compile(self):
        do(self.cargo, "build", "--quiet", "--locked", "--bin", f"use_{self.name}", cwd=HERE / "rust",
           failure=Broken, CARGO_TARGET_DIR=str(TOOLS / "rust"))

    def command(self):
        return [str(TOOLS / "rust" / "debug" / f"use_{self.name}")]


DRIVERS = (
    Python("psycopg", is_fast=True),
    Python("asyncpg"),
    Python("sqlalchemy"),
    Python("django"),
    Java("pgjdbc", is_fast=True),
    Java("hibernate"),
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
    """Gets what these need, and compiles them: why some are left out, and why some fail already, by name."""
    missing, broken = {}, {}
    for driver in drivers:
        try:
            driver.fetch()
            driver.compile()
        except Missing as reason:
            missing[driver.name] = str(reason)
        except Broken as reason:
            broken[driver.name] = str(reason)
    return missing, broken
