#!/usr/bin/env python3
"""tools/check_includes.py on scratch trees: a clean one passes, and each kind of violation is refused by file, line and name.

usage: check_includes.py CHECKER      (needs git)
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
[everywhere]
stdio.h sys/*.h
[names]
grpc = grpc/*.h
c++ = type_traits
[generated]
made.h = tests/made.h
[folders]
base: | uv.h(mailbox.h)
proto: base | protobuf-c/*.h
compute: base |
compute/kv: base compute/gguf |      # sees less than the folder around it
compute/cuda: base compute | cuda*.h c++(module.cc)
compute/backends.c: base compute |
agents: base |
server: base proto compute agents agents/policy/policy.h server/api/*.h | grpc
server/api/kserve: base server/api/*.h |
tests: * | grpc
[insides]
agents/lm agents/policy
[private]
parts.h *_parts.h
[calls]
sprintf atoi
exit printf | server/main.c tests
exp log | base/real.c
[circles]
[exceptions]
"""

CLEAN = {
    "tools/includes.txt": RULES,
    "base/buf.h": "#include <stdio.h>\n#include <sys/stat.h>\n",
    "base/real.c": "double e(void) { return exp(1); }\n",
    "base/mailbox.h": "#include <uv.h>\n",
    "proto/v1/turn.proto": "",
    "compute/gguf/read.h": '#include "base/buf.h"\n',
    "compute/gguf/parts.h": "",
    "compute/gguf/read.c": '#include "compute/gguf/parts.h"\n#include "compute/gguf/read.h"\n',
    "compute/kv/pages.c": '#include "compute/gguf/read.h"\n',
    "compute/kv/pages.h": "",
    "compute/cuda/rows.cu": '#include "compute/gguf/read.h"\n#include <cuda_runtime_api.h>\n',
    "compute/cuda/launch.cuh": "",
    "compute/cuda/module.cc": "#include <type_traits>\n",
    "compute/backends.c": '#include "compute/cuda/launch.cuh"\n',
    "agents/agent.h": "",
    "agents/lm/lm.h": "",
    "agents/lm/step.c": '#include "agents/agent.h"\n#include "agents/lm/lm.h"\n',
    "agents/policy/policy.h": "",
    "agents/policy/net.h": "",
    "server/policies.c": '#include "agents/agent.h"\n#include "agents/policy/policy.h"\n',
    "server/main.c": '#include <grpc/grpc.h>\n#include "v1/turn.pb-c.h"\nint main(void) { printf("sprintf(x)"); exit(0); } // atoi(x)\n',
    "server/api/request.h": "",
    "server/api/kserve/service.c": '#include "server/api/request.h"\n/* #include "server/main.h" printf(x) */\nvoid on_exit(void); struct snprintf; int my_printf(int); int i = s->log(1);\n',
    "tests/test_read.c": '#include "compute/gguf/parts.h"\n#include "made.h"\n#include "server/api/request.h"\n#include "agents/lm/lm.h"\n',
}

