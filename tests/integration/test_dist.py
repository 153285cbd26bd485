"""The tarball, unpacked in a root that has nothing but the C library: selftest, and parleyd over gRPC and HTTP. What is made of it, the
image and the wheel with the programs: dist_forms.py.

usage: test_dist.py DIST_SH BUILD_DIR WRITE_TINY_MODEL SOURCE_ROOT [MODULE]

Exit status 77: this machine lets nobody have a root of his own."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request

import children
import dist_forms
from dist_forms import good

SKIPPED = 77
LIBC = ["ld-linux-x86-64", "libc", "libm", "libpthread", "libdl", "librt", "libresolv"]
DEVICES = ["/dev/null", "/dev/urandom"]
# In a mount namespace of its own, without a fork: who started it holds the program itself. $0: the root.
ENTER = """set -e
mount --rbind /proc "$0/proc"
for device in {devices}; do mount --bind "$device" "$0$device"; done
for folder in {folders}; do mkdir -p "$0$folder"; mount --bind "$folder" "$0$folder"; done
exec chroot "$0" "$@"
"""


def empty_root(folder):
    """A root with the loader, the C library, and where /proc and devices are laid over."""
    for place in ["lib64", "lib/x86_64-linux-gnu", "proc", "dev", "tmp", "opt"]:
        os.makedirs(os.path.join(folder, place))
    for device in DEVICES:
        open(folder + device, "wb").close()
    for name in LIBC:
        for found in glob.glob(f"/lib/x86_64-linux-gnu/{name}.so.*"):
            shutil.copy(found, os.path.join(folder, "lib/x86_64-linux-gnu"))
    shutil.copy("/lib64/ld-linux-x86-64.so.2", os.path.join(folder, "lib64"))


class Root:
    def __init__(self, folder, devices, folders=()):
        self.folder = folder
        enter = ENTER.format(devices=" ".join(devices), folders=" ".join(folders))
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        self.enter = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "unshare", *user, "--mount", "sh", "-c", enter, folder]

    def refusal(self):
        """Why nobody gets in; None when the loader runs there."""
        tried = children.run([*self.enter, "/lib64/ld-linux-x86-64.so.2", "--version"], capture_output=True, text=True)
        return None if tried.returncode == 0 else tried.stderr.strip()

    def run(self, *command, **more):
        return children.run([*self.enter, *command], capture_output=True, text=True, **more)


def root_with_python(folder):
    """The same with Debian's Python, and pip, which lies there as a wheel."""
    empty_root(folder)
    os.mkdir(os.path.join(folder, "usr"))
    os.mkdir(os.path.join(folder, "usr/bin"))
    python = os.path.realpath("/usr/bin/python3")
    shutil.copy(python, os.path.join(folder, "usr/bin/python3"))
    for library in ["libz", "libexpat"]:
        shutil.copy(f"/lib/x86_64-linux-gnu/{library}.so.1", os.path.join(folder, "lib/x86_64-linux-gnu"))
    return Root(folder, DEVICES, [f"/usr/lib/{os.path.basename(python)}", "/usr/share/python-wheels"])


def check_selftest(root, bin_dir):
    lines = [json.loads(line) for line in good(root.run(f"{bin_dir}/parley", "selftest", "--backend", "cpu", "--json")).splitlines()]
    checked = [line for line in lines if "holds" in line]
    assert len(checked) > 20 and all(line["holds"] for line in checked), lines


class Daemon(children.Daemon):
    def __init__(self, root, path, *flags):
        super().__init__(path, *flags)
        self.command = [*root.enter, *self.command]


