"""Numpy arrays on a segment's own bytes. Skipped without numpy."""

import gc
import os
import shutil
import subprocess
import sys
import unittest
import warnings

import mneme
from mneme import Segment
from support import MIB, WithRegistry, python

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

# Where cargo has built the module, and what else is built with it; elsewhere a wheel's.
BUILT = os.path.abspath(os.path.join(os.path.dirname(mneme.__file__), "..", ".."))


@unittest.skipUnless(numpy, "numpy is not installed")
class Arrays(WithRegistry):
    def setUp(self):
        super().setUp()
        self.seg = Segment.create("frames", "256MiB")

    def test_every_kind_of_array_comes_back(self):
        record = numpy.dtype([("when", "<i8"), ("what", "S5"), ("where", "<f4", (2, 3))])
        arrays = {
            "floats": numpy.random.default_rng(1).random((30, 40, 5)),
            "scalar": numpy.array(7, ">u2"),
            "empty": numpy.empty((3, 0, 2), "f4"),
            "fortran": numpy.asfortranarray(numpy.arange(12).reshape(3, 4)),
            "strided": numpy.arange(100)[::-3],
            "text": numpy.array(["a", "émigré"]),
            "times": numpy.array(["2026-11-23", "NaT"], "datetime64[s]"),
            "complex": numpy.array([1 + 2j]),
            "bools": numpy.array([True, False]),
            "records": numpy.zeros(5, record),
            "list": [[1, 2], [3, 4]],
        }
        for name, array in arrays.items():
            self.seg.put_array(name, array)
        for name, array in arrays.items():
            array, found = numpy.asarray(array), self.seg.array(name)
            self.assertEqual((found.dtype, found.shape), (array.dtype, array.shape), name)
            numpy.testing.assert_array_equal(found, array)
            self.assertFalse(found.flags.writeable)
            self.assertEqual(found.ctypes.data % 64, 0, name)
            with self.assertRaises(ValueError):
                found[...] = 0
            with self.assertRaises(ValueError):
                found.flags.writeable = True

    def test_bad_arrays_are_refused(self):
        class Hostile:
            def __array__(self, *arguments, **more):
                raise RuntimeError("no")
        for expected, array in (
            (TypeError, numpy.array([object()])),
            (TypeError, numpy.array([{}, None])),
            (TypeError, numpy.zeros(3, [("a", "O"), ("b", "i4")])),
            (mneme.Full, numpy.zeros(300 * MIB, "u1")),
            (RuntimeError, Hostile()),
        ):
            self.assertRaises(expected, lambda: self.seg.put_array("x", array))
        self.assertEqual(self.seg.arrays(), {})
        self.assertFalse(self.seg.poisoned)

    def test_a_description_that_lies_is_an_error(self):
        """Another program wrote it, and numpy reads it: whatever comes of that is damage."""
        self.seg.put_array("x", numpy.zeros(3, "u1"))
        data = os.path.join(self.registry, "segments", "frames", "data")
        with open(data, "r+b", buffering=0) as file:
            at = file.read().index(b"'|u1'")
            for descr in (b"()   ", b"[[[[[", b"'|O' ", b"'<f8'", b"...  ", b"{1:2}"):
                file.seek(at)
                file.write(descr)
                with self.assertRaises(mneme.Damaged, msg=descr):
                    self.seg.array("x")

    def test_a_shape_that_does_not_fit(self):
        self.seg.put_array("x", numpy.zeros((3, 4)))
        with self.assertRaises(ValueError):
            with self.seg.write() as w:
                w.array("x")[...] = numpy.ones(5)
        self.assertTrue(self.seg.poisoned)
        self.seg.accept()
        self.assertRaises(mneme.Exists, lambda: self.seg.put_array("x", numpy.ones(5)))
        self.seg.put_array("x", numpy.ones(5), replace=True)
        self.assertEqual(self.seg.array("x").shape, (5,))

    def test_a_section_writes_and_others_see_it(self):
        self.seg.put_array("x", numpy.zeros((100, 100)))
        seen = self.seg.array("x")
        with self.seg.write() as w:
            w.array("x")[...] = 1
            self.assertTrue(w.array("x").flags.writeable)
        self.assertEqual(seen.sum(), 10_000)
        said = python(
            "import mneme\n"
            "seg = mneme.Segment.open('frames')\n"
            "print(int(seg.array('x').sum()))\n"
            "with seg.write() as w: w.array('x')[0] += 1\n"
        )
        self.assertEqual((said, seen.sum()), ("10000\n", 10_100))

    def test_an_array_is_put_in_the_place_of_itself(self):
        numbers = numpy.arange(100_000)
        self.seg.put_array("x", numbers)
        self.seg.put_array("x", self.seg.array("x")[::-1], replace=True)
        numpy.testing.assert_array_equal(self.seg.array("x"), numbers[::-1])

    def test_nothing_is_copied(self):
        """Two processes: the second touches one page of 100 MB, and has no more of it."""
        self.seg.put_array("large", numpy.ones(100_000_000, "u1"))
        self.seg.put_array("small", numpy.ones(1))
        resident = python(
            "import mneme, numpy\n"
            "def anonymous(): return int([l for l in open('/proc/self/status') if 'RssAnon' in l][0].split()[1])\n"
            "def all(): return int([l for l in open('/proc/self/status') if 'VmRSS' in l][0].split()[1])\n"
            "seg = mneme.Segment.open('frames'); seg.array('small'); before, whole = anonymous(), all()\n"
            "a = seg.array('large'); b = a[5:].reshape(-1); assert b[0] == 1\n"
            "few = all() - whole\n"
            "assert int(a.sum(dtype='u8')) == 100_000_000\n"
            "print(anonymous() - before, few)"
        )
        private, few = map(int, resident.split())
        self.assertLess(private, 10_000)
        self.assertLess(few, 10_000)

    def test_what_is_made_of_an_array_keeps_it(self):
        self.seg.put_array("x", numpy.arange(MIB))
        kept = memoryview(self.seg.array("x").reshape(1024, -1)[5, 3:9])
        self.assertRaises(mneme.InUse, self.seg.close)
        shared = numpy.frombuffer(kept.tobytes(), "i8")
        numpy.testing.assert_array_equal(numpy.asarray(kept), shared)
        del kept
        gc.collect()
        self.seg.close()

    def test_dlpack(self):
        self.seg.put_array("x", numpy.arange(10))
        array = self.seg.array("x")
        try:
            again = numpy.from_dlpack(array)
        except BufferError as error:
            self.skipTest(f"this numpy exports no read-only arrays: {error}")
        self.assertEqual(again.ctypes.data, array.ctypes.data)
        del array
        gc.collect()
        self.assertRaises(mneme.InUse, self.seg.close)
        self.assertEqual(int(again.sum()), 45)

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_tensors_of_pytorch(self):
        self.seg.put_array("x", numpy.arange(10.0))
        with self.seg.write() as w:
            tensor = torch.from_dlpack(w.array("x"))
            tensor[0] = 45
            del tensor
        array = self.seg.array("x")
        with warnings.catch_warnings():
            # It says that PyTorch knows no memory for reading.
            warnings.simplefilter("ignore")
            tensor = torch.from_numpy(array)
        self.assertEqual((tensor.data_ptr(), float(tensor.sum())), (array.ctypes.data, 90))
        del array
        gc.collect()
        self.assertRaises(mneme.InUse, self.seg.close)

    def test_python_that_runs_inside_of_a_put_keeps_what_it_sees(self):
        """A trace function, or a signal handler, looks at an array while it is replaced."""
        self.seg.put_array("x", numpy.zeros(10_000, "u1"))
        seen = []

        def trace(frame, event, argument):
            if frame.f_code.co_filename.endswith("_arrays.py") and len(seen) < 5:
                sys.settrace(None)
                seen.append(self.seg.array("x"))
                sys.settrace(trace)
            return trace

        refused = False
        sys.settrace(trace)
        try:
            self.seg.put_array("x", numpy.ones(20_000, "u1"), replace=True)
        except mneme.InUse:
            refused = True
        finally:
            sys.settrace(None)
        self.assertTrue(seen and refused)
        # What is put now may get no memory that is seen.
        for number in range(5):
            self.seg.put_array(f"y{number}", numpy.full(10_000, 7, "u1"))
        self.assertEqual([int(array.sum()) for array in seen], [0] * len(seen))

    def test_an_interruption_anywhere_in_a_put_leaves_the_array(self):
        """As if a key were pressed at each step that Python takes."""
        first = numpy.arange(1000)
        self.seg.put_array("x", first)
        steps = 0
        for wanted in range(1, 1000):
            left = wanted

            def trace(frame, event, argument):
                nonlocal left
                if frame.f_code.co_filename.endswith("_arrays.py"):
                    left -= 1
                    if left == 0:
                        raise KeyboardInterrupt
                return trace

            sys.settrace(trace)
            try:
                self.seg.put_array("x", numpy.zeros(10), replace=True)
            except KeyboardInterrupt:
                steps += 1
            finally:
                sys.settrace(None)
            if left > 0:
                break
            self.assertEqual(self.seg.array("x").tolist(), first.tolist())
        self.assertGreater(steps, 3)
        self.assertEqual(self.seg.array("x").tolist(), [0] * 10)
        self.seg.put_array("x", first, replace=True)

    def put_some(self):
        self.seg.put_array("x", numpy.arange(12.0).reshape(3, 4))
        self.seg.put_array("é", numpy.array([1, 2], "<i2"))
        self.seg.put_array("none", numpy.empty((0, 5)))

    LISTED = ["none '<f8' 0 5 sum 0", "x '<f8' 3 4 sum 66", "é '<i2' 2"]

    def test_a_rust_program_reads_them(self):
        program = os.path.join(BUILT, "examples", "arrays")
        if not os.path.exists(program):
            self.skipTest("cargo xtask python builds the program")
        self.put_some()
        listed = subprocess.check_output([program, "frames"], text=True, timeout=100)
        self.assertEqual(sorted(listed.splitlines()), self.LISTED)

    def test_a_c_program_reads_and_writes_them(self):
        compiler = os.environ.get("CC", "cc")
        if not os.path.exists(os.path.join(BUILT, "libmneme.so")) or not shutil.which(compiler):
            self.skipTest("cargo xtask python builds the library, and a C compiler is needed")
        bindings = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        source = os.path.join(bindings, "python", "examples", "arrays.c")
        program = os.path.join(self.registry, "arrays")
        subprocess.check_call(
            [compiler, "-std=c11", "-Wall", "-Werror", "-I", os.path.join(bindings, "c", "include"), source,
             "-L", BUILT, "-lmneme", "-Wl,-rpath," + self.registry, "-o", program]
        )
        # As it is installed: under the name of its interface's version.
        os.symlink(os.path.join(BUILT, "libmneme.so"), os.path.join(self.registry, "libmneme.so.0"))
        self.put_some()
        x = self.seg.array("x")
        listed = subprocess.check_output([program, "frames"], text=True, timeout=100)
        self.assertEqual(sorted(listed.splitlines()), self.LISTED)
        subprocess.check_call([program, "frames", "x"], timeout=100)
        numpy.testing.assert_array_equal(x, numpy.arange(1.0, 13.0).reshape(3, 4))
        self.assertEqual(subprocess.call([program, "frames", "é"], timeout=100), 1)

    def test_values_of_a_store_as_arrays(self):
        store = mneme.Store("64MiB")
        store["x"] = numpy.arange(100_000)
        with store.view("x") as view:
            array = numpy.frombuffer(view, "i8")
            self.assertEqual(int(array[-1]), 99_999)
            del array
        store.close()


if __name__ == "__main__":
    unittest.main()
