"""A disk that a test can fill."""
import contextlib
import os

import children


class SmallDisk:
    """A disk of this size ("4m") at the folder, which is there, as long as the block. Only root may mount one."""

    def __init__(self, folder, size):
        self.folder, self.size = str(folder), size
        self.filler = os.path.join(self.folder, "filler")

    def __enter__(self):
        children.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.folder], check=True)
        return self

    def __exit__(self, *_):
        children.run(["umount", "--lazy", self.folder], check=True)

    def fill(self):
        with open(self.filler, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    def make_room(self):
        os.remove(self.filler)
