"""The module beside others that share records or arrays between processes on one machine.

    cargo xtask python-bench          builds the wheel and fetches the peers into a virtual environment

Each figure is the median of the rounds. For records all contenders take turns in a round, so that a
busy machine is as busy for each; a ratio is taken within a round. For arrays each contender has its
rounds after the other. The first line says how busy the machine was before. Peers that are not
there are left out, and named. Below the figures are the goals, and whether they were reached.
"""

import argparse
import multiprocessing
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import mneme

try:
    import numpy
except ImportError:
    numpy = None
try:
    import redis
except ImportError:
    redis = None
try:
    import hiredis
except ImportError:
    hiredis = None
try:
    import lmdb
except ImportError:
    lmdb = None

RECORDS = 100_000
VALUE = b"v" * 100

#: Of `get` and of `get_many`: how many times the speed of redis-py, with hiredis.
TIMES_REDIS = 10

#: Until an array is there: seconds, and bytes that may be copied of 100 MB.
UNTIL_THERE = 1e-3
COPIED = 1_000_000


def key(i):
    return b"key:%08d" % i


def rounds(contenders, number):
    """Times, by contender, of `number` rounds in which they take turns."""
    taken = {name: [] for name in contenders}
    for _ in range(number):
        for name, round_ in contenders.items():
            taken[name].append(round_())
    return taken


class Redis:
    """A server of its own on a unix socket, and redis-py."""

    def __init__(self, directory):
        self.socket = os.path.join(directory, "redis.sock")
        command = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "", "--dir", directory]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client = redis.Redis(unix_socket_path=self.socket)
        for _ in range(6000):
            try:
                self.client.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.01)
        raise RuntimeError("redis-server did not start")

    def end(self):
        self.client.close()
        self.server.terminate()
        self.server.wait()


def records(directory, number, left_out):
    """get of one record, and get_many of 100."""
    store = mneme.create("bench", "256MiB")
    pairs = [(key(i), VALUE) for i in range(RECORDS)]
    store.put_many(pairs)
    reader = mneme.attach("bench")
    some = [key(i * 7919 % RECORDS) for i in range(1000)]
    batches = [some[i : i + 100] for i in range(0, 1000, 100)]

    def each(get):
        def round_():
            begin = time.perf_counter()
            for one in some:
                get(one)
            return (time.perf_counter() - begin) / len(some)
        return round_

    def batch(get_many):
        def round_():
            begin = time.perf_counter()
            for keys in batches:
                get_many(keys)
            return (time.perf_counter() - begin) / len(batches)
        return round_

    gets, many = {"mneme": each(reader.get)}, {"mneme": batch(reader.get_many)}
    server = None
    if redis and shutil.which("redis-server"):
        server = Redis(directory)
        pipe = server.client.pipeline(transaction=False)
        for k, v in pairs:
            pipe.set(k, v)
        pipe.execute()

        def pipelined(keys):
            for one in keys:
                pipe.get(one)
            return pipe.execute()

        assert pipelined(batches[0]) == reader.get_many(batches[0])
        name = "redis-py, hiredis" if hiredis else "redis-py"
        gets[name] = each(server.client.get)
        many[name + ", pipeline"] = batch(pipelined)
        many[name + ", MGET"] = batch(server.client.mget)
    else:
        left_out.append("redis-py or redis-server")
    if lmdb:
        environment = lmdb.open(os.path.join(directory, "lmdb"), map_size=1 << 30, sync=False)
        with environment.begin(write=True) as transaction:
            for k, v in pairs:
                transaction.put(k, v)

        def one(k):
            with environment.begin() as transaction:
                return transaction.get(k)

        def several(keys):
            with environment.begin() as transaction:
                return [transaction.get(k) for k in keys]

        gets["lmdb"], many["lmdb"] = each(one), batch(several)
    else:
        left_out.append("lmdb")
    for title, contenders, peer in [
        ("get of 100 bytes, attached", gets, "redis-py, hiredis"),
        ("get_many of 100 x 100 bytes", many, "redis-py, hiredis, pipeline"),
    ]:
        taken = rounds(contenders, number)
        report(title, taken, "us", 1e6)
        if peer in taken:
            ratios = [theirs / ours for theirs, ours in zip(taken[peer], taken["mneme"])]
            times = statistics.median(ratios)
            found = f"{times:.1f}x ({min(ratios):.1f} to {max(ratios):.1f})"
            goal(f"{TIMES_REDIS}x {peer}", found, times >= TIMES_REDIS)
    if server:
        server.end()
    reader.close()
    store.close()
    mneme.Segment.remove("bench")


