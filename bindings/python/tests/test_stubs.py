"""The stubs name what there is, all of it, with its parameters."""

import ast
import inspect
import os
import unittest

import mneme

STUBS = os.path.join(os.path.dirname(mneme.__file__), "__init__.pyi")


def parameters(function):
    """Names, without `self`, which a class is made with too."""
    arguments = function.args
    every = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
    return [argument.arg for argument in every if argument.arg not in ("self", "cls")]


class Stubs(unittest.TestCase):
    def setUp(self):
        with open(STUBS) as file:
            self.tree = ast.parse(file.read())

    def test_every_public_name_is_in_the_stubs(self):
        named = {node.name for node in self.tree.body if hasattr(node, "name")}
        self.assertEqual(named | {"__version__"}, set(mneme.__all__))

    def test_every_method_is_in_the_stubs(self):
        for node in self.tree.body:
            if not isinstance(node, ast.ClassDef) or issubclass(getattr(mneme, node.name), Exception):
                continue
            there = {name for name in vars(getattr(mneme, node.name)) if not name.startswith("_")}
            stubbed = {item.name for item in node.body if not item.name.startswith("_")}
            self.assertEqual(stubbed, there, node.name)

    def test_parameters(self):
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.ClassDef) or not isinstance(node.body[0], ast.FunctionDef):
                continue
            for item in node.body:
                found = inspect.getattr_static(getattr(mneme, node.name), getattr(item, "name", ""), None)
                if item.name.startswith("_") or not callable(found) or item.decorator_list:
                    continue
                signature = inspect.signature(found).parameters
                self.assertEqual(parameters(item), [name for name in signature if name != "self"], item.name)

    def test_everything_has_a_docstring(self):
        for name in mneme.__all__:
            self.assertTrue(name == "__version__" or getattr(mneme, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