def check_daemon(root, bin_dir, model):
    with Daemon(root, f"{bin_dir}/parleyd", "--model", f"tiny={model}", "--http", "127.0.0.1:0") as daemon:
        asked = good(root.run(f"{bin_dir}/parley", "ask", "--server", daemon.address, "--json", "--max-tokens", "4", "--seed", "1", "hello"))
        assert json.loads(asked)["usage"]["completion_tokens"] == 4, asked
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "seed": 1}  # one that does not end the reply
        request = urllib.request.Request(f"http://{daemon.http}/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=children.PATIENCE) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4


def check_without_random(folder, bin_dir, model):
    """Where there is no /dev/urandom there is no HTTP, and a sentence that says why."""
    os.remove(f"{folder}/dev/urandom")
    root = Root(folder, ["/dev/null"])
    start = [f"{bin_dir}/parleyd", "--listen", "127.0.0.1:0", "--log-level", "error", "--model", f"tiny={model}"]
    done = root.run(*start, "--http", "127.0.0.1:0")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    assert "--http" in done.stderr and "/dev/urandom" in done.stderr, done
    with Daemon(root, f"{bin_dir}/parleyd", "--model", f"tiny={model}", "--http", "off") as daemon:
        asked = good(root.run(f"{bin_dir}/parley", "ask", "--server", daemon.address, "--json", "--max-tokens", "4", "--seed", "1", "hello"))
        assert json.loads(asked)["usage"]["completion_tokens"] == 4, asked


def check_cuda(root, bin_dir, model, wanted):
    """Without a GPU one line says what is missing."""
    for command in [[f"{bin_dir}/parleyd", "--backend", "cuda", "--model", f"tiny={model}", "--listen", "127.0.0.1:0",
                     "--log-level", "error"], [f"{bin_dir}/parley", "selftest", "--backend", "cuda"]]:
        done = root.run(*command)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and wanted in done.stderr, (done, wanted)


def check_cublas(root_dir, work):
    """add-cublas names the pieces that are missing or damaged, and joins them when all are there."""
    pieces = os.path.join(work, "pieces")
    shutil.copytree(os.path.join(work, "out"), pieces, ignore=shutil.ignore_patterns("*x86_64.tar.gz"))
    names = sorted(os.listdir(pieces))
    assert names, "no pieces"
    add = [os.path.join(root_dir, "add-cublas")]

    def refused(words, *arguments):
        done = children.run([*add, *arguments], capture_output=True, text=True)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
        assert all(word in done.stderr for word in words), (done.stderr, words)

    refused(["are missing in", *names])
    refused(["not a folder", "/nowhere"], "/nowhere")
    with open(os.path.join(pieces, names[0]), "r+b") as piece:
        first = piece.read(1)
        piece.seek(0)
        piece.write(bytes([first[0] ^ 1]))
    refused(["download them again", names[0]], pieces)
    with open(os.path.join(pieces, names[0]), "r+b") as piece:
        piece.write(first)
    good(children.run([*add, pieces], capture_output=True, text=True))
    for name in ["libcublas.so.13", "libcublasLt.so.13"]:
        with open(os.path.join(root_dir, "lib", name), "rb") as joined, open(os.path.join(work, "cublas/nvidia/cu13/lib", name), "rb") as given:
            assert joined.read() == given.read(), name


def stand_in_cublas(folder):
    """What PyPI's package looks like, but small."""
    for place in ["nvidia/cu13/lib", "nvidia_cublas-1.dist-info/licenses"]:
        os.makedirs(os.path.join(folder, place))
    for name, n in [("nvidia/cu13/lib/libcublas.so.13", 1000), ("nvidia/cu13/lib/libcublasLt.so.13", 300000),
                    ("nvidia_cublas-1.dist-info/licenses/License.txt", 10)]:
        with open(os.path.join(folder, name), "wb") as out:
            out.write(os.urandom(n))


def main():
    dist, build, write_tiny_model, source, *module = sys.argv[1:]
    with tempfile.TemporaryDirectory() as work:
        folder, out, cublas = (os.path.join(work, name) for name in ("root", "out", "cublas"))
        empty_root(folder)
        root = Root(folder, DEVICES)
        refusal = root.refusal()
        if refusal is not None:
            print(f"skipped: no root of one's own here: {refusal}", file=sys.stderr)
            return SKIPPED
        stand_in_cublas(cublas)
        more = ["--module", module[0]] if module else []
        good(children.run([dist, build, out, *more, "--cublas", cublas, "--piece-bytes", "100000"], capture_output=True, text=True))
        (tarball,) = glob.glob(f"{out}/*-x86_64.tar.gz")
        assert os.path.getsize(tarball) <= 60 << 20
        good(children.run(["tar", "-C", f"{folder}/opt", "-xzf", tarball], capture_output=True, text=True))
        (top,) = os.listdir(f"{folder}/opt")
        good(children.run([write_tiny_model, f"{folder}/tmp/tiny.gguf"], capture_output=True, text=True))
        for wanted in ["man1/parley.1", "man8/parleyd.8", "man7/parley-parlai.7"]:
            assert os.path.getsize(f"{folder}/opt/{top}/share/man/{wanted}") > 0
        check_selftest(root, f"/opt/{top}/bin")
        check_daemon(root, f"/opt/{top}/bin", "/tmp/tiny.gguf")
        check_cuda(root, f"/opt/{top}/bin", "/tmp/tiny.gguf", "there is no NVIDIA driver" if module else "--cuda-arch")
        check_cublas(f"{folder}/opt/{top}", work)
        check_without_random(folder, f"/opt/{top}/bin", "/tmp/tiny.gguf")
        if os.geteuid() != 0:
            print("not root: the image and the wheel are left out", file=sys.stderr)
            return 77
        dist_forms.check_image(f"{source}/tools/image.py", tarball, f"{source}/share/container/compose.yaml", work, write_tiny_model)
        python = root_with_python(os.path.join(work, "python"))
        dist_forms.check_wheel(f"{source}/tools/program_wheel.py", tarball, f"{source}/build/venv/wheel", work, python,
                               lambda program: Daemon(python, program))
    return 0


sys.exit(main())
