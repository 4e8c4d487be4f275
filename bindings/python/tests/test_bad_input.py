"""What an ordinary day brings: programs that end in an exception whose words say what to do."""

import unittest

import mneme
from mneme import Segment
from support import MIB, WithRegistry, die_while_writing, python

try:
    import numpy
except ImportError:
    numpy = None


class BadInput(WithRegistry):
    def setUp(self):
        super().setUp()
        self.seg = Segment.create("frames", "64MiB")
        self.seg.put_bytes("x", bytes(MIB))
        mneme.create("records", "64MiB").close()

    def ends(self, program, exception, *words):
        """The program ends by that exception, whose text has these words, and by no signal."""
        done = python("import mneme, os, signal, sys\n" + program, check=False)
        said = done.stderr.strip().splitlines()[-1]
        self.assertEqual((done.returncode, said.split(":")[0]), (1, exception), done.stderr)
        for word in words:
            self.assertIn(word, said)

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_a_dtype_that_holds_objects(self):
        self.ends(
            "import numpy\nmneme.Segment.open('frames').put_array('o', numpy.array(['a', None]))",
            "TypeError", "Python objects", "astype",
        )

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_a_shape_that_does_not_fit(self):
        self.ends(
            "import numpy\nseg = mneme.Segment.open('frames')\n"
            "seg.put_array('x', numpy.ones((2, 2)))",
            "mneme.Exists", "replace",
        )

    def test_a_segment_that_is_full(self):
        self.ends(
            "mneme.Segment.open('frames').put_bytes('y', bytes(100 << 20))",
            "mneme.Full", "remove arrays", "larger",
        )

    def test_a_timeout_that_is_none_makes_no_segment(self):
        for timeout in ("float('nan')", "-1"):
            self.ends(
                f"mneme.Segment.create('late', '4MiB', timeout={timeout})",
                "mneme.InvalidArgument", "timeout",
            )
        self.assertNotIn("late", Segment.list())

    def test_a_value_that_was_released(self):
        self.ends(
            "view = memoryview(bytearray(9))\nview.release()\nmneme.Store('64MiB')['k'] = view",
            "ValueError", "released",
        )

    def test_an_exception_in_an_argument(self):
        """As if a key were pressed while a size or an expiry is asked for its number."""
        for call in ("store.put('k', b'v', expires=Slow())", "mneme.Store(Slow())"):
            self.ends(
                "class Slow:\n"
                "    def __float__(self): raise SystemError('in the middle')\n"
                "    __index__ = __float__\n"
                f"store = mneme.Store('64MiB')\n{call}",
                "SystemError", "in the middle",
            )

    def test_a_store_that_is_full(self):
        self.ends(
            "store = mneme.attach('records', writable=True)\n"
            "for i in range(1000): store[str(i)] = bytes(1 << 20)",
            "mneme.Full", "remove records", "larger",
        )

    def test_a_name_that_is_not_there(self):
        self.ends("mneme.attach('none')", "mneme.NotFound", "none", "Segment.list()", "mneme.create()")
        self.ends("mneme.Segment.open('none')", "mneme.NotFound", "Segment.create()")
        self.ends("mneme.Segment.open('frames').view('y')", "mneme.NotFound", "arrays()")

    def test_a_killed_writer(self):
        die_while_writing()
        self.ends(
            "mneme.Segment.open('frames').view('x')",
            "mneme.Poisoned", "accept()", "restore()", "clear()",
        )

    def test_a_forked_child(self):
        for opened, use in (
            ("mneme.attach('records')", "it.get('k')"),
            ("mneme.Store('64MiB')", "it.put('k', b'')"),
            ("mneme.Segment.open('frames')", "it.view('x')"),
        ):
            self.ends(
                f"it = {opened}\n"
                "child = os.fork()\n"
                f"if child == 0: {use}\n"
                "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
                "mneme.Forked", "open it anew", "spawn",
            )

    def test_what_was_closed(self):
        self.ends("s = mneme.Store('64MiB'); s.close(); s.get('k')", "mneme.Closed", "again")
        self.ends(
            "s = mneme.Segment.open('frames'); s.close(); s.view('x')", "mneme.Closed", "open it again"
        )

    def test_a_view_that_is_kept_too_long(self):
        self.ends("s = mneme.Segment.open('frames'); v = s.view('x'); s.close()", "mneme.InUse", "del")
        self.ends(
            "s = mneme.Segment.open('frames'); v = s.view('x'); del s\n"
            "mneme.Segment.remove('frames')",
            "mneme.InUse", "close()", "views",
        )
        self.ends(
            "s = mneme.Store('64MiB'); s['k'] = bytes(1 << 20); v = s.view('k'); s.close()",
            "mneme.InUse", "let them go",
        )

    def test_an_interpreter_that_ends_in_the_middle(self):
        """With threads at work, views alive and a section entered: it ends by itself."""
        said = python(
            "import mneme, threading\n"
            "store, seg = mneme.Store('64MiB'), mneme.Segment.open('frames', timeout=60)\n"
            "store['long'] = bytes(1 << 20)\n"
            "def put():\n"
            "    while True: store.put_many({str(i): bytes(1000) for i in range(100)})\n"
            "def look():\n"
            "    while True:\n"
            "        with store.view('long') as v: v[0]\n"
            "        with seg.read() as r: r.view('x')\n"
            "for work in (put, put, look, look):\n"
            "    threading.Thread(target=work, daemon=True).start()\n"
            "kept = store.view('long'), seg.view('x')\n"
            "section = seg.write(); section.__enter__().view('x')\n"
            "print('ends')\n"
        )
        self.assertEqual(said, "ends\n")
        self.assertRaises(mneme.Poisoned, lambda: self.seg.view("x"))

    def test_another_interpreter_of_the_process_is_refused(self):
        """Of 3.9 to 3.11, which would share exceptions with it, and never come to an end."""
        said = python(
            "import mneme\n"
            "try: import _interpreters as interpreters\n"
            "except ImportError:\n"
            "    import _xxsubinterpreters as interpreters\n"
            "other = interpreters.create()\n"
            "interpreters.run_string(other, '''\n"
            "try: import mneme\n"
            "except ImportError as error: print(error)\n"
            "''')\n"
        )
        self.assertIn("interpreter", said)


if __name__ == "__main__":
    unittest.main()
