#!/usr/bin/env python3
"""The same variants in 1 s slices: `slices.py RELAY_BINARY OUT.json [counters]`, beside measure.py.

Time per transaction doubles while another process uses the sibling CPU, so 8 s runs compare
the neighbours as much as the variants. Short slices in rotating order, each divided by
PgBouncer's slice of the same round; with `counters` also retired instructions, which
neighbours don't change (perf makes each context switch dearer: no CPU times from that run).
"""
import json, statistics, subprocess, sys, time
import measure as m

COUNTERS = "counters" in sys.argv
ROUNDS = {"simple": 20, "prepared": 10} if COUNTERS else {"simple": 12, "prepared": 7}


def one_slice(name, mode, procs):
    pid, csv = procs[name].pid, m.WORK + "/slice.csv"
    if COUNTERS:
        perf = subprocess.Popen(["perf", "stat", "-x,", "-o", csv, "-p", str(pid),
                                 "-e", "instructions,cycles"])
        time.sleep(0.1)
    before = sum(m.cpu_us(pid))
    r = m.pgbench(name, mode, 8, 1)
    r["cpu_us"] = (sum(m.cpu_us(pid)) - before) / r["tx"]
    if not COUNTERS:
        return r
    perf.send_signal(2)
    perf.wait()
    for line in open(csv):
        p = line.split(",")
        if len(p) > 3 and p[0].isdigit():
            r[p[2]] = int(p[0]) / r["tx"]
    return r


def main():
    procs, res = m.start_all(), {}
    try:
        for mode, rounds in ROUNDS.items():
            base = "pgbouncer" if mode == "simple" else "pgbouncer-session"
            names = [base, "mt-copy", "mt-poll", "ct-try", "ct-poll", "epoll"]
            for i in range(rounds):
                k = i % len(names)
                row = {n: one_slice(n, mode, procs) for n in names[k:] + names[:k]}
                res.setdefault(mode, []).append(row)
                json.dump(res, open(m.OUT, "w"))
    finally:
        for p in procs.values():
            p.terminate()
            p.wait()


def report():
    for mode, rows in json.load(open(m.OUT)).items():
        base = "pgbouncer" if mode == "simple" else "pgbouncer-session"
        print(f"\n{mode}, 8 clients, {len(rows)} slices of 1 s: CPU us/tx median (quartiles), "
              "ratio to PgBouncer median (quartiles), instructions/tx median (quartiles)")
        for n in sorted(rows[0], key=list(m.PORTS).index):
            cpu = [r[n]["cpu_us"] for r in rows]
            ratio = [r[n]["cpu_us"] / r[base]["cpu_us"] for r in rows]
            ins = [r[n].get("instructions", 0) for r in rows]
            q = lambda xs: statistics.quantiles(xs, n=4)
            c, f, i = q(cpu), q(ratio), q(ins)
            print(f"{n:18} {c[1]:5.1f} ({c[0]:.1f}-{c[2]:.1f})  {f[1]:.2f} ({f[0]:.2f}-{f[2]:.2f})  "
                  f"{i[1]:7.0f} ({i[0]:.0f}-{i[2]:.0f})")


if __name__ == "__main__":
    if m.RELAY != "report":
        main()
    report()
