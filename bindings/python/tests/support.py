"""What the tests share: a registry of their own, and Python programs run beside this one."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import mneme

MIB = 1 << 20


class WithRegistry(unittest.TestCase):
    """Each test has a registry of its own in memory, in $MNEME_DIR for its child processes too."""

    def setUp(self):
        self.registry = tempfile.mkdtemp(prefix="mneme-python-test-", dir="/dev/shm")
        os.environ["MNEME_DIR"] = self.registry
        self.addCleanup(self._clean)

    def _clean(self):
        """The data lie elsewhere, so that removing the directory is not enough."""
        vars(self).pop("seg", None)
        gc.collect()
        mneme._mneme._close_all()
        for name in mneme.Segment.list():
            mneme.Segment.remove(name)
        del os.environ["MNEME_DIR"]
        shutil.rmtree(self.registry)


def patiently(call, *arguments):
    """The result of a call, tried again while a thread that holds a lock is kept off the processor:
    on a busy machine that can take longer than the second after which a waiter gives up.
    """
    until = time.monotonic() + 100
    while True:
        try:
            return call(*arguments)
        except mneme.Stalled:
            if time.monotonic() > until:
                raise


def python(program, *arguments, check=True):
    """Run a program in another interpreter; what it printed."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done if not check else done.stdout


def die_while_writing():
    """A program that is killed while it changes `x` of the segment `frames`."""
    done = python(
        "import mneme, os, signal\n"
        "with mneme.Segment.open('frames').write() as w:\n"
        "    w.view('x')[:3] = b'???'\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n",
        check=False,
    )
    assert done.returncode == -9, done


# Programs of the tests find this file, too.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [os.path.dirname(os.path.abspath(__file__)), *filter(None, [os.environ.get("PYTHONPATH")])]
)


def begin(program, *arguments):
    """Start a program that talks by lines; read its first one to know that it is there."""
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
