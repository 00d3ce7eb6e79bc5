"""What clients' connections cost beside PgBouncer: logging in by SCRAM, without and over TLS; memory of 10,000 idle
clients; transactions over TLS.

All use the same certificate and the same rules (`pg_hba.conf`'s form, which PgBouncer reads as well). PgBouncer is
measured twice where clients log in: with passwords in its `auth_file`, and asking the server for them (`auth_query`)
at each login, as hihooi does. Servers are asked without TLS.
"""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time
from statistics import median

import slices
from cluster import Trouble
from report import spread, table, verdict
from wire import Connection, any_certificate

GENERATOR = pathlib.Path("target/release/examples/logins")
ROLE, PASSWORD = "bencher", "a password of the bench"
CLIENTS = 10_000
# File descriptors that hihooi and PgBouncer need besides their clients'.
FILES_BESIDES = 500
AT_A_TIME = 8
SETTLE_S = 3
RSA_ROUNDS = 4
SYSTEMS = ["pgbouncer", "pgbouncer-query", "hihooi"]
MODES = ["disable", "require"]
RULES = f"""host all postgres 127.0.0.1/32 trust
host all {ROLE} 127.0.0.1/32 scram-sha-256
"""
KEYS = {
    "ECDSA P-256": ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    "RSA 2048": ("rsa:2048",),
}


def build_generator(cargo):
    """The program that logs in."""
    command = [cargo, "build", "--release", "--locked", "-q", "-p", "hihooi-postgres", "--example", "logins"]
    if subprocess.run(command).returncode != 0:
        raise Trouble("the generator of logins can't be built")


