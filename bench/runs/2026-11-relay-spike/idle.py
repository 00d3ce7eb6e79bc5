"""RSS of a relay per idle session, 1,000 of them after one exchange: `idle.py RELAY_BINARY`."""
import socket, struct, subprocess, sys, time
def rss(pid): return int([l for l in open(f"/proc/{pid}/status") if l.startswith("VmRSS")][0].split()[1])
sink = socket.socket(); sink.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); sink.bind(("127.0.0.1", 54995)); sink.listen(2000)
for v in ("mt-copy", "mt-poll", "ct-try", "ct-poll", "epoll"):
    p = subprocess.Popen([sys.argv[1], v, "54996", "54995"]); time.sleep(.5); a = rss(p.pid)
    cs, ss = [], []
    for _ in range(1000):
        c = socket.create_connection(("127.0.0.1", 54996)); s, _ = sink.accept()
        c.send(b"x" * 30); got = s.recv(100); assert len(got) == 30
        s.send(b"y" * 60); assert len(c.recv(100)) == 60
        cs.append(c); ss.append(s)
    b = rss(p.pid); print(v, a, "KB at rest", b, "KB with 1000:", (b - a) / 1000, "KB each")
    for x in cs + ss: x.close()
    p.terminate(); p.wait()
