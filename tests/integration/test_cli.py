#!/usr/bin/env python3
"""The parley command as people and scripts use it: over pipes, at a terminal, against parleyd, and without one.

usage: test_cli.py PARLEY PARLEYD WRITE_TINY_MODEL GOLDEN_DIR [MODEL.gguf]      (any python3; no packages)
"""
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

import cable
import children
from children import PATIENCE


class Parleyd(children.Daemon):
    """with Parleyd(path, flags…) as address."""

    def __enter__(self):
        return super().__enter__().address


class Cli:
    """Runs the command; server is where it is to go."""

    def __init__(self, path, server="127.0.0.1:1"):
        self.path = path
        self.environment = {k: v for k, v in os.environ.items() if k not in ("PARLEY_MODEL", "NO_COLOR")}
        self.environment.update(PARLEY_SERVER=server, TERM="xterm", LC_ALL="C")

    def run(self, *args, stdin="", code=0, **more):
        result = children.run([self.path, *args], input=stdin, capture_output=True, text=True, env=self.environment, timeout=4 * PATIENCE, **more)
        assert result.returncode == code, f"{args}: ended with {result.returncode}, wanted {code}\n{result.stdout}{result.stderr}"
        return result

    def out(self, *args, **more):
        return self.run(*args, **more).stdout

    def lines(self, *args, **more):
        """The JSON objects that it prints."""
        return [json.loads(line) for line in self.out(*args, **more).split("\n")[:-1]]

    def complaint(self, *args, code, **more):
        """The one line that it complains with."""
        result = self.run(*args, code=code, **more)
        assert result.stderr.startswith("parley: ") and result.stderr.count("\n") == 1, result.stderr
        return result.stderr


class Terminal:
    """The command at a terminal. What it shows is kept as text, without the escapes that move and colour."""

    escapes = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>()].?")

    def __init__(self, cli, *args, columns=0):
        self.master, slave = pty.openpty()
        if columns > 0:
            termios.tcsetwinsize(slave, (24, columns))
        self.before = termios.tcgetattr(self.master)

        # Programs make it the process's terminal: to run Python between fork and exec would abort at times where gRPC has threads. A shell's
        # background jobs ignore some of the signals.
        at_it = ["setsid", "--ctty", "env", "--default-signal=INT,QUIT,HUP", cli.path, *args]
        self.process = children.start(at_it, stdin=slave, stdout=slave, stderr=slave, env=cli.environment)
        os.close(slave)
        self.raw, self.shown, self.seen = b"", "", 0

    def is_ready(self, seconds):
        return len(select.select([self.master], [], [], max(0, seconds))[0]) > 0

    def read(self):
        try:
            more = os.read(self.master, 65536)
        except OSError:  # the other side is closed
            more = b""
        self.raw += more
        self.shown = self.escapes.sub("", self.raw.decode(errors="replace")).replace("\r", "")
        return len(more) > 0

    def expect(self, pattern):
        """Waits until the pattern is shown, after what was expected before."""
        end = time.monotonic() + PATIENCE
        while (found := re.compile(pattern).search(self.shown, self.seen)) is None:
            if not self.is_ready(end - time.monotonic()) or not self.read():
                raise AssertionError(f"{pattern!r} was not shown after {self.shown[: self.seen]!r}, but {self.shown[self.seen :]!r}")
        self.seen = found.end()
        return found

    def type(self, text):
        os.write(self.master, text.encode())

    def end(self, code=0):
        while self.is_ready(PATIENCE) and self.read():
            pass
        status = self.process.wait(timeout=PATIENCE)
        assert status == code, f"ended with {status}: {self.shown!r}"
        os.close(self.master)
        return self.shown


def helps(cli):
    assert "did you mean 'chat'?" in cli.complaint("chta", code=2)
    verbs = re.findall(r"^  ([\w-]+)  ", cli.out("--help"), re.M)
    assert set(verbs) >= {"chat", "ask", "models", "conversations", "status", "tokenize", "detokenize", "eval", "selftest"}, verbs
    for verb in verbs:
        text = cli.out(verb, "--help")
        assert text.startswith(f"usage: parley {verb} ") and "--help" in text, text
        assert max(map(len, text.splitlines())) <= 100, verb
        columns = {len(option) for option in re.findall(r"^(  --.*?  +)\S", text, re.M)}
        assert columns == {30}, (verb, columns)  # where the options' help begins
    assert cli.out("ask", "--help") == cli.out("help", "ask") and cli.out("help", "help") == cli.out("--help")
    assert cli.out("help") == cli.out("--help") and max(map(len, cli.out("help").splitlines())) <= 100
    assert re.fullmatch(r"parley \d+\.\d+\.\d+\n", cli.out("--version")) and cli.out("version") == cli.out("--version")


