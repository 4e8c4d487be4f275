"""Sets, sorted sets and lists, small ones and large ones, beside Python's own."""

import math
import random
import threading
import unittest
from collections import deque

import mneme
from support import WithRegistry, begin, patiently

LARGE = 5000
"""Elements that no record of its own holds."""


def key_of(number):
    return b"element %d" % number


class Sets(unittest.TestCase):
    def setUp(self):
        self.store = mneme.Store("64MiB")
        self.set = self.store.set("s")

    def test_a_set_behaves_as_one_of_python_but_says_what_changed(self):
        s = self.set
        self.assertEqual((s.key, repr(s)), (b"s", '<mneme.Set b"s">'))
        self.assertEqual((len(s), list(s), s.random(), s.pop_many(3), s.scan()), (0, [], None, [], (0, [])))
        self.assertNotIn("s", self.store)
        self.assertTrue(s.add("a"))
        self.assertFalse(s.add(b"a"))
        self.assertEqual(s.add_many(["b", bytearray(b"c"), "a", "b"]), 2)
        self.assertEqual(set(s), {b"a", b"b", b"c"})
        self.assertIn("a", s)
        self.assertNotIn("z", s)
        self.assertEqual(s.contains_many(["a", "z", "c"]), [True, False, True])
        self.assertIn(s.random(), s)
        s.remove("a")
        self.assertRaises(KeyError, s.remove, "a")
        self.assertTrue(s.discard("b"))
        self.assertFalse(s.discard("b"))
        self.assertEqual(s.pop(), b"c")
        self.assertRaises(KeyError, s.pop)
        self.assertNotIn("s", self.store)
        self.assertTrue(bool(s))

    def test_a_large_set_has_what_was_put_into_it(self):
        for policy in (False, True):
            store = mneme.Store("64MiB", in_place=policy)
            s, members = store.set("s"), {key_of(i) for i in range(LARGE)}
            self.assertEqual(s.add_many(members), LARGE)
            self.assertEqual((len(s), set(s)), (LARGE, members))
            self.assertEqual(s.contains_many([key_of(7), b"none"]), [True, False])
            found, cursor = set(), 0
            while True:
                cursor, step = s.scan(cursor, count=500)
                self.assertLess(len(step), LARGE)
                found.update(step)
                if cursor == 0:
                    break
            self.assertEqual(found, members)
            popped = [s.pop(), *s.pop_many(1000)]
            self.assertEqual(len(set(popped)), 1001)
            self.assertEqual(set(s), members - set(popped))
            self.assertEqual(s.discard_many(members), LARGE - 1001)
            self.assertNotIn("s", store)
            self.assertEqual(store.check(), [])