# What is written to which file of the clean tree, and the complaint about it.
VIOLATIONS = [
    ("another folder", "base/buf.h", '\n#include "compute/cuda/launch.cuh"\n', 'base/buf.h:2: base may not include "compute/cuda/launch.cuh"'),
    ("the longest name decides", "compute/kv/pages.c", '#include "compute/cuda/launch.cuh"\n', 'compute/kv/pages.c:1: compute/kv may not include "compute/cuda/launch.cuh"'),
    ("one API, another", "server/api/kserve/service.c", '#include "server/api/openai/chat.h"\n', 'service.c:1: server/api/kserve may not include "server/api/openai/chat.h"'),
    ("what is made of a .proto", "compute/gguf/read.c", '#include "v1/turn.pb-c.h"\n', 'read.c:1: compute may not include "v1/turn.pb-c.h"'),
    ("what the build makes", "base/buf.h", '#include "made.h"\n', 'base/buf.h:1: base may not include "made.h"'),
    ("a library", "compute/gguf/read.c", "#include <grpc/grpc.h>\n", "read.c:1: compute may not include <grpc/grpc.h>"),
    ("a library by quotes", "compute/gguf/read.c", '#include "grpc/grpc.h"\n', 'read.c:1: "grpc/grpc.h" is no file of this tree'),
    ("a library of another file", "base/buf.h", "#include <uv.h>\n", "base/buf.h:1: base may not include <uv.h>"),
    ("a library in a .cu", "compute/cuda/rows.cu", "#include <grpc/grpc.h>\n", "rows.cu:1: compute/cuda may not include <grpc/grpc.h>"),
    ("CUDA elsewhere", "compute/gguf/read.c", "#include <cuda_runtime_api.h>\n", "read.c:1: compute may not include <cuda_runtime_api.h>"),
    ("C++ elsewhere", "compute/cuda/other.cc", "#include <type_traits>\n", "other.cc:1: compute/cuda may not include <type_traits>"),
    ("own header in <>", "compute/gguf/read.c", "#include <base/buf.h>\n", 'read.c:1: <base/buf.h> is a file of this tree: it is included as "base/buf.h"'),
    ("a foreign one in <>", "compute/gguf/read.c", "#include <server/api/request.h>\n", "read.c:1: <server/api/request.h> is a file of this tree"),
    ("not from the root", "compute/gguf/read.c", '#include "parts.h"\n', 'read.c:1: "parts.h" is no file of this tree'),
    ("a private header", "compute/backends.c", '#include "compute/gguf/parts.h"\n', 'compute/backends.c:1: "compute/gguf/parts.h" is private to compute/gguf/'),
    ("a private header, from below", "compute/cuda/rows.cu", '#include "compute/kernel_parts.h"\n', 'rows.cu:1: "compute/kernel_parts.h" is private to compute/'),
    ("a .cu", "compute/cuda/rows.cu", '#include "server/api/request.h"\n', 'rows.cu:1: compute/cuda may not include "server/api/request.h"'),
    ("a .cuh", "compute/cuda/launch.cuh", '#include "server/api/request.h"\n', 'launch.cuh:1: compute/cuda may not include "server/api/request.h"'),
    ("a .cc", "compute/cuda/module.cc", '#include "server/api/request.h"\n', 'module.cc:1: compute/cuda may not include "server/api/request.h"'),
    ("blanks", "base/buf.h", '  #\tinclude"compute/cuda/launch.cuh"\n', 'base/buf.h:1: base may not include "compute/cuda/launch.cuh"'),
    ("comments between", "base/buf.h", '/* a\n*/ # /**/ include /* */ "compute/cuda/launch.cuh"\n', 'base/buf.h:2: base may not include "compute/cuda/launch.cuh"'),
    ("a continued line", "base/buf.h", '#include \\\n"compute/cuda/launch.cuh"\n', 'base/buf.h:1: base may not include "compute/cuda/launch.cuh"'),
    ("include_next", "base/buf.h", "#include_next <grpc/grpc.h>\n", "base/buf.h:1: base may not include <grpc/grpc.h>"),
    ("an include by macro", "base/buf.h", "#include HEADER\n", "base/buf.h:1: an include names its header itself"),
    ("an inside", "server/turn.c", '#include "agents/lm/lm.h"\n', 'server/turn.c:1: server may not include "agents/lm/lm.h", which is inside agents/lm/'),
    ("an inside, beside a header that is named", "server/turn.c", '#include "agents/policy/net.h"\n', 'server/turn.c:1: server may not include "agents/policy/net.h", which is inside'),
    ("an inside, from around it", "agents/turn.c", '#include "agents/lm/lm.h"\n', 'agents/turn.c:1: agents may not include "agents/lm/lm.h", which is inside'),
    ("an inside, from another one", "agents/policy/step.c", '#include "agents/lm/lm.h"\n', 'agents/policy/step.c:1: agents may not include "agents/lm/lm.h", which is inside'),
    ("a file without a row", "worlds/world.h", "\n", "worlds/world.h:1: no row of the table covers this file"),
    ("a call", "base/buf.c", 'int f(char *s)\n{\n    return sprintf(s, "");\n}\n', "base/buf.c:3: sprintf() is banned here"),
    ("a call in a .cu", "compute/cuda/rows.cu", "\nint i = atoi (s);\n", "rows.cu:2: atoi() is banned here"),
    ("a call in a header", "base/buf.h", "#define F(s) atoi(s)\n", "base/buf.h:1: atoi() is banned here"),
    ("a call in a test", "tests/test_read.c", "int i = atoi(s);\n", "test_read.c:1: atoi() is banned here"),
    ("a call in the wrong folder", "base/buf.c", "int f(void) { printf(s); }\n", "base/buf.c:1: printf() is banned here"),
    ("a call where one file may", "base/buf.c", "double d = exp(1);\n", "base/buf.c:1: exp() is banned here"),
    ("a call after a string", "base/buf.c", 'char c = \'"\'; int f(void) { g("//", exit(1)); }\n', "base/buf.c:1: exit() is banned here"),
    ("an exception without need", "tools/includes.txt", RULES + "base/buf.h -> server/api/request.h\n", "the exception base/buf.h -> server/api/request.h is not needed any more"),
    ("a rule that cannot be read", "tools/includes.txt", RULES + "frob\n", "cannot be parsed"),
    ("a circle", "compute/gguf/parts.h", '\n#include "compute/gguf/read.h"\n', "read.c:1: these files include each other in a circle, compute/gguf/parts compute/gguf/read: "),
    ("a circle without need", "tools/includes.txt", RULES.replace("[exceptions]", "compute/gguf/parts compute/gguf/read | x\n[exceptions]"), "the circle compute/gguf/parts compute/gguf/read is none any more"),
    ("a circle without a reason", "tools/includes.txt", RULES.replace("[exceptions]", "compute/gguf/parts compute/gguf/read |\n[exceptions]"), "cannot be parsed (a circle needs its reason)"),
    ("a folder twice", "tools/includes.txt", RULES.replace("[insides]", "base: compute |\n[insides]"), "the folder base has a second row"),
]


