#!/usr/bin/env python3
"""parley eval, display, build-data and self-chat over data: reports, logs, refusals; no server.

usage: test_eval.py PARLEY WRITE_TINY_MODEL DATA_DIR GOLDEN_DIR [MODEL.gguf]      (any python3; no packages)
"""
import json
import os
import sys
import tempfile

import children


class Eval:
    def __init__(self, parley):
        self.parley = parley
        self.environment = {k: v for k, v in os.environ.items() if k != "PARLEY_MODEL"}
        self.environment.update(LC_ALL="C", TERM="dumb")

    def run(self, *args, code=0):
        result = children.run([self.parley, *map(str, args)], capture_output=True, text=True, env=self.environment)
        assert result.returncode == code, f"{args}: ended with {result.returncode}, wanted {code}\n{result.stdout}{result.stderr}"
        return result

    def report(self, *args):
        return self.run("eval", *args, "--json").stdout.splitlines()[-1]

    def refused(self, *args, says, code=1, verb="eval"):
        lines = self.run(verb, *args, code=code).stderr.splitlines()
        assert len(lines) == 1 and says in lines[0], (args, lines)


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "wb") as out:
        out.write(text if isinstance(text, bytes) else text.encode())
    return path


def simple_agents(e, golden):
    """Every way to batch counts every example once."""
    task = f"parlai:{golden}/dialogues.txt"
    for more in ([], ["-bs", 3], ["-bs", 64], ["-bs", 5, "--numthreads", 2], ["-bs", 64, "--dynamic-batching", "full"],
                 ["-bs", 4, "-dynb", "batchsort"], ["-dt", "valid:stream", "-bs", 7], ["-dt", "train:evalmode", "-bs", 2],
                 ["-bs", 4, "--batch-sort", "true"]):
        got = json.loads(e.report("-t", task, "--agent", "repeat_label", *more))
        assert got["exs"] == 28 and got["accuracy"] == 1, (more, got)
    got = json.loads(e.report("-t", task, "-dt", "valid", "--agent", "repeat_label", "-bs", 64, "--dynamic-batching", "full", "--numthreads", 2))
    assert got["exs"] == 28 and {"accuracy", "f1", "bleu-4"} <= set(got), got
    got = json.loads(e.report("-t", f"{task},parlai:{golden}/second.txt", "-m", "fixed_response", "--fixed-response", "yes", "-bs", 4))
    assert got["exs"] == 36 and got["dialogues/exs"] == 28 and got["second/exs"] == 8, got
    assert abs(got["accuracy"] - (got["dialogues/accuracy"] + got["second/accuracy"]) / 2) < 1e-12
    for n in (1, 5, 27, 1000):
        for more in (["-bs", 1], ["-bs", 4], ["-bs", 4, "-nt", 2]):
            got = json.loads(e.report("-t", task, "-m", "repeat_query", "-ne", n, *more))
            assert got["exs"] == min(n, 28), (n, more, got)
    for n in (24, 1, 6, 27)[::children.STRIDE]:  # the first n of the data, to the same bits, whatever is done when; 6 and 24 end within an episode
        reports = {e.report("-t", task, "-m", "repeat_query", "-ne", n, "-bs", bs, "-nt", nt, "-tr", 64, *more)
                   for bs in (1, 3, 64) for nt in (1, 2) for more in ([], ["-dynb", "full"], ["-dt", "valid:stream"])}
        assert len(reports) == 1 and json.loads(reports.pop())["exs"] == n, (n, reports)
    assert json.loads(e.report("-t", task, "-dt", "train", "-m", "repeat_query", "-ne", 100, "-bs", 3))["exs"] == 100