def wrong_commands(cli):
    """A wrong command is refused before a server is asked, by a sentence that says what to do."""
    for words, code, said in [
        (["conversations", "sho", "x"], 2, "there is no command 'sho', did you mean 'show'?"),
        (["conversations", "zzzzz"], 2, "it must be one of [list | show ID"),
        (["conversations", "show"], 2, "show takes ID"),
        (["conversations", "list", "extra"], 2, "list takes no argument"),
        (["conversations", "rewind", "x", "y"], 2, "rewind needs the number of the last turn to keep, 'y' is not one"),
        (["conversations", "cancel", "x", "0"], 2, "cancel needs the number of a turn, '0' is not one"),
        (["status", "--key-file", "/"], 1, "/: Is a directory"),
        (["bench", "parley://127.0.0.1:1", "--rate", "-5"], 2, "--rate is -5, it must be 0 or above"),
        (["ask"], 2, "TEXT… is missing; 'parley ask TEXT… [OPTION]…'"),
        (["policy", "new"], 2, "FILE is missing"),
        (["models", "rm"], 2, "'rm' needs the NAME of a model"),
        (["models", "list"], 2, "'list' needs one DIR"),
        (["models", "lists"], 2, "there is no command 'lists', it must be 'list DIR' or 'rm NAME'"),
        (["keys", "new"], 2, "--principal NAME is missing: whom the key is for"),
        (["keys", "old"], 2, "there is no command 'old', the only one is 'new'"),
        (["status", "--wait", "-1"], 2, "--wait is -1, it must be 0 or above"),
        (["keys", "new", "--principal", ""], 2, "--principal must have 1 to 64 letters, digits, '.', '_', '@' and '-', not ''"),
        (["verify", "/nowhere/x.json"], 2, "/nowhere/x.json: No such file or directory"),
        (["verify", "nowhere.json"], 2, "nowhere.json: No such file or directory"),
        (["status", "--ca", "/proc/self/comm"], 1, "/proc/self/comm has no certificate in PEM"),
        (["inspect", "/"], 1, "a model is a .gguf file, or a folder with config.json"),
        (["place", os.devnull], 1, "line 1: not the JSON of a problem"),
        (["serve"], 2, "there is no verb 'serve'; 'parleyd FILE.gguf' serves a model"),
        (["chat", "-ngl", "99"], 2, "there is no option '-ngl'"),
        (["chat", "-m", "x"], 2, "there is no option '-m', did you mean '--model'?"),
        (["ask", "x", "--seed", "-1"], 2, "--seed must be a whole number of 0 or above, not '-1'"),
        (["ask", "x", "\u2013temperature", "0"], 2, "'\u2013temperature' begins with a dash that is not '-'"),
    ]:
        complaint = cli.complaint(*words, code=code)
        assert said in complaint, (words, complaint)
    for words, said in ("version >&-", "cannot write to stdout: Bad file descriptor"), ("place <&-", "line 1: not the JSON"):
        done = children.run(["sh", "-c", f"exec {cli.path} {words}"], env=cli.environment, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and said in done.stderr, (words, done)


def interactive(cli):
    """A person talks with an agent in a world, at a terminal."""
    terminal = Terminal(cli, "interactive", "-m", "repeat_query")
    terminal.expect(r"\[DONE\] ends the conversation")
    for said in "hello there", "and now?":
        terminal.type(said + "\r")
        terminal.expect(r"\[RepeatQueryAgent\]: " + re.escape(said))
    terminal.type("[DONE]\r")
    terminal.expect(r"\[a new conversation begins\]")
    terminal.type("again\r")
    terminal.expect(r"\[RepeatQueryAgent\]: again")
    terminal.type("\x04")
    terminal.end()


def wrong_use(cli):
    for args, word in [
        (["frob"], "'frob'"),
        (["ask"], "TEXT"),
        (["help", "frob"], "'frob'"),
        (["ask", "--frob", "a"], "'--frob'"),
        (["ask", "a", "--temperature", "warm"], "--temperature"),
        (["ask", "a", "--seed"], "--seed"),
        (["ask", "a", "--logprobs", "21"], "20"),
        (["ask", "a", "--temperature", "-1"], "--temperature is -1, it must be 0 or above"),
        (["ask", "a", "--temperature", "1e39"], "it must be 0 or above"),
        (["ask", "a", "--top-p", "1.5"], "--top-p is 1.5, it must be from 0 to 1"),
        (["chat", "--presence-penalty", "-3"], "--presence-penalty is -3, it must be from -2 to 2"),
        (["chat", "--repetition-penalty", "0"], "it must be above 0"),
        (["rerun", "--min-p", "2"], "--min-p is 2, it must be from 0 to 1"),
        (["chat", "--json", "--room", "x"], "--json"),
        (["conversations", "show", "x", "--format", "pdf"], "text, markdown or html, not 'pdf'"),
        (["conversations", "list", "--format", "html"], "--format is for show"),
        (["chat", "--conversation", "x", "--system", "y"], "--conversation"),
        (["conversations", "frob"], "'frob'"),
        (["conversations", "show"], "takes ID"),
        (["conversations", "rewind", "x", "-1"], "'-1'"),
        (["eval"], "--golden"),
        (["models", "extra"], "'extra'"),
    ][:: children.STRIDE]:
        line = cli.complaint(*args, code=2)
        assert word in line, line


def unreachable(cli):
    for args in (["ask", "hello"], ["models"], ["status"], ["conversations"], []):
        line = cli.complaint(*args, "--wait", "0.1", code=1, stdin="hello\n")
        assert "127.0.0.1:1" in line and "--server" in line, line
        assert f"'{os.path.dirname(os.path.realpath(cli.path))}/parleyd FILE.gguf' starts a server" in line, line
    terminal = Terminal(cli, "ask", "hello", "--wait", "3600")
    terminal.expect("waiting: nothing listens")
    terminal.type("\x03")
    assert float(terminal.expect(r"\(waited ([\d.]+) s;")[1]) < 1000, terminal.shown
    terminal.end(code=1)
    narrow = Terminal(cli, "ask", "hello", "--wait", "3600", columns=30)  # one row is written over again
    for _ in range(2):
        narrow.expect("waiting: nothing listens at 1")
    narrow.type("\x03")
    narrow.end(code=1)
    rows = re.findall(rb"waiting: [^\x1b\r\n]*", narrow.raw)
    assert {len(row) for row in rows} == {29}, rows
    line = cli.complaint("--server", "unix:/nowhere/at/all", "--wait=0", "status", code=1)
    assert "unix:/nowhere/at/all" in line, line


def unwritable(cli):
    with open("/dev/full", "w") as full:
        result = children.run([cli.path, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, env=cli.environment)
    assert result.returncode == 1 and "No space left" in result.stderr, result


def tokens(cli, tiny, golden, model):
    with open(os.path.join(golden, "tokens.jsonl")) as file:
        known = [json.loads(line) for line in file]
    texts = "".join(json.dumps({"text": line["text"]}) + "\n" for line in known)
    for path in filter(None, [tiny, model]):
        ids = cli.out("tokenize", "--model", path, stdin=texts)
        back = cli.lines("detokenize", "--model", path, stdin=ids)
        assert back == [{"text": line["text"]} for line in known]
        assert path == tiny or [json.loads(line) for line in ids.split("\n")[:-1]] == [{"ids": line["ids"]} for line in known]
    assert cli.lines("tokenize", "--model", tiny, stdin='{"text":"<|im_start|>","parse_special":true}\n') == [{"ids": [1]}]
    assert cli.lines("detokenize", "--model", tiny, stdin='{"ids":[1,203]}\n') == [{"text": "<|im_start|>\ufffd"}]
    for verb, bad in [
        ("tokenize", "frob"), ("tokenize", "[]"), ("tokenize", '{"text":1}'), ("tokenize", '{"text":"a"} x'),
        ("detokenize", '{"ids":[1000000]}'), ("detokenize", '{"ids":[-1]}'), ("detokenize", '{"ids":["a"]}'), ("detokenize", '{"text":"a"}'),
    ][:: children.STRIDE]:
        good = '{"text":"a","ids":[5]}\n'
        line = cli.complaint(verb, "--model", tiny, stdin=good + bad + "\n" + good, code=1)
        assert "line 2" in line, line
    line = cli.complaint("tokenize", "--model", "/nowhere.gguf", code=1)
    assert line == "parley: /nowhere.gguf: No such file or directory\n", line
    line = cli.complaint("tokenize", "--model", "/dev/null", code=1)
    assert "/dev/null" in line, line


def inspect(cli, tiny):
    """What a file holds, in full and as a folder's list; a file that does not load says why, and the others are listed."""
    (whole,) = cli.lines("inspect", tiny, "--json")
    assert whole["architecture"] == "llama" and whole["layers"] == 2 and whole["context"] == 2048 and whole["loads"] and whole["why"] is None
    assert whole["types"] == [{"type": "F32", "tensors": 20, "parameters": whole["parameters"], "bytes": whole["weight_bytes"]}], whole["types"]
    assert whole["weight_bytes"] == 4 * whole["parameters"] < whole["size_bytes"] == os.path.getsize(tiny)
    # two layers of two heads for keys and two for values, 64 numbers each with an f32 beside them
    assert whole["kv_bytes_per_token"] == {"f16": 8 * 132, "f32": 8 * 260, "q8": 8 * 68}
    assert whole["memory_bytes"] == whole["weight_bytes"] + 2048 * 8 * 132
    assert whole["template"] == "chatml" and whole["template_text"].startswith("{% for message in messages %}")
    shown = cli.out("inspect", tiny)
    assert re.search(r"^template +chatml$", shown, re.M) and "loads here    yes" in shown and "20 tensors" in shown, shown
    assert "No such file" in cli.complaint("inspect", "/nowhere.gguf", code=1)
    with tempfile.TemporaryDirectory() as folder:
        pole = os.path.join(folder, "pole.gguf")
        cli.out("policy", "new", pole, "--observations", "4", "--actions", "2")
        assert re.search(r"^kind +policy\n(.*\n)*loads here    yes$", cli.out("inspect", pole), re.M)
        os.remove(pole)
        os.symlink(tiny, os.path.join(folder, "a.gguf"))
        with open(tiny, "rb") as file, open(os.path.join(folder, "b.gguf"), "wb") as cut:
            cut.write(file.read(100000))
        open(os.path.join(folder, "c.txt"), "w").close()
        good, bad = cli.lines("models", "list", folder, "--json")
        assert good["loads"] and good["file"].endswith("/a.gguf") and good["parameters"] == whole["parameters"]
        assert not bad["loads"] and "truncated" in bad["why"]
        assert re.search(r"^NAME .*\na +llama .* yes *\nb +- .* no: .*truncated", cli.out("models", "list", folder)), cli.out("models", "list", folder)
        assert "No such file" in cli.complaint("models", "list", folder + "/none", code=1)
    assert "list DIR" in cli.complaint("models", "lists", code=2)
    what_does_not_load(cli, tiny)


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 1\n"


def what_does_not_load(cli, tiny):
    """For each model that does not load, inspect says which part of it is at fault, and what to do."""
    with open(tiny, "rb") as file:
        good = file.read()
    config, tokens = json.dumps({"model_type": "llama"}), json.dumps({"model": {"type": "BPE"}})
    with tempfile.TemporaryDirectory() as folder:
        for name, was, now, part, advice in [
            ("architecture.gguf", b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0blama", "config", "docs/serving.md lists the architectures"),
            ("key.gguf", b"llama.block_count", b"llama.block_sount", "config", "fetch the model again"),
            ("clip.gguf", b"\5\0\0\0\0\0\0\0llama", b"\4\0\0\0\0\0\0\0clip", "config", "take a model that runs here"),
            ("words.gguf", b"\4\0\0\0\0\0\0\0gpt2", b"\4\0\0\0\0\0\0\0gptX", "tokenizer", "another model"),
        ]:
            path = os.path.join(folder, name)
            assert was in good, name
            with open(path, "wb") as file:
                file.write(good.replace(was, now, 1) + bytes(64))
            (said,) = cli.lines("inspect", path, "--json")
            assert not said["loads"] and said["fault"] == part and advice in said["advice"], (name, said["why"], said["fault"], said["advice"])
            shown = cli.out("inspect", path)
            assert re.search(rf"^loads here    no: .*\nthe fault     its {part}; .*{advice}", shown, re.M), name
            assert re.search("^template      not tried, since the model does not load$", shown, re.M), shown
        for name, text, part, advice in [("cut.gguf", good[:5000], "weights", "fetch the file again"), ("text.gguf", b"no model", "weights", "or no model's"), ("page.gguf", b"<!DOCTYPE html>", "weights", "a web page"),
                                         ("pointer.gguf", POINTER.encode(), "weights", "'git lfs pull' fetches the file"), ("a.pt", b"PK\3\4", "weights", "PyTorch"),
                                         ("manifest", b'{"schemaVersion": 2}', "weights", "ollama:NAME"), ("a.onnx", b"\x08\x07\x12\x07pytorch", "weights", "ONNX"),
                                         ("b.gguf", struct.pack("<Q", 2) + b'{"a', "weights", "give the folder")]:
            with open(os.path.join(folder, name), "wb") as file:
                file.write(text)
            line = cli.complaint("inspect", os.path.join(folder, name), code=1)
            assert f"the fault is its {part}: " in line and advice in line, line
        for name, files, part, advice in [
            ("a", {"config.json": '{"model_type": "frob"}', "tokenizer.json": tokens}, "config", "docs/serving.md lists"),
            ("b", {"config.json": "{", "tokenizer.json": tokens}, "config", "fetch the model again"),
            ("c", {"config.json": config}, "tokenizer", "with its tokenizer again"),
            ("d", {"config.json": config, "tokenizer.json": "[]"}, "tokenizer", "with its tokenizer again"),
            ("e", {"config.json": config, "tokenizer.json": POINTER}, "tokenizer", "'git lfs pull' fetches the file"),
        ]:
            path = os.path.join(folder, name)
            os.mkdir(path)
            for file_name, text in files.items():
                with open(os.path.join(path, file_name), "w") as file:
                    file.write(text)
            line = cli.complaint("inspect", path, code=1)
            assert f"the fault is its {part}: " in line and advice in line, line
        os.remove(os.path.join(path, "config.json"))
        before = "tokenizer.json"
        for name, said in ("adapter_config.json", "an adapter (LoRA)"), ("model_index.json", "which makes images"):
            os.rename(os.path.join(path, before), os.path.join(path, name))
            assert said in cli.complaint("inspect", path, code=1)
            before = name


def place(cli):
    """Models on devices, from a file or a pipe; every mistake is named."""
    models = [{"name": "actor", "bytes": 4e6}, {"name": "critic", "bytes": 4e6}]
    asked = {"models": models, "devices": [{"name": name, "bytes": 6e6} for name in ("left", "right")]}
    (apart,) = cli.lines("place", stdin=json.dumps(asked))
    assert sorted(apart["placement"].values()) == ["left", "right"] and apart["exact"] and apart["cost"] == 0, apart
    assert [d["free"] for d in apart["devices"]] == [2e6, 2e6]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "host.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**asked, "devices": [{"name": "gpu", "bytes": 4e6}, {"name": "host", "kind": "cpu", "bytes": 1e9}]}, file)
        (spilt,) = cli.lines("place", path)
        assert sorted(spilt["placement"].values()) == ["gpu", "host"] and spilt["load_cost"] == 0.5, spilt
    for wrong, said in (({"models": []}, "models is not a list of 1 to 64 objects"), ({"models": models * 2}, "models[2] has the name of models[0]"),
                        ({"models": [{"name": "a"}]}, "models[0] has no bytes"), ({"modles": 1}, 'there is no field "modles"'),
                        ({"devices": [{"name": "a", "bytes": -1}]}, "devices[0].bytes must be 0 or a number"), ({"load_weight": "x"}, "load_weight must be 0 or a number"),
                        ({"models": [{"name": "a", "bytes": 1e101}]}, "models[0].bytes must be 0 or a number from 1e-100 to 1e100"),
                        ({"connections": [{"between": ["actor", "critic"], "weight": 1e-200}], "distances": [{"between": ["left", "right"], "distance": 1e-200}]},
                         "connections[0].weight must be 0 or a number"),
                        ({"models": [{"name": "a", "bytes": 1, "complexty": 2}]}, 'models[0] has no field "complexty"'),
                        ({"devices": [{"name": "a", "bytes": 1, "sped": 2}]}, 'devices[0] has no field "sped"'),
                        ({"distances": [{"between": ["left", "right"], "distance": 1, "weight": 1}]}, 'distances[0] has no field "weight"'),
                        ({"devices": [{"name": "a", "bytes": 1, "kind": "tpu"}]}, 'must be "cpu" or "gpu"'),
                        ({"connections": [{"between": ["actor", "none"], "weight": 1}]}, "connections[0].between does not name two"),
                        ({"models": [{"name": "a", "bytes": 7e6}]}, "the models do not fit: they need 7000000 bytes, and the devices have 12000000 (2 devices)")):
        assert said in cli.complaint("place", stdin=json.dumps({**asked, **wrong}), code=1), said
    largest = {"models": [{**m, "bytes": 1e100} for m in models], "devices": [{"name": name, "bytes": 1e100, "speed": 1e-100} for name in ("left", "right")],
               "connections": [{"between": ["actor", "critic"], "weight": 1e100}], "distances": [{"between": ["left", "right"], "distance": 1e-100}]}
    (apart,) = cli.lines("place", stdin=json.dumps(largest))
    assert sorted(apart["placement"].values()) == ["left", "right"] and apart["connection_cost"] == 1 and apart["load_cost"] == 0, apart
    models.append({"name": "third", "bytes": 1e6})
    both_ways = [{"between": ["actor", "critic"], "weight": 3}, {"between": ["critic", "actor"], "weight": 1}, {"between": ["critic", "third"], "weight": 1}]
    (added,) = cli.lines("place", stdin=json.dumps({**asked, "connections": both_ways}))
    assert added["connection_cost"] == 0.8, added
    assert "standard input, line 1: " in cli.complaint("place", stdin="{", code=1)
    assert "No such file" in cli.complaint("place", "/nowhere.json", code=1)


def selftest(cli, tiny):
    rows = cli.lines("selftest", "--backend", "ref", "--json")
    operators = [row for row in rows if row["part"] == "operators"]
    assert {row["operator"] for row in operators} == {
        "matmul", "embed", "norm", "rope", "attend", "attend long", "ffn", "gather",
        "linear", "linear_backward", "lstm", "lstm_backward", "softmax", "adamw", "draw",
    }
    assert all(row["holds"] and row["max_error"] == 0 for row in operators), "ref against itself"
    assert any("left_out" in row for row in rows if row["part"] == "model")
    assert "ok" in cli.out("selftest")
    rows = cli.lines("selftest", "--model", tiny, "--context", "20", "--seconds", "0.001", "--json")
    verdicts = [row for row in rows if row["part"] == "invariance" and row["of"] == "model"]
    assert len(verdicts) == 5 and all(row["holds"] for row in verdicts), verdicts
    figures = {(row["what"], row["batch"]): row for row in rows if row["part"] == "figures"}
    assert set(figures) == {("copy", 0), ("reply", 1), ("reply", 8), ("reply", 64), ("reply", 256), ("prompt", 0)}
    assert all(row["value"] > 0 for row in figures.values()) and figures["reply", 1]["of_the_roof"] > 0
    assert "frob" in cli.complaint("selftest", "--backend", "frob", code=1)


def evaluate(cli, golden, model):
    result = cli.run("eval", "--model", model, "--golden", golden, "--backend", "cpu", "--json")
    figures = json.loads(result.stdout)
    assert {k: set(v) for k, v in figures.items()} == {
        "tokens": {"n", "equal"}, "chats": {"n", "equal"}, "greedy": {"n", "equal"},
        "passages": {"n", "top1", "ppl_ratio", "max_abs_logprob_diff", "mean_abs_logprob_diff"},
    }
    assert figures["tokens"]["n"] == 44 and figures["tokens"]["equal"] == 44, figures
    assert "passages.jsonl" in result.stderr
    with tempfile.TemporaryDirectory() as other:  # a known answer that is wrong: a bound does not hold
        for name in ("chats", "greedy", "passages"):
            with open(os.path.join(golden, f"{name}.jsonl")) as whole, open(os.path.join(other, f"{name}.jsonl"), "w") as first:
                first.write(whole.readline())
        with open(os.path.join(other, "tokens.jsonl"), "w") as file:
            file.write('{"text":"Hello","ids":[1,2,3]}\n')
        assert "0 of 1 equal" in cli.out("eval", "--model", model, "--golden", other, code=3)
        os.unlink(os.path.join(other, "tokens.jsonl"))
        assert "tokens.jsonl" in cli.run("eval", "--model", model, "--golden", other, code=1).stderr


def pipe_chat(cli):
    assert cli.out("chat", "--model", "echo", stdin="hello\n\nwörld\r\nlast") == "hello\nwörld\nlast\n"
    assert cli.out("--model", "echo", stdin="chat is the default\n") == "chat is the default\n"
    assert cli.out("--model", "echo", stdin="/fork is no command on a pipe\n") == "/fork is no command on a pipe\n"
    assert cli.out("--model", "echo", stdin="") == ""
    result = cli.run("--model", "echo", stdin="bad \0 byte\nmore\n", code=1)
    assert result.stdout == "" and "NUL" in result.stderr
    line = cli.complaint("--model", "frob", stdin="hello\n", code=1)
    assert "frob" in line and "echo" in line, line
    said = cli.lines("chat", "--json", "--model", "echo", stdin="one\ntwo\n")
    assert [(line["reply"], line["model"], line["finish_reason"]) for line in said] == [("one", "echo", "stop"), ("two", "echo", "stop")], said
    assert cli.lines("conversations", "--json") == [], "each was closed"
    with open("/dev/full", "w") as full:
        result = children.run([cli.path, "--model", "echo"], input="a\nb\n", stdout=full, stderr=subprocess.PIPE, text=True, env=cli.environment)
    assert result.returncode == 1 and "No space left" in result.stderr, result


def ask(cli):
    assert cli.out("ask", "hello", "--model", "echo") == "hello\n"
    assert cli.out("ask", "-", "--model", "echo", stdin="two\nlines\n") == "two\nlines\n"
    assert cli.out("ask", "--model", "echo", "--", "--dash") == "--dash\n"
    assert cli.out("ask", "what", "is", "--model", "echo", "this") == "what is this\n", "words need no quotes"
    assert cli.out("ask", "Explain:", "--model", "echo", stdin="a\nb\n") == "Explain:\n\na\nb\n", "a pipe follows the question"
    with tempfile.TemporaryFile("w+") as file:
        file.write("of a file\n")
        file.seek(0)
        done = children.run([cli.path, "ask", "Explain", "--model", "echo"], stdin=file, capture_output=True, text=True, env=cli.environment)
    assert (done.returncode, done.stdout) == (0, "Explain\n\nof a file\n"), done
    assert "NUL" in cli.complaint("ask", "x", "--model", "echo", stdin="a\0b", code=1)
    [answer] = cli.lines("--json", "ask", "hello", "--model", "echo")
    assert answer["reply"] == "hello" and answer["finish_reason"] == "stop" and answer["model"] == "echo", answer
    assert set(answer["usage"]) == {"prompt_tokens", "cached_tokens", "completion_tokens"}
    assert set(answer["timings"]) == {"queue_us", "prefill_us", "decode_us", "total_us", "steps", "ttft_ms", "tok_s"}
    assert isinstance(answer["token_ids"], list) and "logprobs" not in answer
    line = cli.complaint("ask", "", "--model", "echo", code=1)
    assert "INVALID_ARGUMENT" in line, line
    assert cli.lines("conversations", "--json") == [], "each was closed"


def views(cli):
    models = {model["name"]: model for model in cli.lines("models", "--json")}
    assert models["echo"]["kind"] == "echo" and models["tiny"]["context"] == 2048 and models["tiny"]["state"] == "ready"
    assert re.search(r"^NAME .*\n(.*\n)*tiny", cli.out("models"), re.M)
    [status] = cli.lines("status", "--json")
    assert status["state"] == "serving" and {m["name"] for m in status["models"]} == {"echo", "tiny", "long"} and status["pid"] > 0
    assert "serving" in cli.out("status")


def conversations(cli):
    shown = Terminal(cli, "--model", "echo")
    for text in ("one", "two", "three"):
        shown.expect(r"> ")
        shown.type(f"{text}\r")
        shown.expect(rf"{text}\n+{text}\n")
    shown.expect(r"> ")
    shown.type("/quit\r")
    name = re.search(r"--conversation ([0-9a-f]{32})", shown.end()).group(1)
    [found] = cli.lines("conversations", "list", "--json")
    assert found["conversation"] == name and found["turns"] == 3 and found["model"] == "echo", found
    listed = cli.out("conversations")
    assert re.search(rf"^CONVERSATION .* AGE .* FIRST WORDS\n{name} .* \d+ s  +-  +one$", listed, re.M), listed
    [whole] = cli.lines("conversations", "show", name, "--json")
    assert [turn["reply"] for turn in whole["transcript"]] == ["one", "two", "three"]
    assert cli.lines("conversations", "show", name[:4], "--json")[0]["conversation"] == name, "the beginning of an id"
    assert "NOT_FOUND" in cli.complaint("conversations", "show", name[:3], code=1), "too short a beginning"
    unknown = "0" * 31 if name[0] != "0" else "1" * 31
    assert "NOT_FOUND" in cli.complaint("conversations", "show", unknown, code=1)
    assert "## user\n\ntwo\n\n## assistant\n\ntwo\n" in cli.out("conversations", "show", name, "--format", "markdown")
    page = cli.out("conversations", "show", name, "--format", "html")
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n") and "<pre>two</pre>" in page, page
    line = cli.complaint("conversations", "fork", name, "--at-turn", "7", code=1)
    assert line == "parley: the turn is 7, there are 3 complete turns [OUT_OF_RANGE]\n", line
    assert "user: two\n\nassistant: two\n" in cli.out("conversations", "show", name)
    assert cli.out("--conversation", name, stdin="four\n") == "four\n"
    child = cli.out("conversations", "fork", name, "--at-turn", "2").strip()
    assert len(child) == 32 and child != name
    [whole] = cli.lines("conversations", "show", child, "--json")
    assert whole["turns"] == 2 and whole["parent"] == name
    cli.out("conversations", "rewind", child, "1")
    [whole] = cli.lines("conversations", "show", child, "--json")
    assert [turn["reply"] for turn in whole["transcript"]] == ["one"]
    assert cli.lines("conversations", "cancel", name, "--json") == [{"conversation": name, "cancelled": 0}]
    cli.out("conversations", "cancel", name, "4")  # it is complete
    assert "OUT_OF_RANGE" in cli.complaint("conversations", "cancel", name, "5", code=1)
    assert "'x' is not one" in cli.complaint("conversations", "cancel", name, "x", code=2)
    assert [c["conversation"] for c in cli.lines("conversations", "--limit", "1", "--json")] == [child], "newest first"
    assert len(cli.lines("conversations", "--limit", "0", "--json")) == 2
    assert cli.lines("conversations", "--model", "tiny", "--json") == []
    many = "".join(f"line {n}\n" for n in range(1, 1203))  # more than a page
    cli.out("--conversation", child, stdin=many)
    [whole] = cli.lines("conversations", "show", child, "--json")
    assert [turn["reply"] for turn in whole["transcript"]] == ["one"] + many.splitlines() and not whole.get("next_page_token"), whole.get("next_page_token")
    cli.out("conversations", "close", name, child)
    line = cli.complaint("conversations", "show", name, code=1)
    assert "NOT_FOUND" in line, line
    line = cli.complaint("--conversation", name, stdin="hello\n", code=1)
    assert "NOT_FOUND" in line, line


def watch(cli):
    def start(*args):
        return children.start([cli.path, "conversations", "watch", *args], stdout=subprocess.PIPE, text=True, env=cli.environment)

    def until_synced(watcher):
        seen = []
        while not seen or seen[-1]["kind"] != "synced":
            seen.append(json.loads(watcher.stdout.readline()))
        return seen

    shown = Terminal(cli, "--model", "echo")
    shown.expect(r"> ")
    shown.type("one\r")
    shown.expect(r"one\n+one\n")
    shown.expect(r"> ")
    shown.type("/quit\r")
    name = re.search(r"--conversation ([0-9a-f]{32})", shown.end()).group(1)
    both, one, text = start("--json"), start(name, "--json"), start()
    assert [(e["kind"], e["state"]["conversation"]) for e in until_synced(both)[:-1]] == [("snapshot", name)]
    assert len(until_synced(one)) == 2
    while not select.select([text.stdout], [], [], 0)[0]:  # what came before the watch began is not seen
        assert text.poll() is None, "the watch has ended"
        cli.out("ask", "hello", "--model", "echo")
    assert re.match(r"\d\d:\d\d:\d\d (opened|closed) [0-9a-f]{32}", text.stdout.readline()), "events alone, for a person"
    first, last = (json.loads(both.stdout.readline()) for _ in range(2))
    assert (first["kind"], last["kind"]) == ("opened", "closed") and first["conversation"] == last["conversation"] != name
    cli.out("conversations", "close", name)
    assert json.loads(one.stdout.readline())["kind"] == "closed" and one.stdout.readline() == "" and one.wait(timeout=PATIENCE) == 0
    one.stdout.close()
    for watcher in both, text:
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(timeout=PATIENCE) == -signal.SIGINT
        watcher.stdout.close()


def commands_of_the_chat(cli, folder):
    shown = Terminal(cli, "--model", "echo")
    shown.expect(r"echo at .*/help")

    def say(text, reply):
        shown.expect(r"> ")
        shown.type(f"{text}\r")
        return shown.expect(reply)

    say("/branch 1", r"you are now in [0-9a-f]{32}, after turn 0")
    say("grüße, мир, 世界", r"grüße, мир, 世界\n+grüße, мир, 世界\n")
    shown.expect(r"\d\.\d\d s to the first token")
    say("second", r"second\n+second\n")
    say("/help", r"/rewind(.|\n)*Ctrl-C stops")
    say("/frob it", r"no command '/frob'")
    say("/retyr", r"did you mean '/retry'\?")
    say("/", r"no command '/'")
    text, lines = os.path.join(folder, "said.txt"), os.path.join(folder, "said.jsonl")
    say(f"/save {text}", r"saved 2 turns")
    say(f"/save {text}", r"exists already")
    say(f"/save {lines}", r"saved 2 turns")
    say("/save", r"needs a file")
    assert "assistant: second\n" in open(text).read()
    said = [json.loads(line) for line in open(lines)]
    assert said[0] == {"turn": 1, "role": "user", "text": "grüße, мир, 世界"} and said[3] == {"turn": 2, "role": "assistant", "text": "second"}, said
    say("/rewind", r"end of turn 1")
    say("third", r"third\n+third\n")
    say("/rewind 7", r"only 2 turns")
    say("/rewind x", r"'x' is not a number")
    child = say("/fork 1", r"forked after turn 1; you are now in ([0-9a-f]{32})").group(1)
    say("of the child", r"of the child\n+of the child\n")
    [whole] = cli.lines("conversations", "show", child, "--json")
    assert [turn["reply"] for turn in whole["transcript"]] == ["grüße, мир, 世界", "of the child"]
    say("/retry", r"of the child\n")  # the message again
    tree = say("/branch", r"  1  ([0-9a-f]{8})  2 turns, (?:\d+ min )?\d+ s ago: third\n\*  2  ([0-9a-f]{8})    2 turns, (?:\d+ min )?\d+ s ago: of the child\n")
    assert tree.group(2) == child[:8], tree.group(0)
    say("/branch 1", r"> grüße, мир, 世界\ngrüße, мир, 世界\n> third\nthird\nyou are now in [0-9a-f]{32}, after turn 2")
    say("/branch 9", r"NOT_FOUND")
    say(f"/load {child[:6]}", rf"you are now in {child}, after turn 2")
    say(f"/load {lines}", r"a new conversation with the 2 turns of .*said.jsonl")
    say("/show", r"conversation  [0-9a-f]{32}, 2 turns")
    say(f"/load {text}", r"said.txt, line 1: it is no JSON")
    say("/load no/such.jsonl", r"no/such.jsonl: No such file")
    say("/load", r"/load needs a file")
    hostile = os.path.join(folder, "hostile.jsonl")
    with open(hostile, "w") as f:
        for role in "user", "assistant":
            print(json.dumps({"turn": 1, "role": role, "text": "\x1b[31mred\a"}), file=f)
    say(f"/load {hostile}", r"a new conversation with the 1 turn of .*hostile.jsonl")
    say("/branch", "1  [0-9a-f]{8}  1 turn, .* ago: \ufffd\\[31mred\ufffd\n")
    say("/s\t", r"/s\nset  show  save  system\n")
    shown.type("\x15")
    say("/se\t\ttemp\t0.25", r"temperature  top-p  top-k(.|\n)*/set temperature 0.25\n")
    say("/model t\t", r"/model tiny ")
    shown.type("\x15")
    say(f"/load {child}", rf"you are now in {child}, after turn 2")
    say("/set temperature", r"temperature needs a value: T")
    say("/set temprature 1", r"did you mean 'temperature'\?")
    say("/set top-k much", r"--top-k must be a whole number, not 'much'")
    say("/set top-k 5", r"")
    say("/set top-p 7", r"--top-p is 7, it must be from 0 to 1")
    say("/show", rf"model +echo(.|\n)*{child}, 2 turns\n(.|\n)*temperature +0.25\ntop-k +5(.|\n)*seed +1\n")
    say("/model nobody", r"nobody(.|\n)*MODEL_NOT_FOUND|nobody")
    say("/model", r"echo; ")
    say("/model echo", r"a new conversation with echo")
    say("/retry", r"no message of yours")
    say("/clear", r"a new conversation")
    say("a", r"a\n+a\n")
    say("b", r"b\n+b\n")
    say("/rewind 2", r"back to the start")
    say("/system You are kind.", r"a new conversation")
    say("/system", r"needs the text")
    say("kindly", r"kindly\n+kindly\n")
    shown.expect(r"> ")
    shown.type("\x1b[A\x1b[A")  # up, twice, in the history
    shown.expect(r"/system$")
    shown.type("\x03")
    shown.expect(r"\^C\n> ")
    shown.type("\x04")
    new = re.findall(r"--conversation ([0-9a-f]{32})", shown.end())[-1]
    [whole] = cli.lines("conversations", "show", new, "--json")
    assert whole["system"] == "You are kind." and whole["turns"] == 1, whole
    everything = [c["conversation"] for c in cli.lines("conversations", "--limit", "0", "--json")]
    cli.out("conversations", "close", *everything)


def last_turns(cli):
    """A conversation that is continued shows where it stands: its last three turns."""
    shown = Terminal(cli, "--model", "echo")
    for text in "one", "two", "three", "four":
        shown.expect(r"> ")
        shown.type(f"{text}\r")
        shown.expect(rf"{text}\n+{text}\n")
    shown.expect(r"> ")
    shown.type("\x04")
    name = re.findall(r"--conversation ([0-9a-f]{32})", shown.end())[-1]
    shown = Terminal(cli, "--conversation", name[:8])
    shown.expect(r"^… 1 turn before\n> two\ntwo\n> three\nthree\n> four\nfour\necho at .*/help")
    shown.expect(r"> ")
    shown.type("\x04")
    shown.end()
    cli.out("conversations", "close", name)


def a_server_that_ends_with_the_chat(cli):
    """As ./run chat has it: nothing is said of going on, but what was left can be gone back to."""
    ends = Cli(cli.path)
    ends.environment |= {"PARLEY_SERVER": cli.environment["PARLEY_SERVER"], "PARLEY_SERVER_ENDS": "1"}
    shown = Terminal(ends, "--model", "echo")

    def say(text, reply):
        shown.expect(r"> ")
        shown.type(f"{text}\r")
        return shown.expect(reply)

    say("one", r"one\n+one\n")
    name = say("/show", r"conversation  ([0-9a-f]{32}), 1 turn").group(1)
    say("/clear", r"a new conversation")
    say(f"/load {name[:8]}", rf"> one\none\nyou are now in {name}, after turn 1")
    shown.expect(r"> ")
    shown.type("\x04")
    assert "goes on with it" not in shown.end()
    cli.out("conversations", "close", name)


def markdown(cli):
    """Words wrap and code has a colour where the terminal has colours; else the reply is shown as it is."""
    text = "one **two three** four `five six` seven eight"
    for more, reply in [
        ({}, b"one \x1b[0;1m**two three** \x1b[0mfour \x1b[0;36m`five\r\nsix` \x1b[0mseven eight\r\n"),
        ({"NO_COLOR": "1"}, text.encode() + b"\r\n"),
        ({"TERM": "dumb"}, text.encode() + b"\r\n"),
    ]:
        other = Cli(cli.path, cli.environment["PARLEY_SERVER"])
        other.environment.update(more)
        shown = Terminal(other, "--model", "echo", columns=30)
        shown.expect(r"> ")
        shown.type(text + "\r")
        shown.expect(r"seven eight\n(.|\n)*seven eight\n(.|\n)*> ")
        assert b"\n" + reply in shown.raw, (more, shown.raw)
        shown.type("/quit\r")
        shown.end()
    shown = Terminal(cli, "--model", "echo", columns=16)
    shown.expect(r"> ")
    shown.type("раз два три четыре пять\r")
    shown.expect("раз два три\nчетыре пять\n")
    shown.expect(r"> ")
    shown.type("/quit\r")
    name = re.findall(r"--conversation ([0-9a-f]{32})", shown.end())[-1]
    again = Terminal(cli, "--conversation", name, columns=16)
    again.expect("> раз два три четыре пять\nраз два три\nчетыре пять\n")
    again.expect(r"/help(.|\n)*> ")  # at the prompt Ctrl-D is a key; before it the terminal takes it
    again.type("\x04")
    again.end()
    cli.out("conversations", "close", *[c["conversation"] for c in cli.lines("conversations", "--json")])


def begin_reply(link, shown):
    """Lets no more of the answers come than shows some of the reply."""
    while not re.search(r"hello\n+\S", shown.shown):
        link.allow(100)
        if shown.is_ready(0.3):
            shown.read()


def a_link_that_is_cut(cli):
    """The chat says that it is reconnecting, and the reply goes on where it was: all of it is shown, once."""
    link = cable.Cable(cli.environment["PARLEY_SERVER"])
    shown = Terminal(Cli(cli.path, link.address), "--model", "tiny", "--ignore-eos", "--max-tokens", "200", "--seed", "1", "--wait", "60")
    shown.expect(r"> ")
    link.allow(0)
    shown.type("hello\r")
    shown.expect(r"hello\n")
    begin_reply(link, shown)
    link.hold()
    shown.expect(rf"reconnecting to {link.address} …")
    link.let_go()
    shown.expect(r"s to the first token · \d+\.\d tokens/s · 200 tokens")
    shown.expect(r"> ")
    shown.type("/quit\r")
    text = shown.end()
    name = re.findall(r"--conversation ([0-9a-f]{32})", text)[-1]
    [whole] = cli.lines("conversations", "show", name, "--json")
    reply = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "\ufffd", whole["transcript"][0]["reply"])
    seen = text[text.index("hello\n") + 6 : text.rindex("s to the first token")]
    seen = seen[: seen.rindex("\n")].replace(f"reconnecting to {link.address} …", "")
    assert re.sub(r"\s", "", seen) == re.sub(r"\s", "", reply), (seen, reply)
    cli.out("conversations", "close", name)


def ctrl_c_while_the_link_is_cut(cli):
    """It ends the turn and gives the prompt back, and /quit leaves, though no server answers."""
    link = cable.Cable(cli.environment["PARLEY_SERVER"])
    shown = Terminal(Cli(cli.path, link.address), "--model", "tiny", "--ignore-eos", "--max-tokens", "200", "--wait", "600")
    shown.expect(r"> ")
    link.allow(0)
    shown.type("hello\r")
    shown.expect(r"hello\n")
    begin_reply(link, shown)
    link.hold()
    shown.expect(rf"reconnecting to {link.address} …")
    shown.type("\x03")
    shown.expect(r"stopped\n> ")
    shown.type("/quit\r")
    shown.end()
    link.let_go()
    cli.out("conversations", "close", *[c["conversation"] for c in cli.lines("conversations", "--json")])


def ctrl_c_at_the_prompt(cli):
    shown = Terminal(cli, "--model", "echo")
    shown.expect(r"> ")
    shown.type("half a thou")
    shown.expect(r"half a thou")
    shown.type("\x03")
    shown.expect(r"\^C\n> ")
    shown.type("whole\r")
    shown.expect(r"whole\n+whole\n")
    shown.expect(r"> ")
    shown.type("\x03")
    shown.expect(r"Ctrl-C again leaves(.|\n)*> ")
    shown.type("\x03")
    shown.end()
    [left] = cli.lines("conversations", "--json")
    cli.out("conversations", "close", left["conversation"])
    quiet = Terminal(cli, "--model", "echo")
    quiet.expect(r"> ")
    quiet.type("\x04")
    quiet.end()
    assert cli.lines("conversations", "--json") == [], "one that nobody spoke in is closed"


def ctrl_c_stops_the_reply(cli):
    """The reply is long and slow; what came until the Ctrl-C counts, and the conversation goes on."""
    shown = Terminal(cli, "--model", "long", "--ignore-eos", "--max-tokens", "60000", "--seed", "1", "--temperature", "1")
    shown.expect(r"> ")
    shown.type("hello\r")
    shown.expect(r"hello\n+(.|\n)")
    shown.type("\x03")
    shown.expect(r"tokens/s · \d+ tokens · stopped\n> |stopped\n> ")
    shown.type("/rewind\r")
    shown.expect(r"back to the start\n> ")
    shown.type("/quit\r")
    shown.end()


def typing_ahead(cli):
    """What is typed during a reply is not shown in it, and comes at the next prompt."""
    shown = Terminal(cli, "--model", "tiny", "--ignore-eos", "--max-tokens", "200", "--seed", "1", "--stop", "typed")
    shown.expect(r"> ")
    shown.type("hello\r")
    shown.expect(r"hello\n+(.|\n)")
    shown.type("/frob typed\r/quit\r")
    shown.expect(r"> /frob typed\n.*no command '/frob'")
    assert shown.end().count("typed") == 1


PASTE_ON, PASTE_OFF = b"\x1b[?2004h", b"\x1b[?2004l"


def pasted(text):
    """As a terminal sends it."""
    return "\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~"


def what_echo_heard(cli, *typed):
    """What is typed at each prompt, the last being Enter's; the turns that came of it."""
    shown = Terminal(cli, "--model", "echo")
    for text in typed:
        shown.expect(r"> ")
        shown.type(text + "\r")
        shown.expect(r"s to the first token")
    shown.expect(r"> ")
    shown.type("\x04")
    name = re.findall(r"--conversation ([0-9a-f]{32})", shown.end())[-1]
    [whole] = cli.lines("conversations", "show", name, "--json")
    cli.out("conversations", "close", name)
    return [turn["reply"] for turn in whole["transcript"]]


def several_lines(cli):
    six = "def f(x):\n\tif x:\n\n        return 'grüße'\n    \\\n    return x"
    assert what_echo_heard(cli, pasted(six)) == [six]
    assert what_echo_heard(cli, pasted(six + "\n\n"), "next") == [six, "next"], "newlines at the end are dropped"
    assert what_echo_heard(cli, "see " + pasted("a\nb") + "\x01I " + "\x05!" + pasted("c\nd")) == ["I see a\nb!c\nd"], "pasted lines can be edited"
    assert what_echo_heard(cli, "\x1b[200~a\r\nb\nc\r\rd\x1b[201~") == ["a\nb\nc\n\nd"], "whatever newlines the terminal sends"
    assert what_echo_heard(cli, "one\\\rtwo\\\r\\\rfour") == ["one\ntwo\n\nfour"], "a backslash begins another line"
    assert what_echo_heard(cli, "a\\b\\ ", pasted("a\nb\\") + "\rc") == ["a\\b\\ ", "a\nb\nc"], "only at the end of a line, which may be a pasted one"
    assert what_echo_heard(cli, "one\x1b\rtwo\x1b\n" + pasted("three\nfour")) == ["one\ntwo\nthree\nfour"], "so does Alt-Enter"
    assert what_echo_heard(cli, pasted("\n".join(map(str, range(200))))) == ["\n".join(map(str, range(200)))], "more than fits the screen"
    assert what_echo_heard(cli, pasted("a\nb"), "c", "\x1b[A\x1b[A!") == ["a\nb", "c", "a\nb!"], "the history has it as one"
    assert what_echo_heard(cli, pasted("/usr/bin/x: no\nsuch file")) == ["/usr/bin/x: no\nsuch file"], "several lines are no command"


def the_keys_of_vi(cli, folder):
    """Escape is a key of its own there, so the terminal is not asked to begin sequences with it; a backslash works as ever."""
    settings = os.path.join(folder, "editrc")
    with open(settings, "w") as file:
        file.write("bind -v\n")
    other = Cli(cli.path, cli.environment["PARLEY_SERVER"])
    other.environment["EDITRC"] = settings
    shown = Terminal(other, "--model", "echo")
    shown.expect(r"> ")
    shown.type("one\\\rtwp\x1bxao\r")
    shown.expect(r"one\ntwo\n(.|\n)*> ")
    shown.type("\x04")
    text = shown.end()
    assert PASTE_ON not in shown.raw and PASTE_OFF not in shown.raw, shown.raw
    cli.out("conversations", "close", re.findall(r"--conversation ([0-9a-f]{32})", text)[-1])


def a_paste_is_only_text(cli):
    """Nothing in it acts: neither keys nor their sequences nor the beginning of another paste."""
    keys = "/quit\n\x1b[A\x1b[1;5D\x01\x0b\x15\x7f\x08\x04\t\x1b\n\x1b[200~\x1b[20\x1b[201\x1b!"
    assert what_echo_heard(cli, "before", pasted(keys)) == ["before", keys]


def lines_of_a_system_prompt(cli):
    shown = Terminal(cli, "--model", "echo")
    shown.expect(r"> ")
    shown.type(pasted("/system Be kind.\nBe brief.") + "\r")
    shown.expect(r"a new conversation(.|\n)*> ")
    shown.type("hello\r")
    shown.expect(r"hello\n+hello\n(.|\n)*> ")
    shown.type("\x04")
    name = re.findall(r"--conversation ([0-9a-f]{32})", shown.end())[-1]
    assert cli.lines("conversations", "show", name, "--json")[0]["system"] == "Be kind.\nBe brief."
    cli.out("conversations", "close", name)


def a_paste_that_is_too_long(cli):
    shown = Terminal(cli, "--model", "echo")
    shown.expect(r"> ")
    shown.type("\x1b[200~")
    for _ in range(1025):
        shown.type("x" * 1023 + "\r")
    shown.type("/quit\r\x1b[201~")
    shown.expect(r"more than 1048576 bytes\n> ")
    shown.type("whole\r")
    shown.expect(r"whole\n+whole\n(.|\n)*> ")
    shown.type("\x04")
    cli.out("conversations", "close", re.findall(r"--conversation ([0-9a-f]{32})", shown.end())[-1])


def a_paste_during_a_reply(cli):
    """It waits for the next prompt, and is one turn there."""
    shown = Terminal(cli, "--model", "tiny", "--ignore-eos", "--max-tokens", "200", "--seed", "1")
    shown.expect(r"> ")
    shown.type("hello\r")
    shown.expect(r"hello\n+(.|\n)")
    shown.type(pasted("one\ntwo") + "\r/rewind 2\r/quit\r")
    shown.expect(r"> one\ntwo\n(.|\n)*> /rewind 2\n.*back to the start\n> /quit\n")
    shown.end()


def the_terminal_is_left_as_it_was(cli):
    def begun(**more):
        other = Cli(cli.path, cli.environment["PARLEY_SERVER"])
        other.environment.update(more)
        shown = Terminal(other, "--model", "echo")
        shown.expect(r"> ")
        return shown

    def ended(shown, code=0):
        while shown.is_ready(PATIENCE) and shown.read():
            pass
        assert shown.before == termios.tcgetattr(shown.master) and shown.raw.count(PASTE_ON) > 0, shown.raw
        assert shown.raw.rindex(PASTE_OFF) > shown.raw.rindex(PASTE_ON), shown.raw
        shown.end(code)

    for keys in "\x04", "/quit\r", "half\\\r\x04":
        shown = begun()
        shown.type(keys)
        ended(shown)
    shown = begun()
    shown.type("half\\\rmore")
    shown.expect(r"more")
    shown.type("\x03")
    shown.expect(r"\^C\n> ")
    shown.type("\x03")
    ended(shown)
    for number in signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT:
        shown = begun()
        os.kill(shown.process.pid, number)
        ended(shown, -number)
    shown = begun(TERM="dumb")
    shown.type("\x04")
    assert PASTE_ON not in shown.raw and shown.end() is not None and PASTE_OFF not in shown.raw


def a_stop_gives_the_terminal_to_the_shell(cli):
    """Ctrl-Z: the shell finds it as it was; and the chat takes it again."""
    shell = Cli("bash", cli.environment["PARLEY_SERVER"])
    shown = Terminal(shell, "-mc", """"$0" --model echo; case $(stty -a) in *-icanon*) ;; *) echo 'lines again' ;; esac; read -r && fg""", cli.path)
    shown.expect(r"> ")
    shown.type(pasted("half\n"))
    shown.expect(r"> half\n")
    shown.type("\x1a")
    shown.expect(r"lines again\n")
    assert shown.raw.rindex(PASTE_OFF) > shown.raw.rindex(PASTE_ON), shown.raw
    shown.type("\n")
    shown.expect(r"> half\n")
    assert shown.raw.rindex(PASTE_OFF) < shown.raw.rindex(PASTE_ON), shown.raw
    shown.type(pasted("a\nb") + "\r")
    shown.expect(r"s to the first token(.|\n)*> ")
    shown.type("\x04")
    name = re.findall(r"--conversation ([0-9a-f]{32})", shown.end())[-1]
    [whole] = cli.lines("conversations", "show", name, "--json")
    assert [turn["reply"] for turn in whole["transcript"]] == ["half\na\nb"]
    cli.out("conversations", "close", name)


def a_stop_during_a_reply(cli):
    """The shell has the terminal as it was; then the reply goes on, and Ctrl-C ends it."""
    shell = Cli("bash", cli.environment["PARLEY_SERVER"])
    chat = '"$0" --model long --ignore-eos --max-tokens 60000 --seed 1 --temperature 1'
    shown = Terminal(shell, "-mc", chat + """; case $(stty -a) in *-icanon*) ;; *) echo 'lines again' ;; esac; read -r && fg""", cli.path)
    shown.expect(r"> ")
    shown.type("hello\r")
    shown.expect(r"hello\n+(.|\n)")
    shown.type("\x1a")
    shown.expect(r"lines again\n")
    shown.type("\n")
    shown.expect(r"--temperature 1\n(.|\n)")  # before it goes on, Ctrl-C would be the shell's
    shown.type("\x03")
    shown.expect(r"stopped\n> ")
    shown.type("/quit\r")
    shown.end()


def only_the_main_thread_takes_signals(cli):
    """It owns the terminal: what a handler does there, no thread of gRPC's may do at the same time."""
    shown = Terminal(cli, "--model", "echo")
    shown.expect(r"> ")
    shown.type("hello\r")
    shown.expect(r"s to the first token(.|\n)*> ")
    wanted = sum(1 << number - 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH))
    pid = shown.process.pid
    blocked = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as status:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in status)
        blocked[int(thread)] = fields["Name"], int(fields["SigBlk"], 16) & wanted
    assert blocked.pop(pid)[1] == 0 and len(blocked) > 1 and all(mask == wanted for _, mask in blocked.values()), blocked
    shown.type("/quit\r")
    shown.end()