def run(checker, files, *options):
    """In the working folder, which is a git repository and has these files alone."""
    for folder in os.listdir():
        if folder != ".git":
            shutil.rmtree(folder)
    for path, text in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(io.StringIO()) as said:
        code = checker.main(["--root", ".", *options])
    return code, shown.getvalue(), said.getvalue()


def refuses_each_violation(checker):
    others = {"server/api/openai/chat.h": "", "compute/kernel_parts.h": ""}
    for kind, path, text, complaint in VIOLATIONS:
        code, _, said = run(checker, {**CLEAN, **others, path: text})
        assert code == 1 and complaint in said and said.count("\n") == 1, f"{kind}: {code}, {said!r}, not {complaint!r}"


def accepts_a_clean_tree(checker):
    assert run(checker, CLEAN) == (0, "", "")


def an_exception_lets_one_include_through(checker):
    files = {**CLEAN, "base/buf.h": '#include "compute/cuda/launch.cuh"\n', "tools/includes.txt": RULES + "base/buf.h -> compute/cuda/launch.cuh\n"}
    assert run(checker, files) == (0, "", "")
    files["base/list.h"] = '#include "compute/cuda/launch.cuh"\n'
    code, _, said = run(checker, files)
    assert code == 1 and said == 'base/list.h:1: base may not include "compute/cuda/launch.cuh"\n', said


def a_listed_circle_lets_just_its_members_through(checker):
    listed = RULES.replace("[exceptions]", "compute/gguf/read compute/gguf/parts | the inside of read.h\n[exceptions]")
    files = {**CLEAN, "compute/gguf/parts.h": '#include "compute/gguf/read.h"\n', "tools/includes.txt": listed}
    assert run(checker, files) == (0, "", "")
    files |= {"compute/gguf/third.h": '#include "compute/gguf/read.h"\n', "compute/gguf/parts.h": '#include "compute/gguf/third.h"\n'}
    code, _, said = run(checker, files)
    assert code == 1 and "in a circle, compute/gguf/parts compute/gguf/read compute/gguf/third: " in said and "is none any more" in said, said