def dictionaries(e, golden, folder):
    """What train writes is what ParlAI's builder makes of the same file; agents answer from it."""
    task, made = f"parlai:{golden}/dialogues.txt", os.path.join(folder, "made.dict")
    got = json.loads(e.run("train", "-t", task, "--dict-file", made, "--json").stdout)
    assert got["examples"] == 28 and got["words"] == 130, got
    with open(made) as ours, open(f"{golden}/dialogues.dict") as theirs:
        assert ours.read() == theirs.read()
    for agent in ("unigram", "ir_baseline"):
        reports = {e.report("-t", task, "-m", agent, "-df", made, *more) for more in (["-bs", 1], ["-bs", 8], ["-bs", 3, "-nt", 2])}
        assert len(reports) == 1 and json.loads(reports.pop())["exs"] == 28
        e.refused("-t", task, "-m", agent, says="--dict-file")
    e.refused("-t", task, "-m", "unigram", "-df", write(folder, "bad.dict", "word\tmany\n"), says="bad.dict:1")
    e.refused("-t", task, says="--dict-file", code=2, verb="train")
    e.refused("-t", task, "-m", "repeat_label", "-df", made, says="has no dictionary to build", code=2, verb="train")
    e.refused("-t", task, "-dt", "train", "-df", made, says="no end", verb="train")


def files(e, golden, folder):
    """The report as a file, and what was said as conversations, which are a task themselves."""
    task = f"parlai:{golden}/dialogues.txt"
    report, logs = os.path.join(folder, "report.json"), os.path.join(folder, "logs.jsonl")
    for more in (["-bs", 1], ["-bs", 5], ["-bs", 8, "-dynb", "full", "-tr", 20], ["-bs", 5, "-nt", 2]):
        said = e.report("-t", task, "-m", "repeat_query", *more, "--report", report, "--world-logs", logs)
        with open(report) as f:
            assert f.read() == said + "\n"
        with open(logs) as f:
            dialogs = [json.loads(line)["dialog"] for line in f]
        assert sorted(len(d) for d in dialogs) == [1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 5, 6], [len(d) for d in dialogs]
        for dialog in dialogs:
            assert all(len(turn) == 2 and not turn[0].get("batch_padding") for turn in dialog)
            assert [turn[0]["episode_done"] for turn in dialog] == [False] * (len(dialog) - 1) + [True]
    got = json.loads(e.report("-t", f"conversations:{logs}", "-bs", 3))
    assert got["exs"] == 28 and got["accuracy"] == 1, got


def odd_files(e, folder):
    """Files that are not quite in form give ParlAI's acts, or one line with the file, the line and what is wrong."""
    one, far = "text:hi\tlabels:yo\tepisode_done:True", "text:a\tlabels:b\tepisode_done:True"
    acts = {
        "crlf": ("parlai", f"{one}\r\n{far}\r\n", [("hi", "yo", True), ("a", "b", True)]),
        "no_end": ("parlai", f"{one}\n{far}", [("hi", "yo", True), ("a", "b", True)]),
        "blank_lines": ("parlai", f"\n{one}\n\n\n{far}\n\n", [("hi", "yo", True), ("a", "b", True)]),
        "never_done": ("parlai", "text:a\tlabels:b\ntext:c\tlabels:d\n", [("a", "b", False), ("c", "d", True)]),
        "empty_text": ("parlai", "text:\tlabels:b\tepisode_done:True\n", [("", "b", True)]),
        "empty_fields": ("parlai", "text:a\t\t\tlabels:b\tepisode_done:True\n", [("a", "b", True)]),
        "nul": ("parlai", one.replace("hi", "h\0i"), [("h\0i", "yo", True)]),
        "numbers_skip": ("fbdialog", "1 hi\tyo\n5 a\tb\n", [("hi", "yo", False), ("a", "b", True)]),
        "numbers_begin_again": ("fbdialog", "1 hi\tyo\n1 a\tb\n", [("hi", "yo", True), ("a", "b", True)]),
        "blank_between": ("fbdialog", "1 hi\tyo\n\n2 a\tb\n", [("hi", "yo", False), ("a", "b", True)]),
    }
    for name, (form, text, want) in acts.items():
        out = e.run("convert", "-t", f"{form}:{write(folder, name, text)}", "--to", "jsonl").stdout
        got = [(act["text"], act["labels"][0], act["episode_done"]) for act in map(json.loads, out.splitlines())]
        assert got == want, (name, got)
    for name, form, text, says in [
        ("mixed_ends", "parlai", f"{one}\n{one}\r\n{one}\r{one}\n", "mixed_ends:3: episode_done"),
        ("nothing", "parlai", "", "nothing: no examples"),
        ("only_blank", "parlai", "\n\n\n", "only_blank: no examples"),
        ("byte_order_mark", "parlai", "\ufeff" + one, "byte_order_mark:1: the field text is missing"),
        ("latin_1", "parlai", one.encode() + b"\ntext:caf\xe9\tlabels:x\n", "latin_1:2: not UTF-8"),
        ("huge_line", "parlai", f"{one}\ntext:{'a' * (17 << 20)}\tlabels:x\n", "huge_line:2: a line of more than 16777216 bytes"),
        ("no_labels", "parlai", f"{one}\ntext:a\tepisode_done:True\n", "no_labels:2: the field labels is missing"),
        ("no_text", "parlai", "labels:a\tepisode_done:True\n", "no_text:1: the field text is missing"),
        ("empty_episode", "conversations", '{"dialog":[]}\n', "empty_episode: no examples"),
        ("array", "jsonl", "[1]\n", "array:1: byte 1: not a JSON object"),
        ("cut_off", "jsonl", '{"text":"a","labels":["b"]}\n{"text":"a"\n', "cut_off:2: byte 12: '}' is missing"),
        ("key_twice", "jsonl", '{"text":"a","text":"b","labels":["b"]}\n', "key_twice:1: byte 23: a key that the object has already"),
    ][:: children.STRIDE]:
        e.refused("-t", f"{form}:{write(folder, name, text)}", "--to", "jsonl", says=says, verb="convert")


