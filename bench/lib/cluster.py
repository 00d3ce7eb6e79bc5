"""The processes of a run: `hihooi up`, two PgBouncers, a byte relay. All end with it."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from wire import Connection, ServerError

START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 40
CATCH_UP_SECONDS_MAX = 120
RELAY_SOURCE = pathlib.Path("bench/runs/2026-11-relay-spike")
RELAY_TARGET = pathlib.Path("target/bench-relay")


class Trouble(Exception):
    """One line that tells why the run can't go on."""


def free_port(first):
    """A port that is free, and so are those above `+100` where `up` looks for its servers'."""
    for port in range(first, first + 3000, 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise Trouble("no free port")


class Cluster:
    """A primary and replicas behind hihooi, and what it is compared with.

    `ports` and `pids` by variant: `direct`, `pgbouncer` (transaction pooling),
    `pgbouncer-session`, `relay`, `hihooi`. `direct` has no process.
    """

    def __init__(self, work, hihooi, pg, replicas=2):
        self.work, self.pg, self.replicas = work, pg, replicas
        self.started = []
        # In front of what is measured: a program that watches it.
        self.wrapper = []
        self.ports, self.pids = {}, {}
        self.is_root = os.getuid() == 0
        # What pgbench is told of variants that aren't just a port.
        self.databases = {}
        # A copy: the original may be built anew meanwhile, and the profile needs its symbols.
        self.hihooi = pathlib.Path(shutil.copy(hihooi, work / "hihooi"))

    def start(self, *options):
        """Starts hihooi, with these further options; `start_others` what it is compared with."""
        port = free_port(7432)
        out = self.work / "up.out"
        command = [self.hihooi, "up", "--replicas", self.replicas, "--data", self.work / "data", *options]
        command += ["--replica-auto-rebuild", "false"]
        manager = self._spawn([*self.wrapper, *command, "--listen", f"127.0.0.1:{port}"], stdout=out.open("w"))
        deadline = time.monotonic() + START_SECONDS_MAX
        while "ready at" not in out.read_text():
            if manager.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"`hihooi up` does not get ready:\n{out.read_text()}")
            time.sleep(0.1)
        self.ports["hihooi"], self.pids["hihooi"] = port, manager.pid
        servers = self.admin("SHOW SERVERS")
        self.sites = {row[0]: int(row[3]) for row in servers}
        self.ports["direct"] = self.sites["primary"]

    def start_others(self):
        self.start_bouncer("pgbouncer", "transaction")
        self.start_bouncer("pgbouncer-session", "session")
        relay = RELAY_TARGET / "release" / "relay"
        port = free_port(7482)
        self._listening("relay", port, [relay, "ct-poll", str(port), str(self.ports["direct"])])

    def start_bouncer(self, name, mode, users='"postgres" ""\n', **settings):
        """Its counterpart is the primary; as its own user, since it refuses to be root."""
        folder = self.work / name
        folder.mkdir()
        port = free_port(7452 if mode == "session" else 7442)
        (folder / "users.txt").write_text(users)
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": folder / "users.txt",
            "pool_mode": mode,
            "default_pool_size": 20,
            "max_client_conn": 1200,
            "log_connections": 0,
            "log_disconnections": 0,
            **settings,
        }
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={self.ports['direct']} dbname=postgres\n"
            "[pgbouncer]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())
        )
        user = {"user": "postgres", "group": "postgres", "extra_groups": []} if self.is_root else {}
        program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        self._listening(name, port, [*self.wrapper, program, "-q", folder / "pgbouncer.ini"], **user)

    def _listening(self, name, port, command, **options):
        process = self._spawn(command, stdout=(self.work / f"{name}.log").open("w"), **options)
        deadline = time.monotonic() + 10
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None or time.monotonic() > deadline:
                text = (self.work / f"{name}.log").read_text()
                raise Trouble(f"{name} does not listen: {text}")
            time.sleep(0.05)
        self.ports[name], self.pids[name] = port, process.pid

    def _spawn(self, command, **options):
        # A session of its own: a Ctrl-C at the terminal is ours to handle.
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **options,
        )
        self.started.append(process)
        return process

    def admin(self, command):
        """The rows of a command in hihooi's admin database."""
        connection = Connection(self.ports["hihooi"], "hihooi")
        try:
            return connection.query(command)
        finally:
            connection.close()

    def catch_up(self):
        """Waits until every replica equals the primary: seconds, None if it takes too long."""
        start = time.monotonic()
        while time.monotonic() - start < CATCH_UP_SECONDS_MAX:
            try:
                if all(row[3] == "0" for row in self.admin("SHOW REPLICAS")):
                    return time.monotonic() - start
            except (OSError, ServerError):
                pass  # full or busy: asked again
            time.sleep(0.05)
        return None

    def reads(self):
        """Reads so far, by site."""
        return {row[0]: int(row[1]) for row in self.admin("SHOW STATS")}

    def end(self, variant):
        """Ends the process of a variant."""
        pid = self.pids.pop(variant)
        for process in self.started:
            if process.pid == pid:
                _end(process)

    def stop(self):
        """Ends all that was started, the manager last, so that it can stop its servers."""
        for process in reversed(self.started):
            _end(process)
        self._stop_orphans()

    def _stop_orphans(self):
        """Servers of a manager that had to be killed."""
        for file in self.work.glob("data/*/postmaster.pid"):
            pid = int(file.read_text().split()[0])
            try:
                if pathlib.Path(f"/proc/{pid}/cwd").resolve() == file.parent.resolve():
                    os.kill(pid, signal.SIGQUIT)
            except OSError:
                pass  # gone already


def _end(process):
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def build_relay(cargo):
    """The bare byte relay of the event-loop spike, for comparison."""
    manifest = RELAY_SOURCE / "Cargo.toml"
    command = [cargo, "build", "--release", "--locked", "-q"]
    command += ["--manifest-path", str(manifest), "--target-dir", str(RELAY_TARGET)]
    if subprocess.run(command).returncode != 0:
        raise Trouble("the byte relay can't be built")