class SortedSets(unittest.TestCase):
    def setUp(self):
        self.store = mneme.Store("64MiB")
        self.board = self.store.sorted_set("z")

    def test_a_sorted_set_is_a_mapping_in_the_order_of_its_scores(self):
        z = self.board
        self.assertEqual((z.key, repr(z)), (b"z", '<mneme.SortedSet b"z">'))
        nothing = (len(z), list(z), z.get("a"), z.get("a", 7), z.range(), z.rank("a"), z.scan(), z.count_by_score())
        self.assertEqual(nothing, (0, [], None, 7, [], None, (0, []), 0))
        self.assertEqual((z.range_by_score(), z.pop_first_many(2), z.delete_range()), ([], [], 0))
        z["ada"] = 1815
        self.assertFalse(z.put("ada", 1815.5))
        self.assertEqual(z.put_many({"grace": 1906, b"edsger": 1930}), 2)
        self.assertEqual(z.put_many([("x", 1), ("x", 2)]), 1)
        self.assertEqual((z["ada"], z.get(b"x")), (1815.5, 2.0))
        self.assertEqual(list(z), [b"x", b"ada", b"grace", b"edsger"])
        self.assertEqual(list(reversed(z)), [b"edsger", b"grace", b"ada", b"x"])
        self.assertEqual(list(z.keys()), list(z))
        self.assertEqual(dict(z), dict(z.items()))
        self.assertEqual(list(z.items()), [(b"x", 2.0), (b"ada", 1815.5), (b"grace", 1906.0), (b"edsger", 1930.0)])
        self.assertEqual((z.rank("grace"), z.rank("grace", reverse=True), z.rank("none")), (2, 1, None))
        self.assertEqual((z.increment("x"), z.increment("new", -2.5)), (3.0, -2.5))
        self.assertIn("x", z)
        self.assertTrue(z.delete("x"))
        self.assertFalse(z.delete("x"))
        self.assertNotIn("x", z)
        del z["new"]
        for gone in (lambda: z["new"], lambda: z.__delitem__("new")):
            self.assertRaises(KeyError, gone)
        self.assertEqual(z.pop_first(), (b"ada", 1815.5))
        self.assertEqual(z.pop_last(), (b"edsger", 1930.0))
        self.assertEqual(z.delete_many(["grace", "none"]), 1)
        for pop in (z.pop_first, z.pop_last):
            self.assertRaises(KeyError, pop)
        self.assertNotIn("z", self.store)
        self.assertTrue(bool(z))

    def test_ranges_are_those_of_python_s_slices_and_of_bounds(self):
        for count in (20, LARGE):
            members = [(b"%06d" % i, float(i // 2)) for i in range(count)]
            self.assertEqual(self.board.put_many(random.sample(members, count)), count)
            z, last = self.board, count // 2 - 1
            for start, stop in [(0, None), (0, 0), (3, 9), (-3, None), (0, -15), (9, 3), (-1 << 63, (1 << 63) - 1)]:
                self.assertEqual(z.range(start, stop), members[start:stop])
                self.assertEqual(z.range(start, stop, reverse=True), members[::-1][start:stop])
            self.assertEqual(z.range_by_score(2, 3), members[4:8])
            self.assertEqual(z.range_by_score(2, 3, inclusive=(False, True)), members[6:8])
            self.assertEqual(z.range_by_score(2, 3, inclusive=(True, False)), members[4:6])
            self.assertEqual(z.range_by_score(2, 3, inclusive=(False, False)), [])
            self.assertEqual(z.range_by_score(3, 2), [])
            self.assertEqual(z.range_by_score(high=1), members[:4])
            self.assertEqual(z.range_by_score(last), members[-2:])
            self.assertEqual(z.range_by_score(-math.inf, math.inf), members)
            self.assertEqual(z.range_by_score(offset=2, limit=3), members[2:5])
            self.assertEqual(z.range_by_score(reverse=True, offset=2, limit=3), members[::-1][2:5])
            self.assertEqual(z.range_by_score(offset=count + 1, limit=3), [])
            self.assertEqual(z.range_by_score(offset=count - 1, limit=3, reverse=True), members[:1])
            self.assertEqual((z.count_by_score(), z.count_by_score(2, 3, inclusive=(False, True))), (count, 2))
            self.assertEqual(z.delete_range(-2), 2)
            self.assertEqual(z.delete_range(0, 2, reverse=True), 2)
            self.assertEqual(z.delete_by_score(0, 1, inclusive=(True, False)), 2)
            self.assertEqual(list(z.items()), members[2:-4])
            self.assertEqual(z.pop_first_many(3), members[2:5])
            self.assertEqual(z.pop_last_many(1 << 63), members[-5:4:-1])
            self.assertEqual(self.store.check(), [])

    def test_members_of_one_score_are_in_the_order_of_their_bytes(self):
        for count in (20, LARGE):
            members = [(b"%06d" % i, 0.0) for i in range(count)]
            z = self.board
            z.put_many(members)
            self.assertEqual(z.range_by_member("000003", b"000005"), members[3:6])
            self.assertEqual(z.range_by_member("000003", "000005", inclusive=(False, False)), members[4:5])
            self.assertEqual(z.range_by_member(high="000003", reverse=True, offset=1, limit=2), members[2:0:-1])
            self.assertEqual((z.count_by_member("000003"), z.count_by_member()), (count - 3, count))
            self.assertEqual(z.delete_by_member("000003", "000005"), 3)
            self.assertEqual(z.delete_by_member(), count - 3)

    def test_a_large_sorted_set_has_what_was_put_into_it(self):
        for policy in (False, True):
            store = mneme.Store("64MiB", in_place=policy)
            z, members = store.sorted_set("z"), {key_of(i): float(i * 7 % LARGE) for i in range(LARGE)}
            z.put_many(members)
            found, cursor = {}, 0
            while True:
                cursor, step = z.scan(cursor, count=500)
                self.assertLess(len(step), LARGE)
                found.update(step)
                if cursor == 0:
                    break
            self.assertEqual(found, members)
            order = sorted(members, key=lambda member: (members[member], member))
            self.assertEqual(list(z), order)
            self.assertEqual(z.rank(order[1234]), 1234)
            self.assertEqual(z.rank(order[1234], reverse=True), LARGE - 1235)
            self.assertEqual(z.delete_many(order[:3000]), 3000)
            self.assertEqual((len(z), z.pop_first()[0]), (LARGE - 3000, order[3000]))
            self.assertEqual(store.check(), [])

    def test_what_is_not_a_number_is_refused_as_a_score_or_a_bound(self):
        z = self.board
        z["a"] = math.inf
        for wrong in (lambda: z.put("a", math.nan), lambda: z.increment("a", -math.inf),
                      lambda: z.put_many({"b": 1, "c": math.nan}), lambda: z.range_by_score(math.nan),
                      lambda: z.count_by_score(high=math.nan), lambda: z.delete_by_score(math.nan)):
            self.assertRaises(mneme.InvalidArgument, wrong)
        for wrong in (lambda: z.put("a", "1"), lambda: z.put_many([1]), lambda: z.put_many({"a": None}),
                      lambda: z.range_by_score("0"), lambda: z.range_by_member(1), lambda: z.range(1.5),
                      lambda: z.range_by_score(inclusive=True)):
            self.assertRaises(TypeError, wrong)
        for wrong in (lambda: z.pop_first_many(-1), lambda: z.range_by_score(limit=-1)):
            self.assertRaises(OverflowError, wrong)
        self.assertEqual(list(z.items()), [(b"a", math.inf)])


class Lists(unittest.TestCase):
    def setUp(self):
        self.store = mneme.Store("64MiB")
        self.list = self.store.list("l")

    def test_a_list_behaves_as_a_deque_but_says_how_long_it_is(self):
        x = self.list
        self.assertEqual((x.key, repr(x)), (b"l", '<mneme.List b"l">'))
        self.assertEqual((len(x), list(x), x[:], x.pop_many(2), b"a" in x, x.count(b"a")), (0, [], [], [], False, 0))
        self.assertEqual((x.extend([]), "l" in self.store), (0, False))
        self.assertEqual((x.append(b"b"), x.appendleft(bytearray(b"a"))), (1, 2))
        self.assertEqual((x.extend([b"c", b"d"]), x.extendleft([b"2", b"1"])), (4, 6))
        self.assertEqual(list(x), [b"1", b"2", b"a", b"b", b"c", b"d"])
        self.assertEqual(list(reversed(x)), list(x)[::-1])
        self.assertEqual((x[0], x[5], x[-1], x[-6]), (b"1", b"d", b"d", b"1"))
        x[0], x[-1] = b"one", b"last"
        self.assertEqual((x.pop(), x.popleft()), (b"last", b"one"))
        self.assertEqual((x.insert_before(b"b", b"x"), x.insert_after(b"b", b"x")), (2, 4))
        self.assertEqual(list(x), [b"2", b"a", b"x", b"b", b"x", b"c"])
        self.assertEqual((x.index(b"x"), x.count(b"x"), b"x" in x, b"y" in x), (2, 2, True, False))
        x.remove(b"x")
        self.assertEqual(x.index(b"x"), 3)
        for gone in (lambda: x.remove(b"y"), lambda: x.index(b"y"), lambda: x.insert_before(b"y", b""),
                     lambda: x.insert_after(b"y", b"")):
            self.assertRaises(ValueError, gone)
        for beyond in (lambda: x[5], lambda: x[-6], lambda: x[-1 << 63], lambda: x.__setitem__(5, b""),
                       lambda: x.__setitem__(-6, b"")):
            self.assertRaises(IndexError, beyond)
        x.trim(1, -1)
        self.assertEqual(list(x), [b"a", b"b", b"x"])
        x.extend([b"x", b"y", b"x"])
        self.assertEqual((x.discard(b"x", 0), x.discard(b"x", 1, reverse=True), x.discard(b"x")), (0, 1, 2))
        self.assertEqual((x.popleft_many(2), x.pop_many(9)), ([b"a", b"b"], [b"y"]))
        for pop in (x.pop, x.popleft):
            self.assertRaises(IndexError, pop)
        self.assertNotIn("l", self.store)
        self.assertTrue(bool(x))

    def test_slices_are_those_of_a_list_of_python(self):
        for count in (0, 1, 7, LARGE):
            items = [key_of(i) for i in range(count)]
            self.list.extend(items)
            bounds = [None, 0, 1, 3, 6, 7, 8, -1, -2, -7, -8, -(1 << 63), (1 << 63) - 1]
            for step in (None, 1, 2, -1, -2, 3, -(1 << 63)):
                pairs = [(i, j) for i in bounds for j in bounds] if count < 10 else [(1, 8), (-8, -2), (8, 1), (None, -7)]
                for start, stop in pairs:
                    self.assertEqual(self.list[start:stop:step], items[start:stop:step], (count, start, stop, step))
            self.assertRaises(mneme.InvalidArgument, lambda: self.list[::0])
            self.list.trim(0, 0)
            self.assertNotIn("l", self.store)

    def test_a_large_list_is_as_a_deque_is_after_many_changes(self):
        for policy in (False, True):
            store = mneme.Store("64MiB", in_place=policy)
            x, model, draw = store.list("l"), deque(), random.Random(7)
            x.extend([key_of(i) for i in range(LARGE)])
            model.extend([key_of(i) for i in range(LARGE)])
            for i in range(300):
                item, index = b"new %d" % i, draw.randrange(len(model))
                x.append(item), model.append(item)
                x.extendleft([item, b"twin"]), model.extendleft([item, b"twin"])
                x[index], model[index] = item, item
                self.assertEqual((x[index], x[-index - 1]), (model[index], model[-index - 1]))
                self.assertEqual((x.pop(), x.popleft()), (model.pop(), model.popleft()))
            self.assertEqual(list(x), list(model))
            self.assertEqual(x.index(key_of(LARGE // 2)), list(model).index(key_of(LARGE // 2)))
            before = x.insert_before(key_of(LARGE // 2), b"x")
            self.assertEqual((x[before], x[before + 1]), (b"x", key_of(LARGE // 2)))
            x.remove(b"x")
            self.assertEqual(x.popleft_many(1 << 40), list(model))
            self.assertNotIn("l", store)
            self.assertEqual(store.check(), [])


class Together(WithRegistry):
    def test_a_value_of_another_kind_is_refused_and_stays(self):
        store = mneme.Store("64MiB")
        every = {"string": store, "hash": store.hash("hash"), "list": store.list("list"), "set": store.set("set"),
                 "sorted": store.sorted_set("sorted")}
        store["string"], every["hash"]["f"], every["sorted"]["m"] = b"v", b"v", 1
        every["list"].append(b"v")
        every["set"].add("v")
        handles = {
            "hash": (store.hash, [lambda h: h.get("f"), lambda h: h.put("f", b""), list, len, lambda h: h.scan()]),
            "list": (store.list, [lambda l: l[0], lambda l: l.append(b""), list, len, lambda l: l.pop(),
                                  lambda l: b"v" in l, lambda l: l.__setitem__(0, b""), lambda l: l.trim()]),
            "set": (store.set, [lambda s: "v" in s, lambda s: s.add("v"), list, len, lambda s: s.pop(),
                                lambda s: s.random(), lambda s: s.scan(), lambda s: s.discard("v")]),
            "sorted": (store.sorted_set, [lambda z: z.get("m"), lambda z: z.put("m", 1), list, len,
                                          lambda z: z.pop_last(), lambda z: z.range(), lambda z: z.rank("m"),
                                          lambda z: z.delete_range(), lambda z: z.count_by_score()]),
        }
        for kind, (handle, calls) in handles.items():
            for other in set(every) - {kind}:
                for number, call in enumerate(calls):
                    with self.assertRaises(mneme.InvalidArgument, msg=(kind, other, number)):
                        call(handle(other))
        for kind in ("list", "set", "sorted"):
            self.assertRaises(mneme.InvalidArgument, store.get, kind)
        self.assertEqual((store["string"], dict(every["hash"]), list(every["list"]), list(every["set"]),
                          dict(every["sorted"])), (b"v", {b"f": b"v"}, [b"v"], [b"v"], {b"m": 1.0}))

    def test_an_argument_of_another_type_is_refused(self):
        store = mneme.Store("64MiB")
        s, x = store.set("s"), store.list("l")
        for wrong in (lambda: s.add(1), lambda: s.add_many(1), lambda: s.add_many([None]), lambda: 1 in s,
                      lambda: x.append("text"), lambda: x.extend(["text"]), lambda: x.extend(1), lambda: x["0"],
                      lambda: x.__setitem__(slice(0, 1), b""), lambda: "text" in x, lambda: store.set(1),
                      lambda: x[1.5], lambda: x["a":]):
            self.assertRaises(TypeError, wrong)
        for wrong in (lambda: s.pop_many(-1), lambda: x.pop_many(-1), lambda: x[1 << 64]):
            self.assertRaises(OverflowError, wrong)
        self.assertEqual(len(store), 0)

    def test_a_batch_that_is_refused_changes_nothing(self):
        store = mneme.Store("64MiB")
        s, z = store.set("s"), store.sorted_set("z")
        s.add_many([key_of(i) for i in range(LARGE)])
        z.put_many({key_of(i): i for i in range(LARGE)})
        long = bytes(70_000)
        self.assertRaises(mneme.InvalidArgument, s.add_many, ["new", long])
        self.assertRaises(mneme.InvalidArgument, z.put_many, {"new": 1, long: 2})
        self.assertEqual((len(s), "new" in s, len(z), "new" in z), (LARGE, False, LARGE, False))

    def test_changes_by_threads_all_count(self):
        store = mneme.Store("64MiB")
        s, z, x = store.set("s"), store.sorted_set("z"), store.list("l")

        def many(thread):
            for i in range(100):
                s.add(b"%d %d" % (thread, i))
                z.increment("sum")
                x.append(b"%d" % thread)

        threads = [threading.Thread(target=many, args=(thread,)) for thread in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(s), z["sum"], len(x)), (300, 300.0, 300))
        self.assertEqual([x.count(b"%d" % thread) for thread in range(3)], [100, 100, 100])

    def test_they_close_with_their_store(self):
        store = mneme.Store("64MiB")
        every = store.set("s"), store.sorted_set("z"), store.list("l")
        store.close()
        for one in every:
            self.assertRaises(mneme.Closed, len, one)
        for handle in (store.set, store.sorted_set, store.list):
            self.assertRaises(mneme.Closed, handle, "k")

    def test_processes_share_them_and_each_item_is_popped_once(self):
        store = mneme.create("it", "64MiB")
        jobs, done = store.database(3).list("jobs"), store.database(3).set("done")
        other = begin(
            "import mneme\n"
            "from support import patiently\n"
            "store = mneme.attach('it', writable=True).database(3)\n"
            "jobs, done, board = store.list('jobs'), store.set('done'), store.sorted_set('board')\n"
            "print('ready', flush=True)\n"
            "while True:\n"
            "    try:\n"
            "        job = patiently(jobs.popleft)\n"
            "    except IndexError:\n"
            "        continue\n"
            "    if job == b'end':\n"
            "        break\n"
            "    assert patiently(done.add, job)\n"
            "    patiently(board.increment, 'other')\n"
        )
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        self.assertEqual(other.stdout.readline(), "ready\n")
        patiently(jobs.extend, [key_of(i) for i in range(2000)])
        popped = []
        for _ in range(500):
            try:
                popped.append(patiently(jobs.popleft))
            except IndexError:
                break
        patiently(jobs.append, b"end")
        self.assertEqual(other.wait(100), 0)
        other.stdin.close()
        other.stdout.close()
        rest = set(done)
        self.assertEqual(rest & set(popped), set())
        self.assertEqual(rest | set(popped), {key_of(i) for i in range(2000)})
        board = mneme.attach("it").database(3).sorted_set("board")
        self.assertEqual(board.get("other", 0.0), len(rest))

    def test_one_that_is_attached_for_reading_reads_and_changes_nothing(self):
        store = mneme.create("it", "64MiB")
        for count in (3, LARGE):
            store.set("s").add_many([key_of(i) for i in range(count)])
            store.list("l").extend([key_of(i) for i in range(count)])
            store.sorted_set("z").put_many({key_of(i): i for i in range(count)})
            reader = mneme.attach("it")
            s, x, z = reader.set("s"), reader.list("l"), reader.sorted_set("z")
            self.assertEqual((len(s), len(set(s)), key_of(1) in s), (count, count, True))
            self.assertEqual((x[-1], len(x[:]), x.index(key_of(2))), (key_of(count - 1), len(x), 2))
            self.assertEqual((z.range(0, 1), z.rank(key_of(2)), len(list(z))), ([(key_of(0), 0.0)], 2, count))
            for change in (lambda: s.add("new"), s.pop, lambda: x.append(b""), x.pop, lambda: x.trim(0, 1),
                           lambda: z.put("new", 1), z.pop_first, lambda: z.delete_range()):
                self.assertRaises(mneme.ReadOnly, change)
            self.assertEqual((len(s), len(z)), (count, count))
            reader.close()
        store.close()


if __name__ == "__main__":
    unittest.main()