def task_names(e, folder):
    """ParlAI's names find what ParlAI has downloaded or been given; else the error says how to get it."""
    tasks = os.path.join(folder, "data/bAbI/tasks_1-20_v1-2")
    for size, extra in ("", 1), ("-10k", 3):
        os.makedirs(f"{tasks}/en-valid{size}-nosf")
        for n in range(1, 21):
            write(f"{tasks}/en-valid{size}-nosf", f"qa{n}_valid.txt", f"1 Mary is in room {n}.\n2 Where is Mary?\troom {n}\n" * extra)
    here = ["--datapath", f"{folder}/data", "-m", "repeat_label"]
    for task, exs in ("babi:task1k:2", 1), ("babi:Task10k:20", 3), ("babi", 20), ("babi:all10k", 60), ("babi:task1k:1,babi:task10k:2", 4):
        got = json.loads(e.report("-t", task, *here))
        assert (got["exs"], got["accuracy"]) == (exs, 1), (task, got)
    for task, says in (("babi:task1k:21", "there is no task 'babi:task1k:21' here"), ("babi:task1k:1x", "there is no task"), ("babi:task1k:1,", "no name"),
                       ("integration_tests", "--task integration_tests --outfile"), ("fromfile:parlaiformat", "--fromfile-datapath FILE")):
        e.refused("-t", task, *here, says=says)
    e.refused("-t", "babi:task10k:1", "-dt", "test", *here, says="qa1_test.txt is not there: --datapath names")
    e.refused("-t", "babi:task10k:1", "--datapath", "/" + "x" * 2000, says="--datapath is longer")
    write(folder, "own_valid.txt", "text:a\tlabels:b\tepisode_done:True\n")
    for more in ["-ffdp", f"{folder}/own", "-ffdt", "true"], ["--fromfile-datapath", f"{folder}/own_valid.txt"]:
        assert json.loads(e.report("-t", "fromfile:parlaiformat", *more))["exs"] == 1
    assert json.loads(e.report("-t", "fromfile:Fbformat", "-ffdp", f"{tasks}/en-valid-nosf/qa1_valid.txt"))["exs"] == 1


