#!/usr/bin/env python3
"""Makes docs/session.svg: a chat with a fork, as a terminal showed it. A parleyd of its own serves the model, `parley chat` runs at a
pseudo-terminal, and what it wrote is drawn. At temperature 0 the words are the same each time; ids, times and the port are not.

usage: docs/make_session.py [--check] [BUILD_DIR [MODEL.gguf]]
  --check  draws nothing: says whether a session now has the words of the picture (exit 1: it has not)
"""
import fcntl
import html
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PICTURE = os.path.join(ROOT, "docs/session.svg")
PATIENCE_S = 120
COLUMNS = 120
PROMPT = b"\x1b[?2004h> "
COMMAND = "parley chat --temperature 0"
FIRST = ["What is the capital of Germany?", "/fork", "And of Italy?", "/quit"]
SECOND = ["And of France?", "/quit"]
VARIES = [(r"\b[0-9a-f]{32}\b", "ID"), (r"127\.0\.0\.1:\d+", "ADDRESS"), (r"[\d.]+ s to the first token · [\d.]+ tokens/s", "TIMES")]


class Chat:
    """A command at a pseudo-terminal; `raw` is all that it wrote."""

    def __init__(self, build, address, arguments):
        self.raw = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
            environment = {**os.environ, "PARLEY_SERVER": address, "TERM": "xterm-256color"}
            os.execve(os.path.join(build, "parley"), arguments, environment)

    def read_until(self, end):
        """Reads more until the end stands last, or with None until it is closed."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if not select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                raise SystemExit(f"nothing more came after {self.raw[-200:]!r}")
            try:
                more = os.read(self.terminal, 65536)
            except OSError:  # the other side is closed
                more = b""
            self.raw += more
            if end is not None and self.raw.endswith(end):
                return
            if not more:
                if end is not None:
                    raise SystemExit(f"it ended early: {self.raw!r}")
                return

    def type(self, lines):
        for line in lines:
            self.read_until(PROMPT)
            os.write(self.terminal, line.encode() + b"\r")
        self.read_until(None)
        if os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) != 0:
            raise SystemExit(f"parley failed: {self.raw!r}")


def lines_of(raw):
    """What the terminal shows: lines of pieces (class, text). Escapes that this does not know are an error, not left out."""
    lines, is_dim = [], False
    for line in raw.decode().replace("\r\n", "\n").split("\n"):
        pieces = []
        for piece in re.split(r"(\x1b\[[0-9;?]*[a-zA-Z])", line):
            if piece in ("\x1b[2m", "\x1b[0m"):
                is_dim = piece == "\x1b[2m"
            elif piece in ("\x1b[?2004h", "\x1b[?2004l", ""):
                pass
            elif "\x1b" in piece or "\r" in piece:
                raise SystemExit(f"a sequence that is not drawn: {piece!r}")
            else:
                pieces.append(("dim" if is_dim else "typed" if piece.startswith("> ") else "shown", piece))
        lines.append(pieces)
    while lines and not lines[-1]:
        lines.pop()
    return [part for line in lines for part in wrapped(line)]


def wrapped(line):
    """A line of one piece, broken where the window ends, as a terminal does."""
    if len(line) != 1:
        return [line]
    kind, text = line[0]
    return [[(kind, text[at : at + COLUMNS])] for at in range(0, len(text), COLUMNS)]


def session(build, model):
    """The lines of two chats: one that forks, and one that goes on with the conversation that was forked."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["setpriv", "--pdeathsig", "KILL", "--", os.path.join(build, "parleyd"), "--model", f"smollm2={model}",
                   "--listen", "127.0.0.1:0", "--kv-bytes", "64M", "--log-level", "error"]
        daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)
        try:
            ready = next((line for line in daemon.stderr if line.startswith("ready ")), "")
            address = re.search(r"grpc=(\S+)", ready)
            if address is None:
                raise SystemExit("parleyd did not start")
            shown = []
            for lines in FIRST, SECOND:
                command = COMMAND
                if lines is SECOND:
                    forked = re.search(rb"and ([0-9a-f]{32}) is unchanged", chat.raw)
                    command += f" --conversation {forked[1].decode()}"
                chat = Chat(build, address[1], shlex.split(command))
                chat.type(lines)
                shown += [[("dim", "$ "), ("command", command)], *lines_of(chat.raw), []]
            return shown[:-1]
        finally:
            daemon.terminate()
            daemon.wait(timeout=PATIENCE_S)
            daemon.stderr.close()


def drawn(lines):
    step, left, top, advance = 18, 18, 56, 7.3
    width, height = round(2 * left + COLUMNS * advance), top + step * len(lines) + 6
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
           "<title>A chat with a fork, in a terminal</title>",
           "<!-- made by docs/make_session.py from a real session -->",
           "<style>text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #d7dce2; "
           "white-space: pre } .dim { fill: #7f8a97 } .typed { fill: #8fd0ff } .command { fill: #ffffff; font-weight: bold }</style>",
           f'<rect width="{width}" height="{height}" rx="8" fill="#16191d"/>']
    out += [f'<circle cx="{22 + 20 * i}" cy="20" r="6" fill="{colour}"/>' for i, colour in enumerate(("#ec6a5e", "#f4bf4f", "#61c554"))]
    for i, line in enumerate(lines):
        pieces = "".join(f'<tspan class="{kind}">{html.escape(text, quote=False)}</tspan>' for kind, text in line)
        out.append(f'<text x="{left}" y="{top + step * i}" xml:space="preserve">{pieces}</text>')
    return "\n".join([*out, "</svg>", ""])


def words_of(picture):
    """Its text without what no two runs share."""
    text = "\n".join(html.unescape(re.sub(r"<[^>]*>", "", line)) for line in picture.splitlines() if line.startswith("<text "))
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return text


def main():
    arguments = sys.argv[1:]
    is_check = arguments[:1] == ["--check"]
    arguments = arguments[is_check:]
    if len(arguments) > 2 or any(word.startswith("-") for word in arguments):
        raise SystemExit(__doc__.strip())
    build = os.path.abspath(arguments[0] if arguments else os.path.join(ROOT, "build/release"))
    model = os.path.abspath(arguments[1] if len(arguments) > 1 else os.path.join(ROOT, "build/model/SmolLM2-135M-Instruct.Q4_1.gguf"))
    picture = drawn(session(build, model))
    if not is_check:
        with open(PICTURE, "w", encoding="utf-8") as file:
            file.write(picture)
        return
    with open(PICTURE, encoding="utf-8") as file:
        before = file.read()
    if words_of(before) != words_of(picture):
        raise SystemExit(f"the picture says\n{words_of(before)}\n\nand a session now\n{words_of(picture)}\n\ndocs/make_session.py draws it anew")


if __name__ == "__main__":
    main()