def child(connection, kind, name, size):
    """Waits to be asked, and says how long it took to have the array, and its private memory."""

    def resident():
        with open("/proc/self/status") as status:
            return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) * 1024

    import multiprocessing.shared_memory as shared

    import mneme
    import numpy

    # What is imported at the first use is no part of the question.
    warm = mneme.Segment.open(name)
    warm.array("warm")
    warm.close()
    connection.send("ready")
    while connection.recv() == "go":
        before, begin = resident(), time.perf_counter()
        if kind == "mneme":
            segment = mneme.Segment.open(name)
            array = segment.array("x")
        elif kind == "shared_memory":
            memory = shared.SharedMemory(name=name.replace("bench", "mneme-bench"), create=False)
            array = numpy.ndarray(size, "u1", memory.buf)
        elif kind == "pickle":
            array = pickle.loads(connection.recv_bytes())
        else:
            array = numpy.frombuffer(redis.Redis(unix_socket_path=kind).get("x"), "u1")
        assert array[0] == array[-1] == 1
        taken = time.perf_counter() - begin
        connection.send((taken, resident() - before))
        del array
        if kind == "mneme":
            segment.close()
        elif kind == "shared_memory":
            memory.close()


def arrays(directory, number, left_out, size=100_000_000):
    """An array of 100 MB in another process."""
    import multiprocessing.shared_memory as shared

    array = numpy.ones(size, "u1")
    segment = mneme.Segment.create("bench", size + (64 << 20))
    segment.put_array("x", array)
    segment.put_array("warm", array[:1])
    memory = shared.SharedMemory("mneme-bench", create=True, size=size)
    numpy.ndarray(size, "u1", memory.buf)[...] = array
    kinds = {"mneme": "mneme", "multiprocessing.shared_memory": "shared_memory", "pickle over a pipe": "pickle"}
    server = None
    if redis and shutil.which("redis-server"):
        server = Redis(directory)
        server.client.set("x", array.tobytes())
        kinds["redis-py, GET"] = server.socket
    context = multiprocessing.get_context("spawn")
    taken = {}
    for label, kind in kinds.items():
        ours, theirs = context.Pipe()
        process = context.Process(target=child, args=(theirs, kind, "bench", size))
        process.start()
        assert ours.recv() == "ready"
        times = []
        for _ in range(number):
            ours.send("go")
            if kind == "pickle":
                begin = time.perf_counter()
                ours.send_bytes(pickle.dumps(array, protocol=5))
                _, private = ours.recv()
                times.append(time.perf_counter() - begin)
            else:
                took, private = ours.recv()
                times.append(took)
        ours.send("end")
        process.join()
        taken[f"{label} ({private / 1e6:.1f} MB copied)"] = times
        if kind == "mneme":
            until, copied = statistics.median(times), private
    report("an array of 100 MB in another process, from asking to its first and last byte", taken, "ms", 1e3)
    reached = until <= UNTIL_THERE and copied <= COPIED
    goal("1 ms, without a copy", f"{until * 1e3:.3f} ms, {copied / 1e6:.1f} MB", reached)
    if server:
        server.end()
    memory.close()
    memory.unlink()
    segment.close()
    mneme.Segment.remove("bench")


def report(title, taken, unit, scale):
    print(f"\n{title}")
    taken = {name: statistics.median(times) for name, times in taken.items()}
    ours = next(iter(taken.values()))
    for name, time_ in taken.items():
        print(f"  {time_ * scale:10.3f} {unit}  {time_ / ours:8.1f}x  {name}")


def goal(what, found, reached):
    print(f"  goal: {what}: {found}, {'reached' if reached else 'NOT reached'}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=30)
    number = arguments.parse_args().rounds
    directory, left_out = tempfile.mkdtemp(prefix="mneme-bench-", dir="/dev/shm"), []
    os.environ["MNEME_DIR"] = os.path.join(directory, "registry")
    try:
        print(f"mneme {mneme.__version__}, Python {sys.version.split()[0]}, medians of {number} rounds")
        print(f"load of the last minute: {os.getloadavg()[0]:.1f}, on {os.cpu_count()} processors")
        records(directory, number, left_out)
        if numpy:
            arrays(directory, number, left_out)
        else:
            left_out.append("numpy, and with it the arrays")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if left_out:
        print("\nnot here, and left out: " + ", ".join(left_out))


if __name__ == "__main__":
    main()
