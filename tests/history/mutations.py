#!/usr/bin/env python3
"""The deliberate bugs of mutations/ and ../cuda/mutations/: each is a patch whose first line names the detector that must find it, and whose
second line says what is wrong. One that is equivalent, as its first line says, is built and not found; the second line says why.

usage: mutations.py                     each applies to the tree as it is
       mutations.py --find [NAME…]      each, or those of a name or folder (history, cuda), is built, in a copy of the tree, and is found by its detector, which finds nothing without it
                                        (--find by the interpreter that has grpcio; see venv.sh)"""
import filecmp
import os
import re
import shutil
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))
scratch = os.path.join(root, "build", "mutations")
release = os.path.join(scratch, "build", "release")

DETECTORS = {
    "history": ("parleyd", "tests/integration/write_tiny_model"),
    "simulation": ("tests/sim/sim_journal",),
    "power-cut": ("tests/unit/server/test_server_journal_sqlite",),
    "attention": ("tests/cuda/test_cuda_sequence_watched",),
    "products": ("tests/cuda/test_cuda_products_watched",),
    "draws": ("tests/cuda/test_compute_draw_watched",),
    "engine": ("tests/cuda_host/test_cuda_host_engine",),
}
FOLDERS = {"history": here, "cuda": os.path.join(root, "tests", "cuda")}


class Mutation:
    def __init__(self, folder, name):
        self.folder, self.name, self.path = folder, name, os.path.join(FOLDERS[folder], "mutations", name + ".patch")
        with open(self.path, encoding="utf-8") as file:
            head = file.readline(), file.readline()
        found = re.fullmatch(r"detector: (\S+)( \(equivalent\))?\n", head[0])
        assert found and found[1] in DETECTORS, f"{name} names no detector: {head[0]!r}"
        assert re.fullmatch(r"[A-Z].*\.\n", head[1]), f"{name} does not say what is wrong: {head[1]!r}"
        self.detector, self.is_equivalent, self.why = found[1], found[2] is not None, head[1].strip()

    def patch(self, folder, *flags):
        return subprocess.run(["patch", "--strip=1", "--force", "--silent", "--no-backup-if-mismatch", "--reject-file=-", *flags, "--input", self.path],
                              cwd=folder, stdout=-1, stderr=-2, text=True)


def all_mutations():
    return [Mutation(folder, name.removesuffix(".patch"))
            for folder, path in FOLDERS.items() for name in sorted(os.listdir(os.path.join(path, "mutations")))]


def check():
    mutations = all_mutations()
    broken = [(m.name, done.stdout) for m in mutations for done in [m.patch(root, "--dry-run")] if done.returncode != 0]
    for name, said in broken:
        print(f"{name} does not apply:\n{said}")
    print(f"{len(mutations) - len(broken)} of {len(mutations)} mutations apply")
    return len(broken) == 0 and len(mutations) >= 20


def copy_tree():
    """What git knows of, as it is here; a build of it stays from before."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=root, stdout=-1, check=True).stdout
    for name in files.decode().split("\0")[:-1]:
        source, copy = os.path.join(root, name), os.path.join(scratch, name)
        if os.path.exists(copy) and filecmp.cmp(source, copy, shallow=False):
            continue
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copy(source, copy)
    if not os.path.exists(os.path.join(release, "build.ninja")):
        subprocess.run(["meson", "setup", "--buildtype=release", "-Dcuda=disabled", release, scratch], check=True, stdout=subprocess.DEVNULL)


def is_found(detector):
    """Whether the detector finds something in what is built, and what it says."""
    subprocess.run(["ninja", "-C", release, *DETECTORS[detector]], check=True, stdout=subprocess.DEVNULL)
    if detector == "history":
        command = [sys.executable, os.path.join(here, "test_history.py"), os.path.join(release, "parleyd"),
                   os.path.join(release, "tests/integration/write_tiny_model"), "--seed", "1"]
    else:
        command = [os.path.join(release, DETECTORS[detector][0])]
    done = subprocess.run(command, stdout=-1, stderr=-2, text=True, env={**os.environ, "CK_FORK": "no"})
    said = re.search(r"faults=[1-9].*\n.*" if detector == "history" else r".*:[FE]:.*|seed \d+: .*", done.stdout)
    return done.returncode != 0 and said is not None, said[0] if said else done.stdout[-2000:]


def find(names):
    mutations = [m for m in all_mutations() if not names or m.name in names or m.folder in names]
    copy_tree()
    for detector in sorted({m.detector for m in mutations}):
        found, said = is_found(detector)
        assert not found, f"without a mutation {detector} finds {said}"
    missed = 0
    for m in mutations:
        done = m.patch(scratch)
        assert done.returncode == 0, (m.name, done.stdout)
        try:
            found, said = is_found(m.detector)
        finally:
            assert m.patch(scratch, "--reverse").returncode == 0
        missed += found == m.is_equivalent
        said = m.why if m.is_equivalent and not found else said[:400]
        print(f"{m.name}: {'found' if found else 'not found, and equivalent' if m.is_equivalent else 'NOT FOUND'} by {m.detector}: {said}", flush=True)
    print(f"{len(mutations) - missed} of {len(mutations)} mutations are found, or are equivalent and are not")
    return missed == 0


def main():
    done = find(sys.argv[2:]) if sys.argv[1:2] == ["--find"] else check()
    sys.exit(not done)


if __name__ == "__main__":
    main()