def refusals(e, golden, folder):
    """Bad input is one line that says where, and never a count."""
    task = f"parlai:{golden}/dialogues.txt"
    e.refused("-t", "nothing:x", says="parlai:FILE")
    e.refused("-t", f"parlai:{folder}/nowhere", says="nowhere")
    e.refused("-t", f"parlai:{write(folder, 'empty.txt', '')}", says="empty.txt")
    e.refused("-t", task, "-m", "nobody", says="repeat_label")
    e.refused("-t", task, "-m", "random_candidate", "-bs", 4, "-dynb", "full", "-tr", 10, says="no batch_act")
    e.refused("-t", task, "-dt", "train", says="no end")
    e.refused("-t", task, "-dt", "night", says="train")
    e.refused("-t", task, "-bs", 0, says="--batchsize")
    e.refused("-t", task, "-dynb", "sometimes", says="batchsort")
    e.refused("-t", task, "--metrics", "luck", says="luck")
    e.refused("-t", task, "-mtw", "1,x", says="--multitask-weights")
    e.refused("-t", task, "--batch-sort", "perhaps", says="true or false", code=2)
    e.refused("-t", task, "-bs", "many", says="whole number", code=2)
    e.refused("-t", task, "--no-such-thing", says="--no-such-thing", code=2)
    e.refused(says="--task", code=2)
    e.refused(says="--task", code=2, verb="display")
    e.refused("-t", task, "--model", f"{folder}/nowhere", says="nowhere")
    e.refused("-t", task, "-m", "lm", "--model", write(folder, "no.gguf", "no"), says="no.gguf")
    e.refused("-t", task, "--world-logs", f"{folder}/no/where", says="no/where")
    good, bad = "text:a\tlabels:b\tepisode_done:True\n", b"text:\xff\tlabels:b\tepisode_done:True\n"
    broken = write(folder, "broken.txt", good.encode() + bad + good.encode())
    e.refused("-t", f"parlai:{broken}", says="broken.txt:2")
    result = e.run("eval", "-t", f"parlai:{broken}", "--skip-bad", "--json")
    assert json.loads(result.stdout)["exs"] == 2 and "1 bad line" in result.stderr, result
    lines = write(folder, "broken.jsonl", '{"text": "a", "labels": ["b"], "episode_done": true}\n{"text": 7}\n')
    e.refused("-t", f"jsonl:{lines}", says="broken.jsonl:2")


    task = f"parlai:{golden}/dialogues.txt"
    e.refused("-t", f"{task},parlai:{golden}/second.txt", "-mtw", "1,2,3", says="--multitask-weights has 3 numbers for 2 tasks")
    for more, is_ignored in ([], True), (["-dt", "train", "-ne", 9], False):
        told = e.run("eval", "-t", f"{task},parlai:{golden}/second.txt", "-mtw", "1,2", *more).stderr
        assert ("--multitask-weights has no effect" in told) == is_ignored, told
    e.refused("-pyt", task, "-t", task, says="exclude each other: give one")
    e.refused("-pyt", "squad", says="convert_data_to_parlai_format --task squad --outfile FILE")
    e.refused("-pytd", "babi:Default", says="Python classes cannot be loaded")


def batches_by_length(e, tiny, golden):
    """The language model answers in the batches that were asked for; its report does not depend on them."""
    more = ["-t", f"parlai:{golden}/dialogues.txt", "-mf", tiny, "-ttr", 60, "-ltr", 20, "-bs", 4, "--max-tokens", 4, "--json"]
    runs = [e.run("eval", *more, *kind) for kind in ([], ["-dynb", "batchsort"], ["-dynb", "full"])]
    assert len({run.stdout for run in runs}) == 1, [run.stdout for run in runs]
    told = [line for run in runs for line in run.stderr.splitlines() if "batches of" in line]
    assert len(set(told)) == 3 and all("batches of 3.5 rows" in line for line in told[:2]), told