def names_cycles(checker):
    """A source and its header are one unit; a header included twice over is no cycle."""
    files = {**CLEAN, "compute/a.h": "", "compute/a.c": '#include "compute/a.h"\n#include "compute/b.h"\n',
             "compute/b.h": '#include "compute/cuda/c.h"\n', "compute/cuda/c.h": '#include "compute/a.h"\n', "compute/d.c": '#include "compute/a.h"\n#include "compute/b.h"\n'}
    assert run(checker, CLEAN, "--cycles") == (0, "", "0 cycles\n")
    code, shown, _ = run(checker, files, "--cycles")
    ways = [f"{' -> '.join(way)} -> {way[0]}\n" for way in (["compute/a", "compute/b", "compute/cuda/c"], ["compute/b", "compute/cuda/c", "compute/a"], ["compute/cuda/c", "compute/a", "compute/b"])]
    assert code == 1 and shown in ways, shown
    code, shown, _ = run(checker, files, "--figures")
    rows = {words[0]: [int(word) for word in words[1:]] for words in map(str.split, shown.splitlines()[1:])}
    assert code == 0 and rows["compute"] == [5, 2, 1] and rows["compute/cuda"] == [4, 2, 1] and rows["base"] == [3, 0, 0], shown
    total = rows.pop("total")
    assert shown.splitlines()[-1].startswith("total ") and total[:2] == [sum(row[i] for row in rows.values()) for i in (0, 1)], shown
    assert total[2] == 1, "a cycle through two folders counts once"
    code, shown, _ = run(checker, CLEAN, "--figures")
    assert code == 0 and shown.splitlines()[-1].split() == ["total", str(sum(not path.endswith((".txt", ".proto")) for path in CLEAN)), "12", "0"], shown


# Includes that the rules of this tree must refuse: the engine in the client, a kind's insides elsewhere.
REFUSED = [
    (by, header) for by in ("client/lib/turn.c", "client/cli/connection.c", "client/cli/bench/load.c", "client/examples/loop.c", "cli/output/out.c")
    for header in ("agents/agent.h", "batching/batcher.h", "compute/backends.h", "worlds/world/world.h", "worlds/verbs/verbs.h")
] + [
    ("server/conversation/turn.c", "agents/lm/lm.h"), ("server/conversation/turn.c", "agents/policy/policy.h"), ("server/api/openai/chat.c", "agents/seq2seq/seq2seq.h"),
    ("server/daemon.c", "agents/lm/lm.h"), ("worlds/participant/model.c", "agents/lm/lm.h"), ("worlds/verbs/eval.c", "agents/lm/lm.h"), ("agents/turn.c", "agents/lm/lm.h"),
    ("agents/params/params.c", "agents/policy/policy.h"), ("batching/batcher.c", "agents/lm/lm.h"), ("compute/backends.c", "compute/verbs/verbs.h"), ("server/daemon.c", "worlds/verbs/verbs.h"),
]
OPEN = {"constraint", "reply", "words"}  # folders of agents/ that have no kind


def the_rules_of_this_tree_keep_engine_and_insides(checker, root):
    rules, tree = checker.Rules(os.path.join(root, checker.RULES)), checker.Tree(root, with_sources=False)
    for by, header in REFUSED:
        assert {by, header} <= tree.files, f"{by} or {header} is no file any more"
        assert checker.refusal(tree, rules, rules.row_of(by), by, header, True) is not None, f'{by} may include "{header}"'
    folders = {path.split("/")[1] for path in tree.files if path.startswith("agents/") and path.count("/") > 1}
    assert folders == OPEN | {path.split("/")[1] for path in rules.insides if path.startswith("agents/")}, folders


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[1])))
    spec = importlib.util.spec_from_file_location("checker", sys.argv[1])
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)  # not a process each time: their start would take most of the test
    the_rules_of_this_tree_keep_engine_and_insides(checker, root)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        subprocess.run(["git", "init", "--quiet"], check=True)
        accepts_a_clean_tree(checker)
        refuses_each_violation(checker)
        an_exception_lets_one_include_through(checker)
        a_listed_circle_lets_just_its_members_through(checker)
        names_cycles(checker)


if __name__ == "__main__":
    main()
