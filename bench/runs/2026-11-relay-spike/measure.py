#!/usr/bin/env python3
"""Event-loop spike: CPU, syscalls and latency of byte relays beside PgBouncer.

measure.py RELAY_BINARY OUT.json; expects PostgreSQL on 127.0.0.1:54980 with pgbench's tables
of scale 1. All variants run at once (idle ones cost nothing) and are measured in turn, the
whole round three times, so that other load on the machine falls on all alike.
"""
import json, os, re, statistics, subprocess, sys, time

PG, ROUNDS, SECONDS, LATENCY_SECONDS = 54980, 3, 8, 4
RELAY, OUT = sys.argv[1], sys.argv[2]
WORK = os.path.dirname(os.path.abspath(OUT))
ENV = dict(os.environ, PGSSLMODE="disable", PGGSSENCMODE="disable", PGUSER="postgres")
RELAYS = {"mt-copy": [], "mt-poll": [], "ct-try": [], "ct-poll": [], "ct-poll-nagle": ["nagle"],
          "epoll": []}
PORTS = {"direct": PG, "pgbouncer": 54981, "pgbouncer-session": 54982}
PORTS.update({v: 54983 + i for i, v in enumerate(RELAYS)})
CALLS = ["epoll_wait", "epoll_pwait", "recvfrom", "sendto", "read", "write", "writev",
         "epoll_ctl", "futex"]


def start_pgbouncer(mode, port):
    ini = f"{WORK}/{mode}.ini"
    with open(ini, "w") as f:
        f.write(f"""[databases]
postgres = host=127.0.0.1 port={PG} dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {WORK}/users.txt
pool_mode = {mode}
default_pool_size = 20
max_client_conn = 200
server_lifetime = 86400
log_connections = 0
log_disconnections = 0
""")
    with open(f"{WORK}/users.txt", "w") as f:
        f.write('"postgres" ""\n')
    return subprocess.Popen(["/usr/sbin/pgbouncer", "-q", ini], user="postgres",
                            stdout=subprocess.DEVNULL, stderr=open(f"{WORK}/{mode}.err", "w"))


def start_all():
    procs = {"pgbouncer": start_pgbouncer("transaction", PORTS["pgbouncer"]),
             "pgbouncer-session": start_pgbouncer("session", PORTS["pgbouncer-session"])}
    for name, extra in RELAYS.items():
        variant = name.removesuffix("-nagle")
        procs[name] = subprocess.Popen([RELAY, variant, str(PORTS[name]), str(PG), *extra])
    time.sleep(1)
    return procs


def cpu_us(pid):
    """utime + stime of all threads, in microseconds, and where each went."""
    f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    tick = 1e6 / os.sysconf("SC_CLK_TCK")
    return int(f[11]) * tick, int(f[12]) * tick


def switches(pid):
    total = 0
    for t in os.listdir(f"/proc/{pid}/task"):
        text = open(f"/proc/{pid}/task/{t}/status").read()
        total += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[1])
    return total


def pgbench(name, mode, clients, seconds, *extra):
    out = subprocess.run(
        ["pgbench", "-h", "127.0.0.1", "-p", str(PORTS[name]), "-n", "-M", mode,
         "-c", str(clients), "-j", "1", "-T", str(seconds), *(extra or ["-S"]), "postgres"],
        env=ENV, capture_output=True, text=True, check=True).stdout
    tx = int(re.search(r"actually processed: (\d+)", out)[1])
    failed = int(re.search(r"failed transactions: (\d+)", out)[1])
    assert tx > 0 and failed == 0, out
    return {"tx": tx, "tps": float(re.search(r"tps = ([\d.]+)", out)[1]),
            "latency_us": 1e6 * clients / float(re.search(r"tps = ([\d.]+)", out)[1])}


def cpu_run(name, mode, procs):
    pid = procs[name].pid if name in procs else None
    before = (cpu_us(pid), switches(pid)) if pid else None
    r = pgbench(name, mode, 8, SECONDS)
    if pid:
        (u, s), v = cpu_us(pid), switches(pid)
        r["user_us"] = (u - before[0][0]) / r["tx"]
        r["sys_us"] = (s - before[0][1]) / r["tx"]
        r["cpu_us"] = r["user_us"] + r["sys_us"]
        r["vol_switches"] = (v - before[1]) / r["tx"]
    r["load1"] = os.getloadavg()[0]
    return r


