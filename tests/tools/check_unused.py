#!/usr/bin/env python3
"""tools/check_unused.py on scratch trees: a clean one passes, and each function that the product does not use is refused.

usage: check_unused.py CHECKER      (needs git)
"""
import importlib.util
import os
import sys

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("trees", os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_names.py"))
trees = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trees)  # the same scratch trees, with other files

trees.CLEAN = {
    "tools/unused.txt": "base/main.c kept_*\n",
    "base/main.c": "int main(void)\n{\n}\n",
    "base/list.h": "void list_push(void);\nint list_n(void);\nstatic inline void list_twice(void)\n{\n    list_n();\n}\n",
    "base/list.c": "void list_push(void)\n{\n}\nint list_n(void)\n{\n}\nstatic void lone(void)\n{\n}\nvoid own(void)\n{\n    own();\n}\nvoid kept_it(void)\n{\n}\n",
    "base/user.c": "static void user(void)\n{\n    list_push();\n}\n",
    "tests/test_list.c": "int only_tests(void)\n{\n    return lone();\n}\n",
}
trees.VIOLATIONS = [
    ("one that nobody calls", "base/user.c", "void gone(void)\n{\n}\n", "base/user.c:5: nothing of the product uses gone()"),
    ("one that only a test calls", "base/user.c", "int only_tests(void)\n{\n}\n", "base/user.c:5: nothing of the product uses only_tests()"),
    ("one of two lines", "base/user.c", "enum status gone(int a,\n                 int b)\n{\n}\n", "base/user.c:5: nothing of the product uses gone()"),
    ("one that a comment names", "base/user.c", "/* gone() */\nint gone(void)\n{\n}\n", "base/user.c:6: nothing of the product uses gone()"),
    ("an exception without need", "tools/unused.txt", "close\n", "tools/unused.txt:1: the exception 'close' is not needed any more"),
]

if __name__ == "__main__":
    trees.main()
