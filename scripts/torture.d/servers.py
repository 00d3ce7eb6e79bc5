"""The servers of a run: `hihooi up` with its primary and replicas, and a plain server with the
same settings to compare with. Only processes started here are ever ended."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from trouble import Trouble

START_SECONDS_MAX = 180
STOP_SECONDS_MAX = 60
# Written by hihooi; these are a server's own.
SETTINGS_FILE = "hihooi.conf"
OWN_SETTINGS = ("port", "cluster_name", "unix_socket_directories")
# A replica whose state stays `failed` this long won't serve by itself.
FAILED_SECONDS = 30
LOOK_EVERY_SECONDS = 0.05
VERIFY_SECONDS_MAX = 300
VERIFY_TRIES_MAX = 5
# On a busy machine, servers stand still for seconds; and metrics would take a port of some test.
ENVIRONMENT = {"HIHOOI_SITES_TIMEOUT_MS": "20000", "HIHOOI_METRICS_LISTEN": "off"}
# Characters that are in no reason.
CELL_END, ROW_END = "\x1f", "\x1e"
# What `hihooi verify` says while all is well; and the position and counts in its verdicts, which
# are others each time.
VERIFY_FINE = re.compile(r"^comparing |: equal$|\sequal$|^replica .*result")
VERIFY_FIGURES = re.compile(r"^(replica\S*) +\d+ +\d+ +\d+ +")
REASON_MAX = 600


def free_port(first):
    """A port that is free; `up` looks for those of its servers above `+100`."""
    for port in range(first, first + 900, 50):
        with socket.socket() as probe:
            # As servers do: connections that ended lately don't count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise Trouble("no free port")


def spawn(command, **options):
    """A process in a session of its own: a Ctrl-C at the terminal is ours to handle."""
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **options,
    )


def end(process, polite):
    """Asks a process to end, and kills it if it doesn't."""
    if process is None:
        return
    if process.poll() is None:
        process.send_signal(polite)
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def one_line(text):
    """Without line breaks, and not endless."""
    text = " ".join(text.split())
    return text if len(text) <= REASON_MAX else text[:REASON_MAX] + " …"


def merged(lines):
    """Lines that begin with a replica's name, once for all replicas that say the same."""
    names = {}
    for line in lines:
        name, _, rest = line.partition(" ") if line.startswith("replica") else ("", "", line)
        names.setdefault(rest, []).append(name)
    return [f"{', '.join(which)} {rest}".strip() for rest, which in names.items()]


class Replica:
    """A row of SHOW REPLICAS."""

    def __init__(self, cells):
        self.name, self.state, self.lag = cells["replica"], cells["state"], cells["lag_entries"]
        self.applied = cells["applied"]
        self.reason = one_line(cells["reason"])

    def serves(self):
        return self.state == "serving" and self.lag == "0"

    def __str__(self):
        lag = "" if self.lag in ("", "0") else f", {self.lag} entries behind"
        return f"{self.name} {self.state}{lag}" + (f": {self.reason}" if self.reason else "")


