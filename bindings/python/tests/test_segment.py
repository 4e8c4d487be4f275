"""Segments: arrays of bytes without numpy, sections, deaths, and every refusal."""

import gc
import os
import pickle
import signal
import threading
import time

import mneme
from mneme import Segment
from support import MIB, WithRegistry, begin, die_while_writing, patiently, python


class Segments(WithRegistry):
    def setUp(self):
        super().setUp()
        self.seg = Segment.create("frames", "64MiB", timeout=60)

    def test_bytes_that_another_process_sees(self):
        data = os.urandom(3 * MIB)
        self.seg.put_bytes("x", data)
        self.assertEqual(bytes(self.seg.view("x")), data)
        self.assertIn("x", self.seg)
        self.assertEqual(self.seg.arrays(), {"x": ("'|u1'", (len(data),))})
        said = python(
            "import mneme, hashlib\n"
            "seg = mneme.Segment.open('frames', writable=False)\n"
            "v = seg.view('x'); print(hashlib.sha1(v).hexdigest(), v.readonly, seg.writable)\n"
            "del v; seg.close()"
        )
        import hashlib
        self.assertEqual(said.split(), [hashlib.sha1(data).hexdigest(), "True", "False"])

    def test_names_come_and_go(self):
        for i in range(100):
            self.seg.put_bytes(f"é{i}", bytes([i]) * i)
        for i in range(0, 100, 2):
            self.seg.remove_array(f"é{i}")
        self.assertEqual(sorted(self.seg.arrays()), sorted(f"é{i}" for i in range(1, 100, 2)))
        self.assertTrue(all(bytes(self.seg.view(f"é{i}")) == bytes([i]) * i for i in range(1, 100, 2)))
        self.seg.clear()
        self.assertEqual(self.seg.arrays(), {})

    def test_a_section_writes(self):
        self.seg.put_bytes("x", bytes(100))
        before = self.seg.view("x")
        with self.seg.write() as w:
            w.view("x")[10:13] = b"abc"
            w.put_bytes("y", b"new")
            self.assertIn("y", w)
            self.assertEqual(bytes(self.seg.view("y")), b"new")
        # The view from before sees it: it is the segment's own memory.
        self.assertEqual(bytes(before[9:14]), b"\0abc\0")
        with self.seg.read() as r:
            self.assertTrue(r.view("x").readonly)
            self.assertRaises(mneme.ReadOnly, lambda: r.put_bytes("z", b""))

    def test_refusals(self):
        seg = self.seg
        seg.put_bytes("x", b"x")
        reader = Segment.open("frames", writable=False)
        section = seg.write()
        for expected, call in (
            (mneme.NotFound, lambda: seg.view("none")),
            (mneme.NotFound, lambda: seg.remove_array("none")),
            (mneme.NotFound, lambda: Segment.open("none")),
            (mneme.NotFound, lambda: Segment.remove("none")),
            (mneme.Exists, lambda: Segment.create("frames")),
            (mneme.Exists, lambda: seg.put_bytes("x", b"y")),
            (mneme.Full, lambda: seg.put_bytes("large", bytes(65 * MIB))),
            (mneme.InUse, lambda: Segment.remove("frames")),
            (mneme.InvalidArgument, lambda: Segment.create("s", 5)),
            (mneme.InvalidArgument, lambda: Segment.create("s", "much")),
            (mneme.InvalidArgument, lambda: Segment.create("s/t")),
            (mneme.InvalidArgument, lambda: Segment.create("s", mode=0o123)),
            (mneme.InvalidArgument, lambda: Segment.open("frames", timeout=-1)),
            (mneme.InvalidArgument, lambda: seg.put_bytes("", b"")),
            (mneme.ReadOnly, lambda: reader.put_bytes("y", b"")),
            (mneme.ReadOnly, reader.write),
            (mneme.ReadOnly, reader.accept),
            (mneme.Nested, lambda: section.view("x")),
            (TypeError, lambda: seg.put_bytes("y", "text")),
            (TypeError, lambda: seg.put_bytes(b"y", b"")),
            (TypeError, lambda: Segment()),
        ):
            with self.assertRaises(expected) as raised:
                call()
            self.assertTrue(str(raised.exception))
        self.assertEqual(list(seg.arrays()), ["x"])

    def test_a_store_is_no_segment_of_arrays(self):
        mneme.create("store", "64MiB")
        self.assertEqual(sorted(Segment.list()), ["frames", "store"])
        self.assertRaises(mneme.Error, lambda: Segment.open("store"))
        self.assertRaises(mneme.Error, lambda: mneme.attach("frames"))

    def test_closing_with_live_views_names_them(self):
        self.seg.put_bytes("first", bytes(1000))
        self.seg.put_bytes("second", bytes(1000))
        kept = memoryview(self.seg.view("second"))[5:9]
        with self.assertRaises(mneme.InUse) as raised:
            self.seg.close()
        self.assertIn("second", str(raised.exception))
        self.assertNotIn("first", str(raised.exception))
        # Through another object of the same segment, too.
        other = Segment.open("frames")
        self.assertRaises(mneme.InUse, lambda: other.remove_array("second"))
        other.remove_array("first")
        del kept
        gc.collect()
        self.seg.close()
        self.assertRaises(mneme.Closed, lambda: self.seg.view("second"))
        self.assertRaises(mneme.Closed, self.seg.write)

    def test_views_outlive_every_object_that_led_to_them(self):
        data = os.urandom(MIB)
        self.seg.put_bytes("x", data)
        view = self.seg.view("x")
        section = self.seg.read()
        with section as r:
            part = r.view("x")[1000:]
        del self.seg, section, r
        gc.collect()
        self.assertEqual(bytes(view), data)
        del view
        # Its name is gone; the memory is not.
        threading.Thread(target=lambda: self.assertEqual(bytes(part), data[1000:])).start()
        self.assertRaises(mneme.InUse, lambda: Segment.remove("frames"))
        self.assertEqual(bytes(part), data[1000:])

    def test_memory_is_not_used_again_while_others_may_see_it(self):
        self.seg.put_bytes("x", b"\x11" * MIB)
        other = begin(
            "import mneme\n"
            "seg = mneme.Segment.open('frames'); v = seg.view('x'); print('there', flush=True)\n"
            "input(); print(set(bytes(v)), flush=True)"
        )
        self.assertEqual(other.stdout.readline(), "there\n")
        with self.assertRaises(mneme.InUse) as raised:
            self.seg.remove_array("x")
        self.assertIn(str(other.pid), str(raised.exception))
        self.assertRaises(mneme.InUse, lambda: self.seg.put_bytes("x", b"shorter", replace=True))
        self.assertRaises(mneme.InUse, self.seg.clear)
        self.seg.put_bytes("x", b"\x22" * MIB, replace=True)
        said, _ = other.communicate("\n", timeout=100)
        self.assertEqual(said, "{34}\n")
        self.seg.put_bytes("x", b"shorter", replace=True)
        self.assertEqual(bytes(self.seg.view("x")), b"shorter")
        self.seg.remove_array("x")

    def test_a_view_that_is_made_while_another_waits_to_empty_the_segment(self):
        """Whether a view is alive is asked when nobody is inside, and not before."""
        self.seg.snapshot("frames@1").close()
        self.seg.put_bytes("x", b"seen")
        for change in (self.seg.clear, lambda: self.seg.restore("frames@1")):
            views, inside = [], threading.Event()
            def look():
                with self.seg.read() as r:
                    inside.set()
                    # Most often the other thread waits for the section by then.
                    time.sleep(0.05)
                    views.append(r.view("x"))
            thread = threading.Thread(target=look)
            thread.start()
            inside.wait()
            self.assertRaises(mneme.InUse, change)
            thread.join()
            self.assertEqual(bytes(views[0]), b"seen")
            views.clear()
        self.assertFalse(self.seg.poisoned)
        self.seg.restore("frames@1")
        self.assertEqual(self.seg.arrays(), {})

    def test_threads_of_a_process_are_not_others_to_each_other(self):
        """Restoring asks that no other process has the segment open, and waits for threads."""
        self.seg.put_bytes("x", b"whole")
        self.seg.snapshot("frames@1").close()
        failed = []
        def repeat(*calls):
            try:
                for _ in range(8):
                    for call in calls:
                        patiently(*call)
            except Exception as error:
                failed.append(error)
        restore = (self.seg.restore, "frames@1")
        copy = lambda: self.seg.snapshot("frames@2").close()
        remove = (mneme.Segment.remove, "frames@2")
        others = [(restore,), (restore,), ((copy,), remove)]
        threads = [threading.Thread(target=repeat, args=calls) for calls in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        self.assertEqual(bytes(self.seg.view("x")), b"whole")

    def test_what_cannot_replace_an_array_leaves_it(self):
        self.seg.put_bytes("x", b"first")
        with self.assertRaises(mneme.Full):
            self.seg.put_bytes("x", bytes(65 * MIB), replace=True)
        self.assertEqual(bytes(self.seg.view("x")), b"first")
        seen = self.seg.view("x")
        with self.assertRaises(mneme.InUse):
            self.seg.put_bytes("x", b"longer", replace=True)
        self.assertRaises(TypeError, lambda: self.seg.put_bytes("y", "text"))
        self.seg.put_bytes("z", b"third")
        self.assertEqual(bytes(seen), b"first")
        del seen
        self.assertEqual(sorted(self.seg.arrays()), ["x", "z"])
        # The memory of what did not come is used again.
        for i in range(200):
            self.seg.put_bytes("x", bytes(MIB + i), replace=True)
        self.assertEqual(bytes(self.seg.view("z")), b"third")

    def test_an_object_without_memory_is_refused(self):
        self.seg.put_bytes("x", b"x")
        empty = type(self.seg.view("x").obj)()
        self.assertRaises(BufferError, lambda: memoryview(empty))

    def test_a_view_for_writing_ends_with_its_section(self):
        self.seg.put_bytes("x", bytes(10))
        with self.assertRaises(mneme.InUse) as raised:
            with self.seg.write() as w:
                late = w.view("x")
        self.assertIn("x", str(raised.exception))
        # The lock is free, nothing is poisoned, and a late store does no harm to the interpreter.
        late[0] = 7
        self.assertFalse(self.seg.poisoned)
        del late
        with self.seg.write() as w:
            w.view("x")[1] = 1
        self.assertEqual(bytes(self.seg.view("x"))[:2], b"\x07\x01")

    def test_an_exception_in_the_middle_poisons(self):
        self.seg.put_bytes("x", bytes(10))
        with self.assertRaises(KeyError):
            with self.seg.write() as w:
                raise KeyError  # nothing was handed out
        with self.assertRaises(mneme.NotFound):
            with self.seg.write() as w:
                w.view("none")
        self.assertFalse(self.seg.poisoned)
        with self.assertRaises(ZeroDivisionError):
            with self.seg.write() as w:
                w.view("x")[0] = 1
                1 / 0
        self.assertTrue(self.seg.poisoned)
        for call in (lambda: self.seg.view("x"), lambda: self.seg.put_bytes("y", b""),
                     lambda: self.seg.write().__enter__(), self.seg.arrays):
            self.assertRaises(mneme.Poisoned, call)
        self.seg.accept()
        self.assertEqual(bytes(self.seg.view("x")), b"\1" + bytes(9))

    def test_a_traceback_that_holds_a_view_for_writing(self):
        """The section ends; what the view sees is not given to anything else while it is there."""
        self.seg.put_bytes("x", bytes(10))
        self.seg.snapshot("frames@1").close()
        def fails():
            with self.seg.write() as w:
                late = w.view("x")
                late[0] = 1
                1 / 0
        try:
            fails()
        except ZeroDivisionError as error:
            kept = error
        self.assertTrue(self.seg.poisoned)
        self.assertRaises(mneme.InUse, self.seg.clear)
        self.assertRaises(mneme.InUse, lambda: self.seg.restore("frames@1"))
        self.seg.accept()
        # The lock is free, for other threads and processes too.
        said = python(
            "import mneme\n"
            "with mneme.Segment.open('frames').write() as w: w.view('x')[1] = 2\n"
            "print('done')\n"
        )
        self.assertEqual(said, "done\n")
        late = kept.__traceback__.tb_next.tb_frame.f_locals["late"]
        late[2] = 3
        self.assertEqual(bytes(self.seg.view("x")), b"\1\2\3" + bytes(7))
        self.assertRaises(mneme.InUse, self.seg.close)
        del late, kept
        gc.collect()
        self.seg.restore("frames@1")
        self.assertEqual(bytes(self.seg.view("x")), bytes(10))

    def test_a_death_in_the_middle_poisons_and_a_snapshot_restores(self):
        self.seg.put_bytes("x", b"whole")
        self.seg.snapshot("frames@1").close()
        die_while_writing()
        self.assertRaises(mneme.Poisoned, lambda: self.seg.view("x"))
        self.seg.restore("frames@1")
        self.assertEqual(bytes(self.seg.view("x")), b"whole")
        self.assertRaises(mneme.NotFound, lambda: self.seg.restore("none"))

    def test_a_copy_beside_its_original(self):
        """Both claim one address; views of both stay, in any order of sections."""
        self.seg.put_bytes("x", b"one" * MIB)
        one = self.seg.view("x")
        copy = self.seg.snapshot("copy")
        two = copy.view("x")
        with copy.write() as w:
            w.view("x")[:3] = b"two"
        self.assertEqual((bytes(one[:3]), bytes(two[:3])), (b"one", b"two"))
        with self.seg.write() as w:
            w.view("x")[:3] = b"uno"
            self.assertEqual(bytes(two[:3]), b"two")
        self.assertEqual((bytes(one[:3]), bytes(two[:3])), (b"uno", b"two"))

    def test_sections_belong_to_their_thread(self):
        self.seg.put_bytes("x", bytes(10))
        raised = []
        def other(section):
            for call in (lambda: section.view("x"), lambda: section.__exit__(None, None, None)):
                try:
                    call()
                except mneme.Nested as error:
                    raised.append(error)
        with self.seg.write() as w:
            thread = threading.Thread(target=other, args=(w,))
            thread.start()
            thread.join()
            self.assertEqual(len(raised), 2)
            for call in (lambda: self.seg.write().__enter__(), lambda: w.__enter__(), self.seg.close):
                self.assertRaises(mneme.Nested, call)
            w.view("x")[0] = 1
        self.assertFalse(self.seg.poisoned)
        self.assertEqual(self.seg.view("x")[0], 1)

    def test_threads_take_turns(self):
        """A thread that waits for a section lets the others run, which must leave theirs."""
        self.seg.put_bytes("n", bytes(8))
        def work():
            for _ in range(50):
                with self.seg.write() as w:
                    with w.view("n") as view:
                        view[:] = (int.from_bytes(view, "little") + 1).to_bytes(8, "little")
                with self.seg.read() as r:
                    self.assertGreater(int.from_bytes(r.view("n"), "little"), 0)
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(int.from_bytes(self.seg.view("n"), "little"), 200)

    def test_threads_with_one_section_object(self):
        """It is one thread's at a time: another is refused, and the first stays inside."""
        self.seg.put_bytes("x", bytes(10))
        patient = Segment.open("frames", timeout=100)
        refused, done, failed = [], [], []
        def work(section):
            try:
                section.__enter__()
            except mneme.Nested as error:
                refused.append(error)
                return
            try:
                time.sleep(0.01)
                done.append(section.view("x")[0])
                section.__exit__(None, None, None)
            except mneme.Error as error:
                failed.append(error)
        for section in (patient.read(), patient.write()):
            with self.seg.write():
                threads = [threading.Thread(target=work, args=(section,)) for _ in range(4)]
                [t.start() for t in threads]
                # Most wait for the lock together.
                time.sleep(0.2)
            [t.join() for t in threads]
            self.assertEqual(failed, [])
        self.assertEqual(len(refused) + len(done), 8)
        self.assertGreater(len(done), 1)
        self.assertFalse(patient.poisoned)
        patient.close()

    def test_views_by_threads_while_another_writes(self):
        self.seg.put_bytes("x", bytes(100_000))
        views = []
        def look():
            for _ in range(50):
                views.append(self.seg.view("x")[10:])
        threads = [threading.Thread(target=look) for _ in range(3)]
        [t.start() for t in threads]
        for i in range(20):
            self.seg.put_bytes("x", bytes([i]) * 100_000, replace=True)
        [t.join() for t in threads]
        self.assertTrue(all(set(view) == {19} for view in views))
        self.assertEqual(len(views), 150)
        self.assertRaises(mneme.InUse, self.seg.close)
        views.clear()
        self.seg.close()

    def test_a_thread_that_ends_inside_poisons(self):
        self.seg.put_bytes("x", bytes(10))
        sections = []
        def leave_it():
            sections.append(self.seg.write().__enter__())
            sections[0].view("x")[0] = 1
        thread = threading.Thread(target=leave_it)
        thread.start()
        thread.join()
        # Python's thread has ended; the machine's ends now, and the lock is waited for.
        self.assertRaises(mneme.Poisoned, lambda: self.seg.view("x"))
        sections.clear()
        self.seg.accept()

    def test_a_section_that_is_forgotten_ends(self):
        self.seg.put_bytes("x", bytes(10))
        section = self.seg.write()
        section.__enter__()
        del section
        gc.collect()
        self.assertFalse(self.seg.poisoned)
        section = self.seg.write()
        section.__enter__().view("x")[0] = 1
        del section
        gc.collect()
        self.assertTrue(self.seg.poisoned)
        self.seg.accept()

    def test_a_holder_that_does_not_leave_is_named(self):
        self.seg.put_bytes("x", bytes(10))
        other = begin(
            "import mneme\n"
            "with mneme.Segment.open('frames').write() as w:\n"
            "    print('inside', flush=True); input()\n"
        )
        self.assertEqual(other.stdout.readline(), "inside\n")
        impatient = Segment.open("frames", timeout=0.05)
        with self.assertRaises(mneme.Stalled) as raised:
            impatient.view("x")
        self.assertIsInstance(raised.exception, TimeoutError)
        other.communicate("\n", timeout=100)
        self.assertEqual(bytes(impatient.view("x")), bytes(10))

    def test_a_forked_child_is_refused_and_its_views_stay(self):
        said = python(
            "import mneme, os, sys\n"
            "seg = mneme.Segment.open('frames')\n"
            "seg.put_bytes('x', b'abc' * 100_000)\n"
            "view, section = seg.view('x'), seg.write()\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    refused = 0\n"
            "    for call in (lambda: seg.view('x'), lambda: seg.put_bytes('y', b''), section.__enter__,\n"
            "                 seg.close, seg.arrays, lambda: mneme.Segment.open('frames')):\n"
            "        try: call()\n"
            "        except mneme.Forked as why: refused += 1\n"
            "    assert bytes(view) == b'abc' * 100_000\n"
            "    del view, seg, section\n"
            "    sys.exit(refused)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), bytes(view[:3]))\n"
            "with section as w:\n"
            "    inside = os.fork()\n"
            "    if inside == 0:\n"
            "        try: w.view('x')\n"
            "        except mneme.Error: pass\n"
            "        os._exit(5)\n"
            "    print(os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1]))\n"
            "    w.view('x')[0] = 0\n"
            "print(seg.poisoned)\n"
        )
        self.assertEqual(said.split(), ["6", "b'abc'", "5", "False"])

    def test_no_array_moves_while_a_forked_child_may_see_it(self):
        self.seg.close()
        said = python(
            "import mneme, os, sys\n"
            "seg = mneme.Segment.open('frames')\n"
            "seg.put_bytes('x', b'first' * 1000)\n"
            "ends, go = os.pipe()\n"
            "said, says = os.pipe()\n"
            "view = seg.view('x')\n"
            "if os.fork() == 0:\n"
            "    os.close(go)\n"
            "    os.read(ends, 1)\n"
            "    os.write(says, b'whole' if bytes(view) == b'first' * 1000 else b'other')\n"
            "    os._exit(0)\n"
            "del view\n"
            "def refused():\n"
            "    for call in (lambda: seg.remove_array('x'), seg.clear,\n"
            "                 lambda: seg.put_bytes('x', bytes(9), replace=True)):\n"
            "        try: call()\n"
            "        except mneme.InUse as why: assert 'forked child' in str(why), why\n"
            "        else: return False\n"
            "    return True\n"
            "print(refused())\n"
            "seg.close()\n"
            "seg = mneme.Segment.open('frames')\n"
            "print(refused())\n"
            "os.write(go, b'.')\n"
            "print(os.read(said, 5).decode())\n"
            "os.wait()\n"
            "print(refused(), seg.arrays())\n"
        )
        self.assertEqual(said.split(), ["True", "True", "whole", "False", "{}"])

    def test_children_without_views_keep_nothing(self):
        self.seg.close()
        said = python(
            "import mneme, os, subprocess\n"
            "seg = mneme.Segment.open('frames')\n"
            "seg.put_bytes('x', b'x')\n"
            "view = seg.view('x')\n"
            # Another program has no views of this one.
            "child = subprocess.Popen(['cat'], stdin=subprocess.PIPE, close_fds=False)\n"
            "del view\n"
            "ends, go = os.pipe()\n"
            "if os.fork() == 0:\n"
            "    os.close(go)\n"
            "    os.read(ends, 1)\n"
            "    os._exit(0)\n"
            "seg.remove_array('x')\n"
            "print(seg.arrays())\n"
            "os.close(go)\n"
            "os.wait()\n"
            "child.communicate()\n"
        )
        self.assertEqual(said.strip(), "{}")

    def test_a_forked_child_writes_to_no_array_of_its_parent(self):
        said = python(
            "import mneme, os\n"
            "seg = mneme.Segment.open('frames')\n"
            "seg.put_bytes('x', b'first')\n"
            "with seg.write() as w:\n"
            "    view = w.view('x')\n"
            "    view[0] = ord('F')\n"
            "    child = os.fork()\n"
            "    if child == 0:\n"
            "        ok = bytes(view) == b'First'\n"
            "        view[:] = b'other' if ok else b'wrong'\n"
            "        os._exit(0)\n"
            "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
            "    view[1] = ord('I')\n"
            "    del view\n"
            "print(bytes(seg.view('x')))\n",
        )
        self.assertEqual(said.split(), [str(-signal.SIGSEGV), "b'FIrst'"])

    def test_pickled_by_name(self):
        self.seg.put_bytes("x", b"abc")
        again = pickle.loads(pickle.dumps(self.seg))
        self.assertEqual((bytes(again.view("x")), again.writable), (b"abc", True))

    def test_a_segment_of_another_program_is_refused(self):
        """What lies there is checked: a directory that lies is an error, never a crash."""
        self.seg.put_bytes("x", b"abc")
        data = os.path.join(self.registry, "segments", "frames", "data")
        with open(data, "r+b") as file:
            bytes_ = file.read()
            at = bytes_.index(b"mnemarr1")
            for offset, number in ((8, 1 << 40), (8, 5), (16, 0), (24, 8), (24, (1 << 64) - 8)):
                file.seek(at + offset)
                file.write(number.to_bytes(8, "little"))
                file.flush()
                self.assertRaises(mneme.Damaged, self.seg.arrays)
                file.seek(at)
                file.write(bytes_[at:at + 32])
                file.flush()
            entries = int.from_bytes(bytes_[at + 24:at + 32], "little")
            base = entries - (entries & ((1 << 30) - 1))
            entry = entries - base
            for offset, number, size in ((0, 1, 8), (8, 1 << 20, 4), (12, 1 << 30, 4), (16, 1 << 31, 4),
                                         (24, 3, 8), (32, 1 << 63, 8)):
                file.seek(entry + offset)
                file.write(number.to_bytes(size, "little"))
                file.flush()
                self.assertRaises(mneme.Damaged, self.seg.arrays)
                file.seek(entry)
                file.write(bytes_[entry:entry + 40])
                file.flush()
            file.seek(at)
            file.write(b"somebody")
            file.flush()
            self.assertRaises(mneme.Damaged, lambda: self.seg.put_bytes("y", b""))
            file.seek(at)
            file.write(b"mnemarr1")
        self.assertEqual(bytes(self.seg.view("x")), b"abc")