def converted(e, golden, folder):
    """Data are the same in another format; what they hold is counted as ParlAI counts it."""
    task = f"parlai:{golden}/dialogues.txt"
    shown = ["display", "-ne", 1000, "--json", "-t"]
    for to in "parlai", "jsonl":
        path = os.path.join(folder, f"dialogues.{to}")
        e.run("convert", "-t", task, "--to", to, "-of", path)
        assert e.run(*shown, f"{to}:{path}").stdout == e.run(*shown, task).stdout, to
        with open(path, encoding="utf-8") as f:
            valid = e.run("convert", "-t", task, "-dt", "valid", "--to", to).stdout
            text = f.read()
            assert valid == text if to == "parlai" else list(map(json.loads, valid.splitlines())) == list(map(json.loads, text.splitlines()))
    path = write(folder, "said.jsonl", e.run("convert", "-t", f"parlai:{golden}/second.txt", "--to", "conversations").stdout)
    said = [json.loads(line) for line in e.run(*shown, f"conversations:{path}").stdout.splitlines()]
    assert [row["text"] for batch in said for row in batch["rows"]][:2] == ["How many legs has a dog?", "Say one."], said
    assert '"id"' in e.run("convert", "-t", task, "--to", "jsonl", "-if", "reward").stdout
    e.refused("-t", task, says="--to is missing", code=2, verb="convert")
    e.refused("-t", task, "--to", "xml", says="parlai, jsonl or conversations", code=2, verb="convert")
    e.refused("-t", task, "--to", "jsonl", "-dt", "train", says="train:ordered", verb="convert")
    e.refused("-t", task, "--to", "jsonl", "-of", "/dev/full", says="/dev/full", verb="convert")
    task = "parlai:" + write(folder, "few.txt", "text:a b, a\\nc\tlabels:yes|no no\nfoo:x\ttext:A\tlabels:yes\tepisode_done:True\n")
    got = json.loads(e.run("data-stats", "-t", task, "--json").stdout)
    want = {"input/utterances": 2, "input/tokens": 7, "input/unique_tokens": 6, "input/unique_utterances": 2, "input/avg_utterance_length": 3.5,
            "labels/utterances": 3, "labels/tokens": 4, "labels/unique_tokens": 2, "labels/unique_utterances": 2,
            "both/utterances": 5, "both/tokens": 11, "both/unique_tokens": 8, "both/unique_utterances": 4, "both/avg_utterance_length": 2.2}
    assert {k: got[k] for k in want} == want, got
    assert json.loads(e.run("data-stats", "-t", task, "--json", "-nlnu").stdout)["input/utterances"] == 3


def display(e, folder):
    """Batches as they will be: twelve lengths in a budget of 80 words, padded to ParlAI's multiples of 8 and rows of 4, or packed."""
    lengths = [38, 17, 13, 12, 12, 10, 8, 6, 6, 5, 2, 2]
    words = "".join(f"text:{' '.join(['w'] * n)}\tlabels:\tepisode_done:True\n" for n in lengths)
    task = f"parlai:{write(folder, 'twelve.txt', words)}"
    for more, want in ((["-dynb", "full"], [[38, 17], [13, 12, 12, 10], [8, 6], [6, 5, 2, 2]]),
                       (["-dynb", "full", "--ragged"], [[38, 17, 13, 12], [12, 10, 8, 6, 6, 5, 2, 2]])):
        out = e.run("display", "-t", task, "-dt", "valid", "-bs", 2, "-ttr", 39, "-ltr", 1, "-ne", 12, "--json", *more).stdout
        batches = [sorted((row["text_words"] + row["label_words"] for row in json.loads(line)["rows"]), reverse=True) for line in out.splitlines()]
        assert sorted(batches, reverse=True) == want, (more, batches)
    svg = os.path.join(folder, "picture.svg")
    out = e.run("display", "-t", task, "-dt", "valid", "-bs", 4, "--svg", svg, "-ne", 12).stdout
    assert "12 examples in 3 batches: 131 words in" in out and "█" in out, out
    with open(svg) as f:
        drawing = f.read()
    assert drawing.startswith("<svg ") and drawing.endswith("</svg>\n") and drawing.count("#3b6ea5") == 12
    e.refused("-t", task, "-bs", 4, "-dynb", "full", says="truncate", verb="display")


