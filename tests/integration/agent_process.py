"""A process of agent_worker.py, as tests attach it."""
import os
import subprocess
import sys
import threading

import children
from children import until

HERE = os.path.dirname(os.path.abspath(__file__))


class Worker:
    """A process of agent_worker.py; `said` is what it printed."""

    def __init__(self, client, name="words", **options):
        given = [f"{k}={v}" for k, v in {"address": client.address, "name": name, **options}.items()]
        self.process = children.start([sys.executable, os.path.join(HERE, "agent_worker.py"), *given], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.said = []
        threading.Thread(target=self.listen, daemon=True).start()
        until(f"{name} is attached", lambda: "accepted" in self.said, self.process)

    def listen(self):
        for line in self.process.stdout:
            self.said.append(line.strip())

    def has(self, what):
        return [line for line in self.said if line.split()[0] == what]

    def go(self):
        """Lets a step that holds go on."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()