def syscall_run(name, mode, clients, procs):
    """Tracepoint counts (perf stat: cheap, so batching stays what it is) of a 2 s run."""
    cmd = ["perf", "stat", "-x,", "-o", f"{WORK}/perf.csv", "-p", str(procs[name].pid)]
    for c in CALLS:
        cmd += ["-e", f"syscalls:sys_enter_{c}"]
    cmd += ["-e", "raw_syscalls:sys_enter",
            "-e", "syscalls:sys_exit_recvfrom", "--filter", "ret == -11"]
    perf = subprocess.Popen(cmd, stderr=subprocess.DEVNULL)
    time.sleep(0.3)
    tx = pgbench(name, mode, clients, 2)["tx"]
    perf.send_signal(2)
    perf.wait()
    r = {}
    for line in open(f"{WORK}/perf.csv"):
        p = line.split(",")
        if len(p) > 3 and p[0].isdigit() and int(p[0]) / tx >= 0.0005:
            r[p[2].split(":")[1].replace("sys_enter_", "").replace("sys_exit_recvfrom", "EAGAIN")
              .replace("sys_enter", "ALL")] = round(int(p[0]) / tx, 3)
    return r


def strace_run(name, procs):
    out = f"{WORK}/strace-{name}.txt"
    s = subprocess.Popen(["strace", "-c", "-f", "-o", out, "-p", str(procs[name].pid)],
                         stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    tx = pgbench(name, "simple", 8, 3)["tx"]
    s.send_signal(2)
    s.wait()
    return {"tx": tx, "table": open(out).read()}


def main():
    procs = start_all()
    names = {"simple": [n for n in PORTS if n != "pgbouncer-session"],
             "prepared": [n for n in PORTS if n != "pgbouncer"]}
    res = {"cpu": {}, "lat": {}, "wide": {}, "syscalls": {}, "strace": {}}
    try:
        for _ in range(ROUNDS):
            for mode in ("simple", "prepared"):
                for n in names[mode]:
                    res["cpu"].setdefault(mode, {}).setdefault(n, []).append(cpu_run(n, mode, procs))
                for n in names[mode]:
                    res["lat"].setdefault(mode, {}).setdefault(n, []).append(
                        pgbench(n, mode, 1, LATENCY_SECONDS)["latency_us"])
            json.dump(res, open(OUT, "w"), indent=1)
        with open(f"{WORK}/wide.sql", "w") as f:
            f.write("SELECT repeat('x', 500) FROM generate_series(1, 1000);\n")
        for _ in range(ROUNDS):
            for n in names["simple"]:
                pid = procs[n].pid if n in procs else None
                b = sum(cpu_us(pid)) if pid else 0
                r = pgbench(n, "simple", 1, 2, "-f", f"{WORK}/wide.sql")
                res["wide"].setdefault(n, []).append(
                    (r["latency_us"], (sum(cpu_us(pid)) - b) / r["tx"] if pid else None))
        for mode in ("simple", "prepared"):
            for n in names[mode]:
                if n in procs:
                    for c in (8, 1):
                        res["syscalls"].setdefault(f"{mode}-{c}", {})[n] = syscall_run(n, mode, c, procs)
        for n in names["simple"]:
            if n in procs:
                res["strace"][n] = strace_run(n, procs)
    finally:
        for p in procs.values():
            p.terminate()
            p.wait()
        json.dump(res, open(OUT, "w"), indent=1)


def report(path):
    res, med = json.load(open(path)), statistics.median
    for mode, rows in res["cpu"].items():
        print(f"\n{mode}, 8 clients: CPU us/tx median (min-max), user, sys, tps, vol.switches/tx")
        for n, rs in rows.items():
            g = lambda k: [r.get(k, 0) for r in rs]
            c = g("cpu_us")
            print(f"{n:18} {med(c):6.1f} ({min(c):.1f}-{max(c):.1f}) user {med(g('user_us')):5.1f} "
                  f"sys {med(g('sys_us')):5.1f} tps {med(g('tps')):7.0f} vcs {med(g('vol_switches')):.2f}")
    for mode, rows in res["lat"].items():
        print(f"\n{mode}, 1 client: latency us median (min-max), added (per-round difference)")
        for n, ls in rows.items():
            d = [a - b for a, b in zip(ls, rows["direct"])]
            print(f"{n:18} {med(ls):6.1f} ({min(ls):.1f}-{max(ls):.1f}) added {med(d):6.1f} "
                  f"({min(d):.1f}-{max(d):.1f})")
    print("\n500 KB result, 1 client: latency us, CPU us per query")
    for n, ls in res["wide"].items():
        print(f"{n:18} {med(l for l, _ in ls):7.0f} {med(c or 0 for _, c in ls):7.0f}")
    for mode, rows in res["syscalls"].items():
        print(f"\nsyscalls per tx (perf tracepoints), {mode} client(s)")
        for n, r in rows.items():
            print(f"{n:18} {r}")


if __name__ == "__main__":
    if RELAY != "report":
        main()
    report(OUT)
