"""Every block of docs/guides/python.md and docs/README.md runs, in order, and every example."""

import os
import re
import unittest

import mneme
from support import WithRegistry, python

HERE = os.path.dirname(os.path.abspath(__file__))
GUIDE = os.path.join(HERE, "..", "..", "..", "docs", "guides", "python.md")
FIRST_PAGE = os.path.join(HERE, "..", "..", "..", "docs", "README.md")
EXAMPLES = os.path.join(HERE, "..", "examples")

try:
    import numpy
except ImportError:
    numpy = None
try:
    import pyarrow
except ImportError:
    pyarrow = None


class Guide(WithRegistry):
    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_the_guide(self):
        with open(GUIDE) as file:
            blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
        self.assertGreater(len(blocks), 8)
        names = {}
        own = os.environ["MNEME_DIR"]
        for block in blocks:
            if block.startswith("# other.py"):
                python(block)
            else:
                exec(compile(block, "docs/guides/python.md", "exec"), names)
        # The registry that the guide makes is empty again.
        self.assertEqual(mneme.Segment.list(), [])
        import shutil
        shutil.rmtree(os.environ["MNEME_DIR"])
        os.environ["MNEME_DIR"] = own

    def test_the_first_part_of_the_guide_without_numpy(self):
        with open(GUIDE) as file:
            blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
        names = {}
        for block in blocks[:5]:
            exec(compile(block, "docs/guides/python.md", "exec"), names)

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_the_first_page(self):
        with open(FIRST_PAGE) as file:
            blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
        self.assertEqual(len(blocks), 1)
        python(blocks[0])

    @unittest.skipUnless(pyarrow, "pyarrow is not installed")
    def test_an_arrow_table(self):
        python(f"import runpy; runpy.run_path({os.path.join(EXAMPLES, 'arrow_table.py')!r}, run_name='__main__')")


if __name__ == "__main__":
    unittest.main()