def a_long_prompt_shows_progress(cli):
    shown = Terminal(cli, "--model", "tiny", "--max-tokens", "2", "--ignore-eos")
    shown.expect(r"> ")
    shown.type("word " * 120 + "\r")
    shown.expect(r"reading the prompt: \d+ of \d+ tokens")
    shown.expect(r"s to the first token")
    assert b"\r\x1b[K" in shown.raw, "the line of progress is taken away"
    shown.expect(r"> ")
    shown.type("/quit\r")
    shown.end()


def replies_of_a_model(cli):
    sampling = ["--model", "tiny", "--temperature", "0", "--max-tokens", "12", "--ignore-eos"]
    [one] = cli.lines("ask", "hello the", *sampling, "--logprobs", "3", "--json")
    [two] = cli.lines("ask", "hello the", *sampling, "--json")
    assert one["token_ids"] == two["token_ids"] and len(one["token_ids"]) == 12 and one["finish_reason"] == "length", one
    assert one["reply"] == two["reply"] == cli.out("ask", "hello the", *sampling)[:-1]
    assert one["usage"]["completion_tokens"] == 12 and one["timings"]["tok_s"] > 0
    assert [entry["id"] for entry in one["logprobs"]] == one["token_ids"]
    assert all(len(entry["top"]) == 3 and entry["logprob"] <= 0 for entry in one["logprobs"])
    assert all(entry["top"][0]["id"] == entry["id"] for entry in one["logprobs"]), "greedy takes the likeliest"
    [shorter] = cli.lines("ask", "hello the", *sampling[:-3], "--max-tokens", "3", "--json")
    assert shorter["token_ids"] == one["token_ids"][: len(shorter["token_ids"])]
    long = "word " * 3000
    line = cli.complaint("ask", long, "--model", "tiny", code=1)
    assert "OUT_OF_RANGE" in line and "2048" in line, line
    assert cli.lines("conversations", "--json") == []