def streams(e, golden, folder):
    """A data file is built once, is a task itself, and is rebuilt when it is older than its source."""
    with open(f"{golden}/dialogues.txt", "rb") as f:
        source = write(folder, "dialogues.txt", f.read())
    got = json.loads(e.run("build-data", "-t", f"parlai:{source}", "--json").stdout)
    assert got["episodes"] == 12 and got["examples"] == 28 and got["bytes"] == os.path.getsize(got["file"]), got
    assert json.loads(e.report("-t", f"parlai:{source}", "-dt", "train:stream", "-bs", 3))["exs"] == 28
    ahead = ["-t", f"parlai:{source}", "-m", "repeat_query", "-dt", "valid:stream", "-bs", 3]
    assert len({e.report(*ahead, *more) for more in ([], ["-nw", 1], ["-nw", 5])}) == 1  # threads that read ahead
    for kind in ("pop", "index"):
        squashed = ["-t", f"parlai:{source}", "-dt", "valid:stream", "--squash", "true", "--batch-sort-cache", kind, "-bs", 4]
        assert json.loads(e.report(*squashed))["exs"] == 28
        for width in (1, 2, 5, 1000):
            batches = [json.loads(line)["rows"] for line in e.run("display", *squashed, "-blr", width, "-ne", 28, "--json").stdout.splitlines()]
            spread = [max(lengths) - min(lengths) for lengths in ([len(row["text"].split()) for row in rows] for rows in batches)]
            assert sum(len(rows) for rows in batches) == 28 and max(spread) <= 2 * (width - 1) and (width < 1000 or len(batches) == 7), (width, spread)
    e.refused("-t", f"parlai:{source}", "--batch-sort-cache", "pop", says="stream")
    e.refused("-t", f"parlai:{source}", "--batch-sort-cache", "shelf", says="pop, index")
    write(folder, "dialogues.txt", "text:only\tlabels:one\tepisode_done:True\n")
    assert json.loads(e.report("-t", f"parlai:{source}", "-dt", "valid:stream"))["exs"] == 1
    e.refused("-t", f"parlai:{source}", "--preprocess", "true", says="--agent", code=2, verb="build-data")


def model(e, tiny, data, golden, folder):
    """The same report, bit for bit, however the rows are batched; scores without replies are the same scores."""
    with open(f"{data}/countries.txt") as f:
        task = f"parlai:{write(folder, 'few.txt', ''.join(f.readlines()[:24]))}"
    lm = ["-t", task, "--model", tiny, "--max-tokens", 8, "--kv", "f32"]
    reports = {e.report(*lm, *more) for more in (
        ["-bs", 1], ["-bs", 8], ["-bs", 64], ["-bs", 64, "-dynb", "full", "-tr", 512], ["-bs", 3, "-dynb", "batchsort", "-tr", 512],
        ["-bs", 4, "--numthreads", 2], ["-bs", 8, "--threads", 2], ["-bs", 8, "--kv-mib", 2])}
    assert len(reports) == 1, reports
    got = json.loads(reports.pop())
    assert got["exs"] == 24 and {"ppl", "loss", "token_acc", "token_em", "clen", "llen", "f1", "bleu-4"} <= set(got), got
    scored = json.loads(e.report(*lm, "--skip-generation", "true", "-bs", 8))
    assert scored["ppl"] == got["ppl"] and scored["token_acc"] == got["token_acc"] and scored["exs"] == 24
    plain = json.loads(e.report(*lm, "--plain", "-bs", 8))
    assert plain["exs"] == 24 and plain["ppl"] != got["ppl"]
    short = json.loads(e.report(*lm, "-ttr", 8, "-ltr", 4, "-bs", 8))
    assert short["ctrunc"] > 0.5 and short["ltrunc"] > 0.5 and short["llen"] == got["llen"], short
    forgetful = json.loads(e.report(*lm, "--history-size", 1, "-bs", 8))
    assert forgetful["clen"] < got["clen"], (forgetful, got)
    for more in ([], ["--plain"], ["--plain", "--history-reversed", "true"], ["--split-lines", "true"]):  # an empty text is among them
        whole = ["-t", f"parlai:{golden}/dialogues.txt", "--model", tiny, "--max-tokens", 2, "-bs", 4, *more]
        assert e.report(*whole) == e.report(*whole, "-dynb", "full", "-tr", 500), more
    own = json.loads(e.report(*lm, "--use-reply", "model", "-bs", 8))
    assert own["clen"] != got["clen"]
    e.refused(*lm, "-bs", 8, "-dynb", "full", says="truncate")
    e.refused(*lm, "--use-reply", "yours", says="label")