class Cluster:
    """A primary and replicas behind hihooi. `tests` says by which `psql` and `environment(port)` they
    are asked."""

    def __init__(self, hihooi, work, pg_bin, tests, first_port, replicas=2):
        self.hihooi, self.work, self.pg_bin, self.tests = hihooi, work, pg_bin, tests
        self.first_port, self.replicas = first_port, replicas
        self.data = work / "data"
        self.process = None
        self.port = None

    def start(self):
        """Starts `hihooi up`; on a new directory that makes a cluster."""
        self.port = free_port(self.first_port)
        out = self.work / "up.out"
        out.write_text("")
        command = [self.hihooi, "up", "--data", self.data, "--listen", f"127.0.0.1:{self.port}"]
        command += ["--replicas", self.replicas, "--pg-bin", self.pg_bin]
        # Nothing may stop a replica, so that it would have to be rebuilt.
        command += ["--replica-auto-rebuild", "false"]
        self.process = spawn(command, stdout=out.open("w"), env=ENVIRONMENT | os.environ)
        deadline = time.monotonic() + START_SECONDS_MAX
        while "ready at" not in out.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"`hihooi up` does not get ready: {out.read_text().strip()}")
            time.sleep(LOOK_EVERY_SECONDS)

    def stop(self):
        """Ends hihooi, which stops its servers, and those that it left behind."""
        end(self.process, signal.SIGTERM)
        self.process = None
        for file in self.data.glob("*/postmaster.pid"):
            try:
                pid = int(file.read_text().split()[0])
                if pathlib.Path(f"/proc/{pid}/cwd").resolve() == file.parent.resolve():
                    os.kill(pid, signal.SIGQUIT)
            except (OSError, ValueError, IndexError):
                pass  # gone already

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def owner(self):
        """Options for processes of the user who runs the servers."""
        status = (self.data / "primary").stat()
        if status.st_uid == os.getuid():
            return {}
        return {"user": status.st_uid, "group": status.st_gid, "extra_groups": []}

    def rebuild(self):
        """New replicas, copied from the primary as it is now."""
        self.stop()
        command = [self.hihooi, "rebuild", "--data", self.data, "--pg-bin", self.pg_bin, "--yes"]
        done = subprocess.run(command, capture_output=True)
        if done.returncode != 0:
            told = one_line((done.stdout + done.stderr).decode(errors="replace"))
            raise Trouble(f"`hihooi rebuild` failed: {told}")
        self.start()

    def show_replicas(self):
        """Rows of SHOW REPLICAS, or why there are none."""
        psql = [self.tests.psql, "-XAq", "-P", "footer=off", "-F", CELL_END, "-R", ROW_END, "-d", "hihooi"]
        try:
            done = subprocess.run(
                [*psql, "-c", "SHOW REPLICAS"],
                env=self.tests.environment(self.port),
                capture_output=True,
                timeout=START_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            return "SHOW REPLICAS does not answer"
        if done.returncode != 0:
            return one_line("SHOW REPLICAS: " + done.stderr.decode(errors="replace"))
        rows = done.stdout.decode(errors="replace").removesuffix("\n").split(ROW_END)
        header, *rows = [row.split(CELL_END) for row in rows if row]
        return [Replica(dict(zip(header, row))) for row in rows]

    def wait_for_replicas(self, seconds_max):
        """Waits until all replicas serve all of it: nothing then, else what is wrong."""
        deadline = time.monotonic() + seconds_max
        failed_since = None
        while True:
            if not self.runs():
                return ["hihooi ended: " + last_line(self.work / "up.out")]
            rows = self.show_replicas()
            now = time.monotonic()
            if isinstance(rows, str):
                wrong = [rows]
            else:
                wrong = merged(str(row) for row in rows if not row.serves())
                if not wrong and len(rows) == self.replicas:
                    return []
                failed = any(row.state == "failed" for row in rows)
                failed_since = (failed_since or now) if failed else None
            if now > deadline or (failed_since and now - failed_since > FAILED_SECONDS):
                return wrong or ["SHOW REPLICAS names too few replicas"]
            time.sleep(LOOK_EVERY_SECONDS)

    def verify(self):
        """What `hihooi verify` says: a verdict, and the lines that tell of trouble. It is asked again
        if it could not compare them."""
        for _ in range(VERIFY_TRIES_MAX):
            verdict, lines = self.verify_once()
            if verdict in ("equal", "different") or self.wait_for_replicas(VERIFY_SECONDS_MAX):
                break
        return verdict, lines

    def verify_once(self):
        command = [self.hihooi, "verify", "--listen", f"127.0.0.1:{self.port}"]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=VERIFY_SECONDS_MAX
            )
        except subprocess.TimeoutExpired:
            return "not compared", [f"no answer in {VERIFY_SECONDS_MAX} s"]
        verdict = {0: "equal", 1: "different"}.get(done.returncode, "not compared")
        lines = (done.stdout + done.stderr).decode(errors="replace").splitlines()
        lines = [VERIFY_FIGURES.sub(r"\1 ", line) for line in lines if not VERIFY_FINE.search(line)]
        return verdict, merged(one_line(line) for line in lines)

    def settings(self):
        """Of the primary, without what is its own."""
        text = (self.data / "primary" / SETTINGS_FILE).read_text()
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        return [line for line in lines if line.split(" = ")[0] not in OWN_SETTINGS]


class Plain:
    """A server with the settings of the cluster's primary and without hihooi."""

    def __init__(self, work, pg_bin, tests, first_port):
        self.data, self.pg_bin, self.tests = work / "plain", pg_bin, tests
        self.log = work / "plain.log"
        self.first_port = first_port
        self.process = None
        self.port = None

    def start(self, settings, owner):
        """`owner`: options for processes of the user who runs servers."""
        self.port = free_port(self.first_port)
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(mode=0o700)
        if owner:
            os.chown(self.data, owner["user"], owner["group"])
        environment = {"LC_ALL": "C", "PATH": "/usr/local/bin:/usr/bin:/bin"}
        options = {"cwd": self.data, "env": environment, **owner}
        # As `hihooi up` makes its servers.
        command = [self.pg_bin / "initdb", "--pgdata", self.data, "--username", "postgres"]
        command += ["--auth", "trust", "--encoding", "UTF8", "--no-sync", "--no-instructions"]
        for locale in ("C.UTF-8", "C"):
            done = subprocess.run([*command, "--locale", locale], capture_output=True, **options)
            if done.returncode == 0:
                break
        else:
            raise Trouble(f"initdb: {done.stderr.decode().strip()}")
        own = [f"port = {self.port}", "unix_socket_directories = ''"]
        with (self.data / "postgresql.conf").open("a") as file:
            file.write("\n".join([*settings, *own]) + "\n")
        server = [self.pg_bin / "postgres", "-D", self.data]
        self.process = spawn(server, stdout=self.log.open("w"), **options)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"the plain server does not start: {last_line(self.log)}")
            time.sleep(LOOK_EVERY_SECONDS)

    def answers(self):
        psql = [self.tests.psql, "-XAtq", "-d", "postgres", "-c", "SELECT"]
        environment = self.tests.environment(self.port)
        return subprocess.run(psql, env=environment, capture_output=True).returncode == 0

    def stop(self):
        end(self.process, signal.SIGINT)
        self.process = None
        shutil.rmtree(self.data, ignore_errors=True)


def last_line(path):
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a word"