def a_server_that_goes_away(path, parleyd, folder):
    """The chat outlives its server; the conversation does not, and the chat says so and begins another."""
    address = f"unix:{folder}/socket"
    with Parleyd(parleyd, listen=address):
        shown = Terminal(Cli(path, address), "--model", "echo", "--wait", "2")
        shown.expect(r"> ")
        shown.type("one\r")
        shown.expect(r"one\n+one\n(.|\n)*> ")
    shown.type("two\r")
    shown.expect(r"\[UNAVAILABLE\]\n> ")
    with Parleyd(parleyd, listen=address):
        shown.type("three\r")
        shown.expect(r"\[NOT_FOUND\]\n.*does not know this conversation(.|\n)*> ")
        shown.type("four\r")
        shown.expect(r"four\n+four\n(.|\n)*> ")
        shown.type("/quit\r")
        shown.end()


def the_real_model(cli):
    greedy = ["--model", "smollm2", "--temperature", "0", "--max-tokens", "4"]
    assert cli.out("chat", *greedy, stdin="Write a C function that adds two integers.\n").startswith("```c\n")
    # So likely that no logit's last bit decides, as it does for France, which makes this small model speak French.
    assert "Berlin" in cli.out("chat", stdin="What is the capital of Germany?\n"), "what the README shows"
    shown = Terminal(cli, "--model", "smollm2", "--max-tokens", "4")
    shown.expect(r"> ")
    shown.type("/help\r")
    shown.expect(r"> ")
    shown.type("Hello!\r")
    shown.expect(r"s to the first token · \d+\.\d tokens/s · \d tokens")
    shown.type("\x04")
    shown.end()