def real_model(e, path, data, folder):
    """The model that knows the answers: its figures, whatever the batches."""
    with open(f"{data}/countries.txt") as f:
        task = f"parlai:{write(folder, 'some.txt', ''.join(f.readlines()[:8]))}"
    lm = ["-t", task, "--model", path, "--max-tokens", 4]
    reports = {e.report(*lm, *more) for more in (["-bs", 1], ["-bs", 8], ["-bs", 64], ["-bs", 64, "-dynb", "full", "-tr", 512], ["-bs", 4, "-nt", 2])}
    assert len(reports) == 1, reports
    got = json.loads(reports.pop())
    assert got["exs"] == 8 and 2 < got["ppl"] < 40 and got["token_acc"] > 0.3 and got["f1"] > 0.1, got


def self_chat(e, tiny, partner, folder):
    """Two clones talk; the same seed says the same, side by side each has chance of its own."""
    logs = os.path.join(folder, "self.jsonl")
    args = ["self-chat", "--model", tiny, "--turns", 3, "--max-tokens", 6, "--opening", "the hello", "--json"]
    one = e.run(*args, "--world-logs", logs).stdout
    said = [json.loads(line) for line in one.splitlines()]
    assert [u["id"] for u in said] == ["A", "B"] * 3 and said[0]["text"] == "the hello", said
    assert e.run(*args).stdout == one
    with open(logs) as f:
        assert len(json.loads(f.read())["dialog"]) == 3
    other = [json.loads(line)["text"] for line in e.run(*args, "-pmf", partner).stdout.splitlines()]
    assert other[0] == "the hello" and other[1:] != [u["text"] for u in said][1:], other
    e.refused(*args[1:], "-pmf", f"{folder}/none.gguf", says="none.gguf", verb="self-chat")
    rounds = {}
    for name, more in {"own": [], "again": [], "second": ["-pmf", partner], "third": ["-pmf", tiny, "-pmf", partner]}.items():
        said = [json.loads(line) for line in e.run(*args, "--speakers", 3, *more, "--world-logs", logs).stdout.splitlines()]
        assert [u["id"] for u in said] == ["A", "B", "C"] * 3 and said[0]["text"] == "the hello", said
        with open(logs) as f:
            assert [[act.get("text") for act in turn] for turn in json.loads(f.read())["dialog"]] == [
                [u["text"] for u in said[i : i + 3]] for i in (0, 3, 6)
            ]
        rounds[name] = [u["text"] for u in said]
    assert rounds["own"] == rounds["again"]
    assert rounds["second"][1] != rounds["own"][1] and rounds["second"][2] != rounds["own"][2], "the third hears the second"
    assert rounds["third"][1] == rounds["own"][1] and rounds["third"][2] != rounds["own"][2]
    assert rounds["third"][3] != rounds["own"][3], "the first hears the third"
    for more, says in ((["--speakers", 1], "from 2 to 26"), (["--speakers", 27], "from 2 to 26"), (["-pmf", tiny, "-pmf", tiny], "2 times, which is too often for 2 speakers")):
        e.refused(*args[1:], *more, says=says, code=2, verb="self-chat")
    said = [json.loads(line) for line in one.splitlines()]
    many = [json.loads(line) for line in e.run(*args, "--conversations", 3).stdout.splitlines()]
    assert len(many) == 18
    assert [u["text"] for u in many if u["conversation"] == 0] == [u["text"] for u in said]
    assert len({"".join(u["text"] for u in many if u["conversation"] == i) for i in range(3)}) == 3


def main():
    parley, write_tiny_model, data, golden = sys.argv[1:5]
    e = Eval(parley)
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, tiny], check=True)
        partner = os.path.join(folder, "partner.gguf")
        children.run([write_tiny_model, partner, "512", "2"], check=True)
        simple_agents(e, golden)
        dictionaries(e, golden, folder)
        files(e, golden, folder)
        task_names(e, folder)
        refusals(e, golden, folder)
        odd_files(e, folder)
        display(e, folder)
        streams(e, golden, folder)
        converted(e, golden, folder)
        batches_by_length(e, tiny, golden)
        model(e, tiny, data, golden, folder)
        self_chat(e, tiny, partner, folder)
        for path in sys.argv[5:]:
            real_model(e, path, data, folder)
    print("eval: all is as it should be")


if __name__ == "__main__":
    main()
