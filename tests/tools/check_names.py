#!/usr/bin/env python3
"""tools/check_names.py on scratch trees: a clean one passes, and each name that stands twice is refused.

usage: check_names.py CHECKER      (needs git)
"""
import contextlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile

RULES = """
[structs]
weight # each backend's own
[statics]
on_*
"""

CLEAN = {
    "tools/names.txt": RULES,
    "base/list.h": "struct list {\n    struct link *first;\n};\nstruct later;\nunion number {\n    int i;\n};\n",
    "base/list.c": """
static void list_push(struct list *l)
{
    struct list copy = {0};
}
static void on_end(void *arg)
{
}
static int helper(int);
""",
    "compute/ref.c": "struct weight {\n    int n;\n};\nstatic const struct { int n; } none;\n",
    "compute/cpu.c": """
struct weight {
    struct later *next; /* struct list { */
};
// struct list {
#define MADE(name)              \\
    static void name##_go(void) \\
    {                           \\
    }                           \\
    static void list_push(void) \\
    {                           \\
    }
static void on_end(void *arg)
{
    list_push("struct list {");
}
static void helper(void)
{
}
void list_push(void);
""",
    "compute/cuda/draw.cu": "static void helper(void)\n{\n}\n",
    "tests/test_list.c": "struct list {\n    int n;\n};\nstatic void helper(void)\n{\n}\n",
}

# What is added to which file of the clean tree, and the complaint about it.
VIOLATIONS = [
    ("a struct", "compute/cpu.c", "struct list {\n};\n", "compute/cpu.c:21: struct 'list' is defined in base/list.h, too"),
    ("a struct of a header", "compute/a.h", "struct list {\n};\n", "compute/a.h:1: struct 'list' is defined in base/list.h, too"),
    ("a struct in a .cu", "compute/cuda/draw.cu", "struct list {\n};\n", "draw.cu:4: struct 'list' is defined in base/list.h, too"),
    ("a struct inside another", "compute/ref.c", "struct outer {\n    const struct list {\n        int n;\n    } * l;\n};\n", "compute/ref.c:6: struct 'list' is defined in base/list.h, too"),
    ("a union", "compute/ref.c", "union number {\n};\n", "compute/ref.c:5: struct 'number' is defined in base/list.h, too"),
    ("a static function", "compute/ref.c", "static void list_push(struct list *l)\n{\n}\n", "compute/ref.c:5: static function 'list_push' is defined in base/list.c, too"),
    ("one of a line more", "compute/ref.c", "static enum status list_push(struct list *l,\n                             int (*with)(int a, int b), int c)\n{\n}\n",
     "compute/ref.c:5: static function 'list_push' is defined in base/list.c, too"),
    ("one below its type", "compute/ref.c", "static inline __attribute__((always_inline)) void\nlist_push(void)\n{\n}\n",
     "compute/ref.c:6: static function 'list_push' is defined in base/list.c, too"),
    ("one with attributes", "compute/ref.c", '__attribute__((format(printf, 1, 2))) static void list_push(const char *fmt, ...)\n{\n}\n',
     "compute/ref.c:5: static function 'list_push' is defined in base/list.c, too"),
    ("an exception without need", "tools/names.txt", "close\n", "tools/names.txt:1: the exception 'close' is not needed any more"),
    ("a section that is none", "tools/names.txt", "[enums]\n", "there is no section 'enums'"),
]


def run(checker, files):
    """In the working folder, which is a git repository and has these files alone."""
    for folder in os.listdir():
        if folder != ".git":
            shutil.rmtree(folder)
    for path, text in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = checker.main(["--root", "."])
    return code, said.getvalue()


def main():
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))  # it imports its neighbour
    spec = importlib.util.spec_from_file_location("checker", sys.argv[1])
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    with tempfile.TemporaryDirectory() as root:
        os.chdir(root)
        subprocess.run(["git", "init", "--quiet"], check=True)
        assert run(checker, CLEAN) == (0, ""), run(checker, CLEAN)
        for kind, path, text, complaint in VIOLATIONS:
            code, said = run(checker, {**CLEAN, path: CLEAN.get(path, "") + text})
            assert code == 1 and complaint in said and said.count("\n") == 1, f"{kind}: {code}, {said!r}, not {complaint!r}"


if __name__ == "__main__":
    main()
