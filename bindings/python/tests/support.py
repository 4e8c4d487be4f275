"""What the tests share: a registry of their own, and Python programs run beside this one."""

import os
import shutil
import subprocess
import sys
import tempfile
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
        mneme._mneme._close_all()
        del os.environ["MNEME_DIR"]
        shutil.rmtree(self.registry, ignore_errors=True)
        # The data files lie beside the registry, named by identity.


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


def begin(program, *arguments):
    """Start a program that talks by lines; read its first one to know that it is there."""
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
