"""Stores: what a mapping does, and every refusal."""

import datetime
import gc
import os
import pickle
import sys
import threading
import unittest

import mneme
from support import MIB, WithRegistry, patiently, python


class OneStore(unittest.TestCase):
    def setUp(self):
        self.store = mneme.Store("64MiB")

    def test_a_mapping(self):
        store = self.store
        store["a"] = b"1"
        store.put(bytearray(b"b"), memoryview(b"2222")[::2])
        self.assertEqual(store[b"a"], b"1")
        self.assertEqual(store.get("b"), b"22")
        self.assertIsNone(store.get("c"))
        self.assertEqual(store.get("c", 7), 7)
        self.assertIn("a", store)
        self.assertNotIn("c", store)
        self.assertEqual(len(store), 2)
        self.assertTrue(bool(store))
        self.assertTrue(store.delete("a"))
        self.assertFalse(store.delete("a"))
        del store["b"]
        for missing in (lambda: store["b"], lambda: store.__delitem__("b"), lambda: store.ttl("b")):
            self.assertRaises(KeyError, missing)
        self.assertEqual(len(store), 0)

    def test_text_keys_are_their_utf_8(self):
        self.store["é"] = b"x"
        self.assertEqual(self.store["é".encode()], b"x")

    def test_wrong_types_say_so(self):
        store = self.store
        for wrong in (lambda: store.get(1), lambda: store.put("k", "text"), lambda: store.put("k", 5),
                      lambda: store.put(None, b""), lambda: store.get_many([b"a", 1]),
                      lambda: store.update("k", 5), lambda: store.update("k", lambda old: "text"),
                      lambda: store.put("k", b"", expires="soon"), lambda: mneme.Store("64MiB", mode=0o600),
                      lambda: store.put_many([1])):
            self.assertRaises(TypeError, wrong)
        self.assertRaises(ValueError, lambda: store.put("\ud800", b""))
        self.assertEqual(len(store), 0)

    def test_bad_numbers_are_refused(self):
        store = self.store
        for wrong in (lambda: store.put("k", b"", expires=float("nan")), lambda: store.put("k", b"", expires=1e300),
                      lambda: store.put("k", b"", expires=-1e300), lambda: store.put(b"k" * 70_000, b""),
                      lambda: store.database(64), lambda: mneme.Store(1), lambda: mneme.Store("1 parsec"),
                      lambda: mneme.Store(-5), lambda: mneme.Store("64MiB", evict="all"),
                      lambda: mneme.Store("64MiB", max_capacity="1MiB")):
            with self.assertRaises(mneme.InvalidArgument) as raised:
                wrong()
            self.assertIsInstance(raised.exception, ValueError)
            self.assertTrue(str(raised.exception))
        self.assertRaises((OverflowError, TypeError), lambda: store.scan(-1))

    def test_many(self):
        store = self.store
        pairs = {f"{i}": b"v" * i for i in range(300)}
        self.assertEqual(store.put_many(pairs), 300)
        self.assertEqual(store.put_many((k, v) for k, v in pairs.items()), 300)
        keys = list(pairs) + ["missing"]
        self.assertEqual(store.get_many(keys), list(pairs.values()) + [None])
        self.assertEqual(sorted(store), sorted(k.encode() for k in pairs))
        self.assertEqual(dict(store.items()), {k.encode(): v for k, v in pairs.items()})
        cursor, seen = 0, {}
        while True:
            cursor, some = store.scan(cursor, 10)
            seen.update(some)
            if cursor == 0:
                break
        self.assertEqual(seen, dict(store.items()))
        self.assertEqual(store.delete_many(keys), 300)
        self.assertEqual((len(store), list(store)), (0, []))
        self.assertEqual(store.get_many([]), [])

    def test_others_run_during_a_batch(self):
        """The interpreter asks no thread to stop meanwhile: another one runs if the call lets it."""
        keys = [b"%d" % i for i in range(5_000)]
        pairs, long = [(key, b"v") for key in keys], bytes(4 * MIB)
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        for call in (lambda: self.store.put_many(pairs), lambda: self.store.get_many(keys),
                     lambda: self.store.scan(0, 5_000), lambda: self.store.delete_many(keys),
                     lambda: self.store.put("long", long)):
            waiting, goes, ran = threading.Event(), threading.Lock(), []
            goes.acquire()
            def other():
                waiting.set()
                with goes:
                    ran.append(True)
            thread = threading.Thread(target=other)
            thread.start()
            waiting.wait()
            sys.setswitchinterval(1_000)
            goes.release()
            calls = 0
            while not ran and calls < 2_000:
                call()
                calls += 1
            sys.setswitchinterval(0.005)
            thread.join()
            self.assertLess(calls, 2_000)

    def test_a_batch_that_fails_says_how_far_it_came(self):
        with self.assertRaises(mneme.InvalidArgument) as raised:
            self.store.put_many([(b"a", b""), (b"b", b""), (b"c" * 70_000, b"")])
        self.assertEqual(raised.exception.done, 2)
        self.assertEqual(len(self.store), 2)

    def test_expiry(self):
        store = self.store
        store.put("soon", b"x", expires=10_000)
        self.assertTrue(9_000 < store.ttl("soon") <= 10_001)
        store.put("delta", b"x", expires=datetime.timedelta(hours=1))
        self.assertTrue(3000 < store.ttl("delta") <= 3601)
        at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
        self.assertTrue(store.expire("soon", at))
        self.assertTrue(80_000 < store.ttl("soon") <= 86_401)
        self.assertTrue(store.expire("soon", None))
        self.assertIsNone(store.ttl("soon"))
        self.assertFalse(store.expire("nothing", 5))
        store.put("past", b"x", expires=-5)
        self.assertNotIn("past", store)
        store.put_many({"x": b"", "y": b""}, expires=5_000)
        self.assertIsNotNone(store.ttl("y"))

    def test_update(self):
        store = self.store
        more = lambda old: b"%d" % (int(old or 0) + 1)
        self.assertEqual(store.update("n", more), b"1")
        store.expire("n", 5_000)
        self.assertEqual(store.update("n", more), b"2")
        self.assertIsNotNone(store.ttl("n"))
        self.assertIsNone(store.update("n", lambda old: None))
        self.assertNotIn("n", store)
        with self.assertRaises(ZeroDivisionError):
            store.update("n", lambda old: 1 / 0)
        # The function may use the store: nothing is locked. Called again, for "n" was changed.
        calls = []
        def meddling(old):
            calls.append(old)
            if len(calls) == 1:
                store["n"] = b"meddled"
            return b"done"
        store.update("n", meddling)
        self.assertEqual((calls, store["n"]), ([None, b"meddled"], b"done"))

    def test_updates_by_threads_all_count(self):
        def work():
            for _ in range(200):
                patiently(self.store.update, "n", lambda old: b"%d" % (int(old or 0) + 1))
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(self.store["n"], b"800")

    def test_databases(self):
        third = self.store.database(3)
        third["k"] = b"3"
        self.assertEqual((third.number, len(third), len(self.store)), (3, 1, 0))
        third.clear()
        self.assertEqual(len(third), 0)

    def test_a_full_store_says_so_and_goes_on(self):
        value, stored = bytes(MIB), 0
        with self.assertRaises(mneme.Full) as raised:
            while stored < 1000:
                self.store.put(f"{stored}", value)
                stored += 1
        self.assertIsInstance(raised.exception, MemoryError)
        self.assertEqual(len(self.store), stored)
        self.store.delete_many([f"{i}" for i in range(stored // 2)])
        self.store.put("again", value)

    def test_stats_and_check(self):
        self.store["k"] = b"v"
        stats = self.store.stats()
        self.assertEqual((stats["records"], stats["evict"]), (1, "none"))
        self.assertEqual(self.store.check(), [])

    def test_closed(self):
        other = self.store.database(1)
        keys = iter(self.store)
        self.store.close()
        self.store.close()
        self.assertTrue(other.closed)
        for call in (lambda: other.get("k"), lambda: self.store.put("k", b""), lambda: len(self.store),
                     lambda: next(keys), lambda: self.store.view("k"), self.store.stats):
            self.assertRaises(mneme.Closed, call)
        with mneme.Store("64MiB") as inside:
            inside["k"] = b""
        self.assertTrue(inside.closed)

    def test_it_stays_in_its_process(self):
        with self.assertRaises(TypeError) as raised:
            pickle.dumps(self.store)
        self.assertIn("mneme.create", str(raised.exception))


class Hashes(unittest.TestCase):
    def setUp(self):
        self.store = mneme.Store("64MiB")
        self.hash = self.store.hash("h")

    def test_a_mapping(self):
        h = self.hash
        self.assertEqual(h.key, b"h")
        self.assertEqual((len(h), list(h), h.get("f"), h.get("f", 7)), (0, [], None, 7))
        self.assertNotIn("h", self.store)
        h["f"] = b"1"
        self.assertFalse(h.put("f", b"2"))
        self.assertTrue(h.put(b"g", bytearray(b"")))
        self.assertEqual(dict(h), {b"f": b"2", b"g": b""})
        self.assertEqual(dict(h.items()), {b"f": b"2", b"g": b""})
        self.assertEqual(sorted(h.keys()), [b"f", b"g"])
        self.assertIn("f", h)
        self.assertNotIn("none", h)
        self.assertFalse(h.put_new("f", b"x"))
        self.assertTrue(h.put_new("n", b"x"))
        self.assertEqual(h.get_many(["f", "none", b"n"]), [b"2", None, b"x"])
        self.assertEqual(h.put_many({"f": b"3", "m": b"y"}), 1)
        self.assertEqual(h.put_many([("a", b"1"), ("a", b"2")]), 1)
        self.assertEqual(h["a"], b"2")
        self.assertEqual(h.increment("f"), 4)
        self.assertEqual(h.increment("new", -5), -5)
        self.assertEqual(h.delete_many(["a", "m", "none"]), 2)
        self.assertTrue(h.delete("n"))
        self.assertFalse(h.delete("n"))
        del h["f"]
        for gone in (lambda: h["f"], lambda: h.__delitem__("f")):
            self.assertRaises(KeyError, gone)
        self.assertEqual(h.delete_many(["g", "new"]), 2)
        self.assertNotIn("h", self.store)
        self.assertTrue(bool(h))

    def test_a_value_of_another_kind_is_refused_and_stays(self):
        self.hash["f"] = b"v"
        self.store["s"] = b"text"
        string = self.store.hash("s")
        for wrong in (lambda: self.store.get("h"), lambda: self.store.view("h"), lambda: string.get("f"),
                      lambda: string.put("f", b"v"), lambda: len(string), lambda: self.hash.increment("f"),
                      lambda: self.store.update("h", lambda old: b"")):
            self.assertRaises(mneme.InvalidArgument, wrong)
        self.assertEqual((self.store["s"], self.hash["f"]), (b"text", b"v"))
        self.assertEqual(sorted(self.store), [b"h", b"s"])
        self.assertEqual(list(self.store.items()), [(b"s", b"text")])
        for wrong in (lambda: self.hash.put("f", "text"), lambda: self.hash.get(1), lambda: self.hash.put_many([1])):
            self.assertRaises(TypeError, wrong)
        self.assertRaises(OverflowError, lambda: self.hash.increment("f", 1 << 64))

    def test_changes_by_threads_all_count(self):
        def many():
            for _ in range(200):
                self.hash.increment("sum")

        threads = [threading.Thread(target=many) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.hash["sum"], b"600")

    def test_it_closes_with_its_store(self):
        self.store.close()
        self.assertRaises(mneme.Closed, lambda: self.hash.get("f"))
        self.assertRaises(mneme.Closed, lambda: self.store.hash("h"))


class Transactions(WithRegistry):
    def setUp(self):
        super().setUp()
        self.store = mneme.create("it", "64MiB")
        self.store.put_many({"ada": b"1000", "bob": b"1000"})

    def test_all_or_nothing(self):
        store = self.store
        third = store.database(3)
        third["there"] = b"x"
        with store.transaction() as t:
            t["ada"], t["new"] = b"990", b"1"
            self.assertTrue(t.delete("bob"))
            t.database(3)["here"] = t.database(3)["there"]
            del t.database(3)["there"]
            self.assertEqual((t["ada"], t.get("bob"), t.get("bob", 7)), (b"990", None, 7))
            self.assertIn("new", t)
            self.assertNotIn("there", t.database(3))
            # Nothing is seen before the end.
            self.assertEqual((store["ada"], store["bob"], len(third)), (b"1000", b"1000", 1))
        self.assertEqual(dict(store.items()), {b"ada": b"990", b"new": b"1"})
        self.assertEqual(dict(third.items()), {b"here": b"x"})
        with self.assertRaises(ZeroDivisionError):
            with store.transaction() as t:
                t["ada"] = b"lost"
                1 / 0
        self.assertEqual(store["ada"], b"990")

    def test_what_was_read_and_changed_is_a_conflict(self):
        store, third = self.store, self.store.database(3)
        third["k"] = b"k"
        for read, change in (
            (lambda t: t["ada"], lambda: store.put("ada", b"other")),
            (lambda t: "ada" in t, lambda: store.delete("ada")),
            (lambda t: t.get("none"), lambda: store.put("none", b"")),
            (lambda t: t.delete("none"), lambda: store.put("none", b"")),
            (lambda t: t.expire("ada", 5_000), lambda: store.put("ada", b"other")),
            (lambda t: t.ttl("ada"), lambda: store.expire("ada", 5_000)),
            (lambda t: t.database(3)["k"], lambda: third.put("k", b"other")),
            (lambda t: t.database(3)["k"], third.clear),
        ):
            store.put("ada", b"1000")
            store.delete("none")
            with self.assertRaises(mneme.Conflict) as raised:
                with store.transaction() as t:
                    read(t)
                    change()
                    read(t)  # as it was read
                    t["bob"] = b"lost"
            self.assertIn("transact", str(raised.exception))
            self.assertEqual(store["bob"], b"1000")
        # A change of what it only writes is none, nor is one that was undone.
        store["ada"] = b"1000"
        with store.transaction() as t:
            t["bob"] = t["ada"]
            store["bob"] = b"other"
            store["ada"] = b"other"
            store["ada"] = b"1000"
        self.assertEqual(store["bob"], b"1000")

    def test_reads_alone_are_of_one_moment(self):
        reader = mneme.attach("it")
        with reader.transaction() as t:
            self.assertEqual((t["ada"], t["bob"], t.get("none")), (b"1000", b"1000", None))
        with self.assertRaises(mneme.Conflict):
            with reader.transaction() as t:
                t["ada"]
                self.store["ada"] = b"7"
        with self.assertRaises(mneme.ReadOnly):
            with reader.transaction() as t:
                t["ada"] = b"lost"
        self.assertEqual(self.store["ada"], b"7")

    def test_expiry(self):
        store = self.store
        with store.transaction() as t:
            t.put("soon", b"x", expires=5_000)
            self.assertTrue(t.expire("ada", datetime.timedelta(hours=1)))
            self.assertFalse(t.expire("none", 5))
            self.assertTrue(3000 < t.ttl("ada") <= 3601)
            self.assertIsNone(t.ttl("bob"))
            t.put("past", b"x", expires=-5)
            self.assertNotIn("past", t)
            self.assertRaises(KeyError, lambda: t.ttl("past"))
        self.assertTrue(3000 < store.ttl("ada") <= 3601)
        self.assertTrue(4000 < store.ttl("soon") <= 5001)
        self.assertNotIn("past", store)

    def test_refusals(self):
        store = self.store
        t = store.transaction()
        for expected, call in (
            (mneme.Closed, lambda: t.get("ada")),
            (mneme.Closed, lambda: t.put("ada", b"")),
            (TypeError, lambda: store.transact(5)),
            (TypeError, lambda: mneme.Transaction()),
        ):
            self.assertRaises(expected, call)
        with t:
            for expected, call in (
                (mneme.Nested, t.__enter__),
                (mneme.InvalidArgument, lambda: t.database(64)),
                (TypeError, lambda: t.put("ada", "text")),
                (TypeError, lambda: t.get(5)),
                (KeyError, lambda: t["none"]),
                (KeyError, lambda: t.__delitem__("none")),
                (KeyError, lambda: t.ttl("none")),
            ):
                self.assertRaises(expected, call)
        self.assertRaises(mneme.Closed, lambda: t.database(1).get("ada"))
        with self.assertRaises(mneme.InvalidArgument):
            with t:
                t["ada"] = b"lost"
                t[b"k" * 70_000] = b""
        with self.assertRaises(mneme.Full):
            with t:
                t["ada"] = b"lost"
                for i in range(100):
                    t[f"{i}"] = bytes(MIB)
        self.assertEqual((store["ada"], len(store)), (b"1000", 2))
        with self.assertRaises(mneme.Closed):
            with t:
                store.close()
        self.assertRaises(mneme.Closed, store.transaction)

    def test_a_function_is_called_until_there_is_no_conflict(self):
        seen = []
        def move(t):
            seen.append(t["ada"])
            if len(seen) == 1:
                self.store["ada"] = b"500"
            t["bob"] = t["ada"]
            return "done"
        self.assertEqual(self.store.transact(move), "done")
        self.assertEqual((seen, self.store["bob"]), ([b"1000", b"500"], b"500"))
        with self.assertRaises(ZeroDivisionError):
            self.store.transact(lambda t: t.put("bob", b"lost") or 1 / 0)
        self.assertEqual(self.store["bob"], b"500")

    def test_transfers_by_threads_and_processes_keep_the_sum(self):
        program = (
            "import mneme, sys\n"
            "from support import patiently\n"
            "store = mneme.attach('it', writable=True)\n"
            "def move(t, of, to):\n"
            "    t[of], t[to] = b'%d' % (int(t[of]) - 1), b'%d' % (int(t[to]) + 1)\n"
            "for _ in range(100):\n"
            "    patiently(store.transact, lambda t: move(t, *sys.argv[1:3]))\n"
        )
        def move(t):
            t["bob"], t["ada"] = b"%d" % (int(t["bob"]) - 1), b"%d" % (int(t["ada"]) + 1)
        def work():
            for _ in range(100):
                patiently(self.store.transact, move)
        threads = [threading.Thread(target=work) for _ in range(2)]
        threads.append(threading.Thread(target=python, args=(program, "ada", "bob")))
        [t.start() for t in threads]
        both = lambda t: int(t["ada"]) + int(t["bob"])
        while any(t.is_alive() for t in threads):
            self.assertEqual(patiently(self.store.transact, both), 2000)
        [t.join() for t in threads]
        self.assertEqual((self.store["ada"], self.store["bob"]), (b"1100", b"900"))

    def test_a_forked_child_is_told(self):
        said = python(
            "import mneme, os\n"
            "store = mneme.attach('it', writable=True)\n"
            "with store.transaction() as t:\n"
            "    t['ada'] = b'7'\n"
            "    child = os.fork()\n"
            "    if child == 0:\n"
            "        told = 0\n"
            "        for call in (lambda: t.get('ada'), lambda: t.__exit__(None, None, None), store.transaction):\n"
            "            try: call()\n"
            "            except mneme.Forked: told += 1\n"
            "        os._exit(told)\n"
            "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
            "print(store['ada'])\n"
        )
        self.assertEqual(said.split(), ["3", "b'7'"])


class Views(unittest.TestCase):
    def setUp(self):
        self.store = mneme.Store("64MiB")
        self.long = bytes(range(256)) * 1024
        self.store["long"] = self.long
        self.store["short"] = b"short"

    def test_a_view_is_the_value(self):
        for key in ("long", "short"):
            with self.store.view(key) as view:
                self.assertEqual(bytes(view), self.store[key])
                self.assertTrue(view.readonly)
                with self.assertRaises(TypeError):
                    view[0] = 1
        self.assertRaises(KeyError, lambda: self.store.view("none"))
        self.store.close()

    def test_what_is_made_of_a_view_keeps_it(self):
        """Slices and views of views outlive the `with`, the change of the record, and close()."""
        with self.store.view("long") as view:
            part = view[1000:200_000]
            again = memoryview(part)
        # The lent value is removed, and its memory wanted by others.
        for _ in range(4):
            del self.store["long"]
            for i in range(30):
                self.store.put(f"{i}", bytes(300_000))
            self.store.delete_many([f"{i}" for i in range(30)])
            self.store["long"] = b"\xff" * len(self.long)
        self.assertEqual(bytes(again), self.long[1000:200_000])
        with self.assertRaises(mneme.InUse):
            self.store.close()
        del part
        gc.collect()
        self.assertRaises(mneme.InUse, self.store.close)
        again.release()
        self.store.close()

    def test_a_view_that_is_used_when_its_block_ends(self):
        with self.assertRaises(BufferError):
            with self.store.view("long") as view:
                used = pickle.PickleBuffer(view)
        self.assertEqual(bytes(used.raw()[:4]), self.long[:4])
        used.release()

    def test_views_by_many_threads_given_up_by_others(self):
        views = []
        def take():
            views.append(self.store.view("long"))
        threads = [threading.Thread(target=take) for _ in range(20)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        # Those threads are gone; their views are whole, and given up here.
        self.assertTrue(all(view == self.long for view in views))
        views.clear()
        self.store.close()

    def test_more_views_than_are_lent(self):
        views = [self.store.view("long") for _ in range(100)]
        self.assertTrue(all(view == self.long for view in views))

    def test_a_writer_is_not_stopped_by_a_short_view(self):
        with self.store.view("long"):
            for i in range(200):
                self.store.put("other", bytes(50_000))
        self.assertEqual(self.store.check(), [])


class Named(WithRegistry):
    def test_two_programs_share_a_store(self):
        with mneme.create("shared", "64MiB") as store:
            store["greeting"] = b"hello"
            said = python(
                "import mneme\n"
                "s = mneme.attach('shared', writable=True)\n"
                "print(s['greeting'].decode(), s.name, s.writable)\n"
                "s.database(2)['from'] = b'there'"
            )
            self.assertEqual(said.split(), ["hello", "shared", "True"])
            self.assertEqual(store.database(2)["from"], b"there")

    def test_refusals(self):
        store = mneme.create("it", "64MiB")
        reader = mneme.attach("it")
        self.assertFalse(reader.writable)
        for expected, call in (
            (mneme.NotFound, lambda: mneme.attach("nothing")),
            (LookupError, lambda: mneme.attach("nothing")),
            (mneme.Exists, lambda: mneme.create("it", "64MiB")),
            (mneme.InvalidArgument, lambda: mneme.create("a/b", "64MiB")),
            (mneme.InvalidArgument, lambda: mneme.create("b", "64MiB", mode=0o777)),
            (mneme.InvalidArgument, lambda: mneme.create("b", "64MiB", backing="paper")),
            (TypeError, lambda: mneme.create("b", "64MiB", colour="red")),
            (mneme.ReadOnly, lambda: reader.put("k", b"v")),
            (mneme.ReadOnly, lambda: reader.update("k", lambda old: b"v")),
            (mneme.ReadOnly, lambda: reader.put_many({"k": b"v"})),
            (mneme.ReadOnly, lambda: reader.delete("k")),
            (mneme.Error, lambda: mneme.attach("it", registry="/proc/nothing")),
        ):
            self.assertRaises(expected, call)
        self.assertEqual(len(store), 0)
        self.assertEqual(mneme.open_or_create("it", "64MiB").name, "it")

    def test_pickled_by_name(self):
        store = mneme.create("it", "64MiB")
        store.database(5)["k"] = b"v"
        again = pickle.loads(pickle.dumps(store.database(5)))
        self.assertEqual((again["k"], again.number, again.writable), (b"v", 5, True))

    def test_a_process_without_memory_for_a_long_value_is_told(self):
        """Nothing ends the process, and what needs no copy goes on."""
        for make in ("mneme.create('it', '128MiB')", "mneme.Store('128MiB')"):
            said = python(
                "import ctypes, mneme, resource, sys\n"
                "c = ctypes.CDLL(None)  # nothing is kept in reserve: M_ARENA_MAX, M_MMAP_THRESHOLD\n"
                "c.mallopt(-8, 1), c.mallopt(-3, 1 << 20)\n"
                f"s, long = {make}, bytes(20 << 20)\n"
                "s['long'], s['short'] = long, b's'\n"
                "pages = int(open('/proc/self/statm').read().split()[0])\n"
                "limit = pages * resource.getpagesize() + (4 << 20)\n"
                "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
                "def block():\n"
                "    with s.transaction() as t:\n"
                "        t['long']\n"
                "for call in (lambda: s['long'], lambda: s.get_many(['long']), s.scan, block,\n"
                "             lambda: list(s.items()), lambda: s.update('long', len),\n"
                "             lambda: s.update('short', lambda old: long)):\n"
                "    try:\n"
                "        call()\n"
                "    except mneme.Full:\n"
                "        print('full')\n"
                "print(s['short'].decode(), sorted(s) == [b'long', b'short'], s.check())\n"
            )
            self.assertEqual(said.split(), ["full"] * 7 + ["s", "True", "[]"], make)

    def test_a_killed_writer_leaves_a_store_that_works(self):
        store = mneme.create("it", "64MiB")
        done = python(
            "import mneme, os, signal, threading\n"
            "s = mneme.attach('it', writable=True)\n"
            "def write():\n"
            "    i = 0\n"
            "    while True:\n"
            "        s.put(str(i % 100), b'x' * 1000); i += 1\n"
            "        if i == 500: os.kill(os.getpid(), signal.SIGKILL)\n"
            "threads = [threading.Thread(target=write) for _ in range(2)]\n"
            "[t.start() for t in threads]\n",
            check=False,
        )
        self.assertEqual(done.returncode, -9)
        patiently(store.put, "after", b"it")
        self.assertEqual((store["after"], len(store)), (b"it", 101))
        self.assertEqual(store.check(), [])

    def test_a_forked_child_is_told(self):
        """No call hangs or crashes, whatever the parent's threads held; the child may attach anew."""
        said = python(
            "import mneme, os, sys\n"
            "named, own = mneme.create('it', '64MiB'), mneme.Store('64MiB')\n"
            "own['long'] = bytes(300_000); named['k'] = b'v'\n"
            "view, keys = own.view('long'), iter(named)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    told = 0\n"
            "    for call in (lambda: named.get('k'), lambda: own.put('k', b''), lambda: own.view('long'),\n"
            "                 lambda: next(keys), lambda: len(named), named.close, lambda: named.database(1),\n"
            "                 lambda: named.get_many(['k']), lambda: named.update('k', lambda old: old)):\n"
            "        try: call()\n"
            "        except mneme.Forked as why: told += 'spawn' in str(why)\n"
            "    assert bytes(view) == bytes(300_000)\n"
            "    again = mneme.attach('it', writable=True)\n"
            "    again['child'] = again['k']\n"
            "    again.close()\n"
            "    del view, named, own, keys\n"
            "    sys.exit(told)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), named['child'], own['long'] == bytes(300_000))\n"
        )
        self.assertEqual(said.split(), ["9", "b'v'", "True"])

    def test_multiprocessing(self):
        """Stores go by name to processes that are spawned or come from a fork server."""
        program = (
            "import mneme, multiprocessing, sys\n"
            "def work(store, key):\n"
            "    store[key] = store['greeting'] + key\n"
            "if __name__ == '__main__':\n"
            "    store = mneme.create('it', '64MiB')\n"
            "    store['greeting'] = b'hello '\n"
            "    for method in ('spawn', 'forkserver'):\n"
            "        context = multiprocessing.get_context(method)\n"
            "        child = context.Process(target=work, args=(store, method.encode()))\n"
            "        child.start(); child.join()\n"
            "        print(store[method])\n"
        )
        path = os.path.join(self.registry, "program.py")
        with open(path, "w") as file:
            file.write(program)
        said = python("import runpy, sys; sys.argv = [sys.argv[1]]\n"
                      "import subprocess; print(subprocess.run([sys.executable, sys.argv[0]], check=True, "
                      "capture_output=True, text=True, timeout=100).stdout)", path)
        self.assertEqual(said.split("\n")[:2], ["b'hello spawn'", "b'hello forkserver'"])

    def test_processes_that_count_together(self):
        program = (
            "import mneme\n"
            "s = mneme.open_or_create('n', '64MiB')\n"
            "from support import patiently\n"
            "for _ in range(300): patiently(s.update, 'n', lambda old: b'%d' % (int(old or 0) + 1))\n"
        )
        store = mneme.open_or_create("n", "64MiB")
        threads = [threading.Thread(target=python, args=(program,)) for _ in range(2)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(store["n"], b"600")


class Exceptions(unittest.TestCase):
    def test_one_hierarchy(self):
        names = [name for name in mneme.__all__ if isinstance(getattr(mneme, name), type)]
        errors = [getattr(mneme, name) for name in names if issubclass(getattr(mneme, name), Exception)]
        self.assertGreater(len(errors), 12)
        for error in errors:
            self.assertTrue(issubclass(error, mneme.Error))
            self.assertEqual(error.__module__, "mneme")
            self.assertTrue(error.__doc__)


if __name__ == "__main__":
    unittest.main()
