#!/usr/bin/env python3
"""How long one client's command keeps a server busy, and what memory it takes: CPU milliseconds of
the server's process, and its peak resident memory. Arguments: the server's port and process."""
import os, socket, sys, time

port, pid = int(sys.argv[1]), int(sys.argv[2])
TICK = 1000 / os.sysconf("SC_CLK_TCK")

def cpu():
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK

def memory(name):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith(name):
            return int(line.split()[1]) // 1024

def connect():
    s = socket.create_connection(("127.0.0.1", port)); s.settimeout(300); return s

def encode(*words):
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        out += [b"$%d\r\n" % len(word), word, b"\r\n"]
    return b"".join(out)

def ask(s, *words):
    s.sendall(encode(*words)); return s.recv(1 << 16)

def until(s, end):
    got = b""
    while not got.endswith(end):
        more = s.recv(1 << 20)
        if not more: return got
        got = (got + more)[-200:]
    return got

def measured(name, run):
    before = cpu(); began = time.time(); result = run(); took = cpu() - before
    print(f"{name}: {took:.0f} ms CPU, {1000 * (time.time() - began):.0f} ms, RSS {memory('VmRSS')} MiB, peak {memory('VmHWM')} MiB {result or ''}", flush=True)

def prefixes():
    for many in (5_000, 20_000, 40_000):
        s = connect()
        words = []
        for i in range(many): words += [b"PREFIX", b"prefix:%07d:" % i]
        measured(f"BCAST with {many} prefixes", lambda: ask(s, "CLIENT", "TRACKING", "ON", "BCAST", *words)[:60])
        w = connect()
        def sets():
            w.sendall(encode("SET", "other", "v") * 2000)
            got = 0
            while got < 5 * 2000: got += len(w.recv(1 << 16))
        measured(f"  2000 SET beside {many} prefixes", sets)
        s.close(); time.sleep(0.3)

def table():
    s = connect(); ask(s, "HELLO", "3"); ask(s, "CLIENT", "TRACKING", "ON")
    def fill():
        for begin in range(0, 1_000_000, 10_000):
            s.sendall(encode("EXISTS", *[b"key:%d" % i for i in range(begin, begin + 10_000)]))
            until(s, b"\r\n")
    measured("1M keys read", fill)
    def end(): s.close(); time.sleep(2)
    measured("the client that has read 1M keys leaves", end)

def waiting():
    for many in (100_000, 1_000_000):
        s, other = connect(), connect()
        begun = []
        def wait():
            s.sendall(encode("BLPOP", *[b"wait:%d" % i for i in range(many)], "0.001"))
            worst = 0
            s.settimeout(0.001)
            while True:
                t = time.time(); ask(other, "LPUSH", "wait:5x", "v"); worst = max(worst, time.time() - t)
                try:
                    if s.recv(100): return f"worst LPUSH of another: {worst * 1000:.0f} ms"
                except (TimeoutError, socket.timeout): pass
        measured(f"BLPOP of {many} keys", wait)
        s.close()

def lists():
    s = connect()
    ask(s, "CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 0 0")
    for begin in range(200):
        ask(s, "RPUSH", "list", *[b"x" * 90] * 5_000)
        ask(s, "ZADD", "zset", *[w for i in range(5_000) for w in (i, b"m%087d" % (begin * 5_000 + i))])
    print("peak", memory("VmHWM"))
    for words in (("ZRANGE", "zset", 0, -1), ("LRANGE", "list", 0, -1)):
        s = connect()
        measured(" ".join(map(str, words)), lambda: (s.sendall(encode(*words)), len(until(s, b"never")))[1])

def bulk():
    many = 300_000
    for name, words in (
        ("RPUSH", [b"item:%d" % i for i in range(many)]),
        ("LPUSH", [b"item:%d" % i for i in range(many)]),
        ("ZADD", [w for i in range(many) for w in (i * 7919 % many, b"member:%d" % (i * 104729 % many))]),
        ("ZADD", [w for i in range(many) for w in (i * 7907 % many, b"member:%d" % (i * 104729 % many))]),
        ("HSET", [w for i in range(many) for w in (b"field:%d" % (i * 104729 % many), b"v")]),
        ("SADD", [b"member:%d" % (i * 104729 % many) for i in range(many)]),
    ):
        s = connect()
        measured(f"{name} of {many}", lambda: ask(s, name, "bulk:" + name, *words)[:40])
    for words in (("ZRANGE", "bulk:ZADD", 0, -1), ("LRANGE", "bulk:RPUSH", 0, -1), ("SMEMBERS", "bulk:SADD"),
                  ("HGETALL", "bulk:HSET"), ("LPOS", "bulk:RPUSH", "none"), ("LREM", "bulk:RPUSH", 0, "item:150000"),
                  ("LINSERT", "bulk:RPUSH", "BEFORE", "item:299000", "x"),
                  ("SINTERCARD", 3, "bulk:SADD", "bulk:SADD", "bulk:SADD"), ("SUNION", "bulk:SADD", "bulk:SADD"),
                  ("LTRIM", "bulk:LPUSH", 0, 10), ("ZREMRANGEBYRANK", "bulk:ZADD", 0, -10), ("LPOP", "bulk:RPUSH", 2**63 - 1)):
        s = connect()
        ask(s, "CLIENT", "REPLY", "ON")
        def one():
            s.sendall(encode(*words) + encode("ECHO", "that is all"))
            until(s, b"that is all\r\n")
        measured(" ".join(map(str, words))[:50], one)

for name in sys.argv[3:]:
    globals()[name]()