class Files:
    """Rules and certificates, in a copy for each user that reads them."""

    def __init__(self, cluster):
        self.folder = cluster.work / "tls"
        self.folder.mkdir()
        self.rules = self.folder / "hba.conf"
        self.rules.write_text(RULES)
        self.owners = {"hihooi": None, "pgbouncer": "postgres" if cluster.is_root else None}
        for kind, options in KEYS.items():
            self._make(kind, options)

    def _make(self, kind, options):
        made = ["-keyout", f"{self._path(kind)}.key", "-out", f"{self._path(kind)}.crt", "-nodes", "-days", "30"]
        command = ["openssl", "req", "-x509", "-newkey", *options, *made, "-subj", "/CN=localhost"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Trouble(f"openssl makes no certificate: {done.stderr}")

    def _path(self, kind):
        return self.folder / kind.replace(" ", "-")

    def use(self, kind):
        """Has the certificate of this kind presented from now on (to be told to PgBouncer)."""
        for reader, owner in self.owners.items():
            for suffix in ("crt", "key"):
                new = self.folder / "new"
                shutil.copyfile(f"{self._path(kind)}.{suffix}", new)
                new.chmod(0o600)
                if owner:
                    shutil.chown(new, owner)
                new.rename(self.folder / f"{reader}.{suffix}")

    def of(self, reader):
        """Certificate and key."""
        return self.folder / f"{reader}.crt", self.folder / f"{reader}.key"


def start(cluster, files):
    """Starts hihooi, or starts it again, its servers with it."""
    certificate, key = files.of("hihooi")
    cluster.start(
        "--hba-file", files.rules, "--tls-cert-file", certificate, "--tls-key-file", key,
        "--limits-clients-max", 2 * CLIENTS,
    )


def start_bouncer(cluster, files, name, users, mode="transaction", **settings):
    certificate, key = files.of("pgbouncer")
    cluster.start_bouncer(
        name, mode, users, auth_type="hba", auth_hba_file=files.rules, client_tls_sslmode="prefer",
        client_tls_cert_file=certificate, client_tls_key_file=key, server_tls_sslmode="disable",
        max_client_conn=2 * CLIENTS, **settings,
    )


def make_role(cluster):
    """A role with a password, for which the servers ask, too; what the primary stores of it."""
    through = Connection(cluster.ports["hihooi"])
    through.query(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
    through.query(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {ROLE}")
    stored = through.query(f"SELECT rolpassword FROM pg_authid WHERE rolname = '{ROLE}'")[0][0]
    through.close()
    if cluster.catch_up() is None:
        raise Trouble("the replicas don't get the role")
    for site, port in cluster.sites.items():
        rules = cluster.work / "data" / site / "pg_hba.conf"
        rules.write_text(f"host all {ROLE} 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        server = Connection(port)
        server.query("SELECT pg_reload_conf()")
        server.close()
    return stored


def negotiated(cluster, variant):
    """What OpenSSL's client, which is libpq's, and the variant agree on."""
    command = ["openssl", "s_client", "-starttls", "postgres", "-connect", f"127.0.0.1:{cluster.ports[variant]}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    patterns = (r"^New, (\S+), Cipher", r"Cipher is (\S+)", r"^Server Temp Key: (.*)$", r"^Peer signature type: (.*)$")
    found = [re.search(pattern, done.stdout, re.M) for pattern in patterns]
    return ", ".join(one[1] if one else "?" for one in found)


def log_in(cluster, stored, variant, mode, seconds):
    """Clients that connect, run one query and leave; processor time for each."""
    pid = cluster.pids[variant]
    before, servers = sum(slices.cpu_us(pid)), _server_us(cluster)
    command = [str(GENERATOR), f"127.0.0.1:{cluster.ports[variant]}", ROLE, mode, str(seconds), str(AT_A_TIME)]
    environment = {**os.environ, "PGPASSWORD": PASSWORD, "VERIFIER": stored}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise Trouble(f"logins at {variant} fail: {done.stderr}")
    slice = json.loads(done.stdout)
    count = slice["logins"]
    slice["per_second"] = count / slice["seconds"]
    slice["cpu_us"] = (sum(slices.cpu_us(pid)) - before) / count
    slice["servers_us"] = (_server_us(cluster) - servers) / count
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    slice["client_us"] = 1e6 * (after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime) / count
    return slice


def _server_us(cluster):
    """What the primary's processes that are there have used."""
    folder, total = cluster.work / "data" / "primary", 0
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and pathlib.Path(os.readlink(process / "cwd")) == folder:
                total += sum(slices.cpu_us(int(process.name)))
        except OSError:
            pass  # it has ended
    return total


def measure_logins(cluster, stored, rounds, seconds):
    """Rounds of slices by system and mode."""
    variants = [f"{system} {mode}" for mode in MODES for system in SYSTEMS]
    for variant in variants:  # connections to servers are open then
        log_in(cluster, stored, *variant.split(), 1)
    return slices.rounds(rounds, variants, lambda variant: log_in(cluster, stored, *variant.split(), seconds))


def measure_rsa(cluster, files, stored, seconds):
    """The same with an RSA certificate, over TLS only."""
    files.use("RSA 2048")
    for system in SYSTEMS[:2]:
        os.kill(cluster.pids[system], signal.SIGHUP)
    time.sleep(1)
    found = {system: negotiated(cluster, system) for system in SYSTEMS}
    variants = [f"{system} require" for system in SYSTEMS]
    rounds = slices.rounds(RSA_ROUNDS, variants, lambda variant: log_in(cluster, stored, *variant.split(), seconds))
    return found, rounds


def resident(pid):
    """Resident and proportional memory of a process, KB."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return [int(re.search(rf"^{name}:\s+(\d+) kB", text, re.M)[1]) for name in ("Rss", "Pss")]


def idle_clients(cluster, variant, mode):
    """Memory before and with so many clients that asked one query each and then nothing; the pool is full before."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CLIENTS, hard - FILES_BESIDES)
    slices.result(slices.pgbench(cluster, variant, 1, 32, "-S"))
    time.sleep(SETTLE_S)
    pid, tls = cluster.pids[variant], any_certificate() if mode == "require" else None
    before, clients = resident(pid), []
    try:
        for _ in range(count):
            clients.append(Connection(cluster.ports[variant], tls=tls))
            clients[-1].query("SELECT 1")
        time.sleep(SETTLE_S)
        during = resident(pid)
    finally:
        for client in clients:
            client.close()
    each = [1024 * (after - first) / count for first, after in zip(before, during)]
    return {"clients": count, "before_kb": before, "during_kb": during, "each_bytes": each}


def measure_memory(cluster, files, say):
    """Each in a process of its own: memory that one has used before is not counted again."""
    found = {}
    for mode in MODES:
        start_bouncer(cluster, files, f"pgbouncer-{mode}", '"postgres" ""\n')
        for variant in (f"pgbouncer-{mode}", "hihooi"):
            say(f"memory of idle clients: {variant}, sslmode={mode}")
            found[f"{variant.split('-')[0]} {mode}"] = idle_clients(cluster, variant, mode)
        cluster.end(f"pgbouncer-{mode}")
        cluster.end("hihooi")
        start(cluster, files)
    return found


def measure_transactions(cluster, rounds, seconds):
    """`pgbench -S` of 8 clients by system and mode: simple, and prepared (PgBouncer: with sessions)."""
    found = {}
    for protocol, bouncer in (("simple", "pgbouncer"), ("prepared", "pgbouncer-session")):
        variants = []
        for system in (bouncer, "hihooi"):
            for mode in MODES:
                variant = f"{system} {mode}"
                variants.append(variant)
                cluster.ports[variant], cluster.pids[variant] = cluster.ports[system], cluster.pids[system]
                cluster.databases[variant] = f"dbname=postgres sslmode={mode}"
        options = (seconds, AT_A_TIME, "-S", "-M", protocol)
        found[protocol] = slices.rounds(rounds, variants, lambda variant: slices.one(cluster, variant, *options))
    return found


def _ratio(rounds, variant, base, key):
    return [round[variant][key] / round[base][key] for round in rounds]


def targets(raw):
    """Rows: what, measured over PgBouncer's, verdict. The aim is not to be above it."""
    rows = []
    for mode, what in (("disable", "without TLS"), ("require", "over TLS")):
        for base, how in (("pgbouncer-query", "auth_query"), ("pgbouncer", "auth_file")):
            for key, name in (("cpu_us", "CPU per login"), ("per_second", "logins per second")):
                ratios = _ratio(raw["logins"], f"hihooi {mode}", f"{base} {mode}", key)
                worse = median(ratios) if key == "cpu_us" else 1 / median(ratios)
                rows.append((f"{name}, SCRAM, {what}; PgBouncer with {how}", spread(ratios, 2), verdict(worse, 1)))
    for mode, what in (("disable", "without TLS"), ("require", "over TLS")):
        ours, theirs = (raw["memory"][f"{system} {mode}"]["each_bytes"][0] for system in ("hihooi", "pgbouncer"))
        rows.append((f"memory of an idle client, {what}", f"{ours / theirs:.2f}", verdict(ours / theirs, 1)))
    for protocol, base in (("simple", "pgbouncer"), ("prepared", "pgbouncer-session")):
        rounds = raw["transactions"][protocol]
        ratios = _ratio(rounds, "hihooi require", f"{base} require", "cpu_us")
        rows.append((f"CPU per transaction over TLS, {protocol}", spread(ratios, 2), verdict(median(ratios), 1)))
        added = [[round[f"{system} require"]["cpu_us"] - round[f"{system} disable"]["cpu_us"] for round in rounds]
                 for system in ("hihooi", base)]
        ratio = median(added[0]) / median(added[1])
        rows.append((f"CPU that TLS adds to it, {protocol}", f"{ratio:.2f}", verdict(ratio, 1)))
    return rows


def summary(name, raw):
    """The README of a run."""
    lines = [f"# {name}", "", "Made by `make bench-connections`; what is measured and how: "
             "[bench/README.md](../../README.md).", "", "## Set-up", ""]
    lines += [f"- {key}: {value}" for key, value in raw["set_up"].items()]
    lines += [f"- TLS with {system}: {found}" for system, found in raw["negotiated"].items()]
    lines += [f"- with the RSA certificate, {system}: {found}" for system, found in raw["negotiated_rsa"].items()]
    lines += [f"- {raw['rounds']} rounds of {raw['seconds']} s slices; no session of TLS is resumed; servers are asked "
              "without TLS", "", "## hihooi over PgBouncer", ""]
    lines += table(("what", "hihooi's over PgBouncer's: median (quartiles)", "aim: not above it"), targets(raw))
    lines += [f"## Logins: connect, SCRAM-SHA-256, `SELECT 1`, leave; {AT_A_TIME} at a time", ""]
    lines += _logins(raw["logins"]) + ["With a certificate with an RSA key of 2048 bits:", ""] + _logins(raw["rsa"])
    lines += ["CPU is of hihooi or PgBouncer, of the primary's processes, and of the client. PgBouncer has the password "
              "in its `auth_file`, or (query) asks the server for it at each login, as hihooi does, which also asks "
              "what the session starts with and whether the role may connect.", "", "## Memory of idle clients", ""]
    lines += _memory(raw["memory"])
    lines += ["## `pgbench -S`, 8 clients", ""]
    lines += _transactions(raw["transactions"])
    lines += ["## Also", "", f"- `hihooi verify` after all of it: {raw['verify']}.", "- Raw figures: `raw.json`.", ""]
    return "\n".join(lines)


def _logins(rounds):
    rows = []
    for variant in rounds[0]:
        system, mode = variant.split()
        column = {key: [round[variant][key] for round in rounds]
                  for key in ("per_second", "cpu_us", "servers_us", "client_us", "median_us", "p99_us")}
        rows.append((
            f"{system}, {'TLS' if mode == 'require' else 'plain'}",
            spread(column["per_second"], 0), spread(column["cpu_us"], 0),
            spread(_ratio(rounds, variant, f"pgbouncer {mode}", "cpu_us"), 2),
            spread(column["servers_us"], 0), f"{median(column['client_us']):.0f}",
            f"{median(column['median_us']):.0f}, {median(column['p99_us']):.0f}",
        ))
    return table(("system", "logins/s", "CPU µs/login", "to pgbouncer", "primary's CPU µs/login", "client's",
                  "took: median, p99, µs"), rows)


def _memory(found):
    rows = []
    for variant, of in found.items():
        system, mode = variant.split()
        before, during = of["before_kb"], of["during_kb"]
        rows.append((
            f"{system}, {'TLS' if mode == 'require' else 'plain'}", f"{of['clients']:,}",
            f"{before[0] / 1024:.1f}", f"{during[0] / 1024:.1f}", f"{of['each_bytes'][0]:,.0f}",
            f"{before[1] / 1024:.1f}", f"{during[1] / 1024:.1f}",
        ))
    return table(("system", "clients", "resident before, MB", "with them", "bytes a client", "PSS before", "with them"),
                 rows) + ["Each client has run one query; 32 others had before, so that pools were full.", ""]


def _transactions(found):
    rows = []
    for protocol, rounds in found.items():
        bouncer = next(iter(rounds[0])).split()[0]
        for variant in rounds[0]:
            system, mode = variant.split()
            rows.append((
                f"{protocol}, {system}, {'TLS' if mode == 'require' else 'plain'}",
                spread([round[variant]["cpu_us"] for round in rounds], 1),
                f"{median(round[variant]['user_us'] for round in rounds):.1f}",
                spread(_ratio(rounds, variant, f"{bouncer} {mode}", "cpu_us"), 2),
                spread(_ratio(rounds, variant, f"{system} disable", "cpu_us"), 2),
                spread([round[variant]["tps"] for round in rounds], 0),
            ))
    return table(("protocol, system", "CPU µs/tx", "of it user", "to PgBouncer's", "to plain", "transactions/s"), rows)
