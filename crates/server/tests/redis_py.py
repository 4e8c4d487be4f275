"""What programs do with redis-py, against the server whose port is the first argument. Ends with `done`.

Over TLS, if the paths of an authority, a certificate and a key are the other arguments.
"""

import sys
import threading

import redis

tls = {}
if len(sys.argv) > 2:
    ca, certificate, key = sys.argv[2:]
    files = {"ssl_ca_certs": ca, "ssl_certfile": certificate, "ssl_keyfile": key}
    tls = {"connection_class": redis.SSLConnection, **files}
pool = redis.ConnectionPool(host="127.0.0.1", port=int(sys.argv[1]), **tls)
r = redis.Redis(connection_pool=pool)
assert r.ping()

# Values, with and without options.
assert r.set("text", "gr\u00fc\u00df") and r.get("text").decode() == "gr\u00fc\u00df"
assert r.set("bytes", bytes(range(256))) and r.get("bytes") == bytes(range(256))
assert r.set("once", 1, nx=True) and r.set("once", 2, nx=True) is None
assert r.set("once", 3, get=True) == b"1"
assert r.mset({"a": 1, "b": 2}) and r.mget("a", "none", "b") == [b"1", None, b"2"]
assert r.incr("n") == 1 and r.incrby("n", 41) == 42 and r.decr("n") == 41
assert r.append("n", "0") == 3 and r.strlen("n") == 3

# Times.
assert r.setnx("session", "s") and r.expire("session", 100) and 98 <= r.ttl("session") <= 100
assert r.persist("session") and r.ttl("session") == -1 and r.ttl("none") == -2
assert r.set("gone", 1, px=1)
while r.exists("gone"):
    pass

# Keys.
assert r.rename("a", "c") and not r.exists("a") and r.exists("b", "c") == 2
r.mset({f"scan:{i}": i for i in range(1000)})
assert sorted(r.scan_iter("scan:*", count=50)) == sorted(f"scan:{i}".encode() for i in range(1000))
assert len(r.keys("scan:99?")) == 10
assert r.unlink(*[f"scan:{i}" for i in range(1000)]) == 1000

# A pipeline without a transaction, one with, and one that is refused since a watched key has changed.
with r.pipeline(transaction=False) as p:
    for i in range(10_000):
        p.set(f"p:{i % 100}", i)
    assert all(p.execute())
with r.pipeline() as p:
    assert p.set("x", 1).incr("x").get("x").execute() == [True, 2, b"2"]
with r.pipeline() as p:
    p.watch("x")
    r.set("x", "changed")
    p.multi()
    p.set("x", "mine")
    try:
        p.execute()
        raise AssertionError("it was carried out")
    except redis.WatchError:
        assert r.get("x") == b"changed"
try:
    r.incr("x")
    raise AssertionError("it was incremented")
except redis.ResponseError as error:
    assert str(error) == "value is not an integer or out of range"

# Several threads, each with a connection of the pool, through the library's own loop of watched transactions.
def increment():
    for _ in range(50):
        r.transaction(lambda p: (value := int(p.get("counter") or 0), p.multi(), p.set("counter", value + 1)), "counter")

threads = [threading.Thread(target=increment) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert r.get("counter") == b"200", r.get("counter")

# What tools ask for.
assert r.info()["redis_version"].startswith("7.") and r.dbsize() > 0
assert r.config_get("maxmemory") and r.client_id() > 0 and r.client_setname("test") and r.client_getname() == "test"
assert any(client["name"] == "test" for client in r.client_list())
assert r.command_count() > 40
assert r.flushall() and r.dbsize() == 0
print("done")