def main():
    path, parleyd, writer, golden = sys.argv[1:5]
    model = next((m for m in (os.environ.get("PARLEY_MODEL"), *sys.argv[5:]) if m and os.path.exists(m)), None)
    with tempfile.TemporaryDirectory() as folder:
        tiny, long = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "long.gguf")
        children.run([writer, tiny], check=True)
        children.run([writer, long, "65536"], check=True)
        cli = Cli(path)
        helps(cli)
        wrong_commands(cli)
        wrong_use(cli)
        interactive(cli)
        unreachable(cli)
        unwritable(cli)
        tokens(cli, tiny, golden, model)
        inspect(cli, tiny)
        place(cli)
        selftest(cli, tiny)
        with Parleyd(parleyd, "--model", f"tiny={tiny}", "--model", f"long={long}", "--backend", "ref", "--threads", "1") as address:
            cli = Cli(path, address)
            pipe_chat(cli)
            ask(cli)
            views(cli)
            conversations(cli)
            watch(cli)
            commands_of_the_chat(cli, folder)
            last_turns(cli)
            a_server_that_ends_with_the_chat(cli)
            markdown(cli)
            a_link_that_is_cut(cli)
            ctrl_c_while_the_link_is_cut(cli)
            ctrl_c_at_the_prompt(cli)
            replies_of_a_model(cli)
            ctrl_c_stops_the_reply(cli)
            typing_ahead(cli)
            several_lines(cli)
            the_keys_of_vi(cli, folder)
            a_paste_is_only_text(cli)
            lines_of_a_system_prompt(cli)
            a_paste_that_is_too_long(cli)
            a_paste_during_a_reply(cli)
            the_terminal_is_left_as_it_was(cli)
            a_stop_gives_the_terminal_to_the_shell(cli)
            a_stop_during_a_reply(cli)
            only_the_main_thread_takes_signals(cli)
            a_long_prompt_shows_progress(cli)
        a_server_that_goes_away(path, parleyd, folder)
        if model is None:
            print("no real model is there (./run model fetches it): its part was left out")
            return
        evaluate(Cli(path), golden, model)
        with Parleyd(parleyd, "--model", f"smollm2={model}") as address:
            the_real_model(Cli(path, address))


if __name__ == "__main__":
    main()
