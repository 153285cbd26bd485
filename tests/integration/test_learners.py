"""Agents that learn from dialogues: what they learn, what a step of theirs is, beside numpy, and how they are served.

usage: test_learners.py PARLEY PARLEYD [KILL_AT_RENAME.so]
"""
import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import urllib.request

import gguf
import numpy

import children
from harness import Parleyd, conversations

PARLEY, PARLEYD, *KILL_AT_RENAME = sys.argv[1:]


def parley(*words, status=0, **more):
    done = children.run([PARLEY, *map(str, words)], capture_output=True, text=True, timeout=4 * children.PATIENCE, **more)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def write_task(path, n, seed, n_keys=60, n_candidates=20):
    """Three of the text's words say what the three of the label are; the others say nothing. No word is in both."""
    chance = random.Random(seed)
    with open(path, "w") as out:
        for _ in range(n):
            keys = chance.sample(range(n_keys), 3)
            words = [f"q{k}" for k in keys] + [f"n{chance.randrange(40)}" for _ in range(4)]
            chance.shuffle(words)
            candidates = [" ".join(f"a{k}" for k in sorted(keys))]
            label = candidates[0]
            while len(candidates) < n_candidates:
                other = " ".join(f"a{k}" for k in sorted(chance.sample(range(n_keys), 3)))
                if other not in candidates:
                    candidates.append(other)
            chance.shuffle(candidates)
            out.write(f"text:{' '.join(words)}\tlabels:{label}\tlabel_candidates:{'|'.join(candidates)}\tepisode_done:True\n")
    return f"parlai:{path}"


# --- Starspace ---


def philox(counter, key):
    """Philox-4x32-10 (Salmon et al., 2011), by its definition."""
    counter, key = list(counter), list(key)
    for _ in range(10):
        one, other = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [other >> 32 ^ counter[1] ^ key[0], other & 0xFFFFFFFF, one >> 32 ^ counter[3] ^ key[1], one & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def read_space(path):
    reader = gguf.GGUFReader(path)
    words = reader.fields["starspace.words"].contents()
    return words, reader.tensors[0].data.astype(numpy.float64)


class Reference:
    """Starspace's learning in float64: PyTorch's CosineEmbeddingLoss over means of embeddings, and plain SGD."""

    def __init__(self, words, vectors, seed, rate=0.1, margin=0.1, n_negatives=10, cache_size=1000, max_norm=10):
        self.ids = {word: i for i, word in enumerate(words)}
        self.v, self.seed, self.rate, self.margin = vectors.copy(), seed, rate, margin
        self.n_negatives, self.cache_size, self.max_norm = n_negatives, cache_size, max_norm
        self.cache, self.n_drawn, self.losses = [], 0, []

    def draw(self, n):
        bits = philox((self.n_drawn & 0xFFFFFFFF, self.n_drawn >> 32, 0, 0x73746172), (self.seed & 0xFFFFFFFF, self.seed >> 32))
        self.n_drawn += 1
        return bits[0] * n >> 32

    def learn(self, text, label):
        text, label = ([self.ids[word] for word in re.findall(r"\w+", t)] for t in (text, label))
        wrong, tries = [], 1
        while tries < 3 * self.n_negatives and len(self.cache) >= 2 and len(wrong) < self.n_negatives:
            one = self.cache[self.draw(len(self.cache))]
            if one != label:
                wrong.append(one)
            tries += 1
        if wrong:
            self.step(text, [label, *wrong])
        if len(self.cache) < self.cache_size:
            self.cache.append(label)
        else:
            self.cache[self.draw(len(self.cache))] = label

    def step(self, text, labels):
        x, loss = self.v[text].mean(0), 0
        by_word = numpy.zeros_like(self.v)
        by_x = numpy.zeros_like(x)
        for j, label in enumerate(labels):
            y = self.v[label].mean(0)
            norms = numpy.linalg.norm(x) * numpy.linalg.norm(y)
            cosine = x @ y / norms
            if j > 0 and cosine <= self.margin:
                continue
            loss += 1 - cosine if j == 0 else cosine - self.margin
            sign = -1 if j == 0 else 1
            by_x += sign * (y / norms - cosine * x / (x @ x))
            by_y = sign * (x / norms - cosine * y / (y @ y))
            for word in label:
                by_word[word] += by_y / len(label)
        for word in text:
            by_word[word] += by_x / len(text)
        self.losses.append(loss)
        self.v -= self.rate * by_word
        norms = numpy.linalg.norm(self.v, axis=1, keepdims=True)
        self.v *= numpy.minimum(1, self.max_norm / numpy.maximum(norms, 1e-30))


def test_a_step_is_numpys(folder):
    """600 steps over data in order, the cache full after 40: the same vectors as the reference's, whatever the norm allows."""
    path = folder / "few.txt"
    task = write_task(path, 600, seed=5, n_keys=12)
    turns = [re.match(r"text:(.*?)\tlabels:(.*?)\t", line).groups() for line in open(path)]
    for max_norm, margin, rate in ((10, 0.1, 0.1), (1, 0.3, 0.1), (0.2, -0.5, 0.001)):
        more = ["-t", task, "--agent", "starspace", "-dt", "train:ordered", "-esz", 24, "-cs", 40, "-k", 4, "--margin", margin,
                "-enorm", max_norm, "-lr", rate, "--seed", 2**40 + 9, "--json"]
        parley("train", *more, "-mf", folder / "fresh.gguf", "--num-examples", 1)
        learned = lines(parley("train", *more, "-mf", folder / "learned.gguf", "-im", folder / "fresh.gguf", "-eps", 1))[-1]
        assert learned["examples"] == 600
        words, fresh = read_space(folder / "fresh.gguf")
        got = read_space(folder / "learned.gguf")[1]
        assert (numpy.linalg.norm(fresh, axis=1) < max_norm * 1.00001).all() and (fresh[0] == 0).all()
        reference = Reference(words, fresh, 2**40 + 9, rate=rate, margin=margin, n_negatives=4, cache_size=40, max_norm=max_norm)
        for turn in turns:
            reference.learn(*turn)
        moved, apart = numpy.abs(reference.v - fresh).max(), numpy.abs(reference.v - got).max()
        assert moved > 0.05 * min(max_norm, 1) and apart < 2e-4 * moved, (max_norm, moved, apart)
        assert learned["exs_per_s"] > 0


def test_starspace_learns(folder):
    """Held-out hits@1 of 20 is far above chance (0.05), for one thread and for two; one thread gives the same bits."""
    task, held_out = write_task(folder / "train.txt", 6000, 1), write_task(folder / "valid.txt", 200, 2)
    more = ["-t", task, "--agent", "starspace", "-enorm", 1, "-esz", 32, "-eps", 3, "--seed", 7, "--json"]
    for n_threads, name in ((1, "one"), (1, "again"), (2, "two")):
        said = lines(parley("train", *more, "-mf", folder / f"{name}.gguf", "--numthreads", n_threads))[-1]
        assert said["examples"] == said["batches"] == 18000 and said["ended_by"] == "epochs" and said["best"] is None, said
        assert said["words"] == said["padded"] > said["batches"] and said["tpb"] > 1 and said["ups"] > 0, said
        report = json.loads(parley("eval", "-t", held_out, "-mf", folder / f"{name}.gguf", "-nt", n_threads, "--json").stdout)
        assert report["exs"] == 200 and report["hits@1"] > 0.9, report
    assert (folder / "one.gguf").read_bytes() == (folder / "again.gguf").read_bytes()
    assert (folder / "one.gguf").read_bytes() != (folder / "two.gguf").read_bytes()
    report = json.loads(parley("eval", "-t", held_out, "-mf", folder / "one.gguf", "-bs", 8, "-dynb", "full", "-tr", 64, "--json").stdout)
    assert report["hits@1"] > 0.9, report


def test_validation(folder):
    """Validations are of held-out data and at most so many examples; the best is kept; patience, a cutoff and time end learning."""
    task, held_out = f"parlai:{folder}/train.txt", f"parlai:{folder}/valid.txt"
    path = folder / "best.gguf"
    more = ["-t", task, "-et", held_out, "--agent", "starspace", "-esz", 16, "-mf", path, "--json"]
    *valid, end = lines(parley("train", *more, "-enorm", 1, "-veps", 0.5, "-vme", 50, "-vmt", "hits@1", "-vp", 3))
    assert end["ended_by"] == "patience" and end["validations"] == len(valid), end
    assert all(v["valid"]["exs"] == 50 for v in valid) and valid[0]["examples"] >= 3000
    scores = [v["valid"]["hits@1"] for v in valid]
    best = scores.index(max(scores))
    assert best == len(valid) - 4 and end["best"] == scores[best] and end["best_examples"] == valid[best]["examples"]
    report = json.loads(parley("eval", "-t", held_out, "-ne", 50, "-mf", path, "--json").stdout)
    assert report["hits@1"] == end["best"], "the file is the best one's"
    *valid, end = lines(parley("train", *more, "-enorm", 1, "-veps", 0.5, "-vmt", "hits@1", "-vcut", 0.5))
    assert end["ended_by"] == "cutoff" and valid[-1]["valid"]["hits@1"] >= 0.5 and all(v["valid"]["hits@1"] < 0.5 for v in valid[:-1])
    end = lines(parley("train", *more, "-ttim", 0.3, "-nt", 2))[-1]
    assert end["ended_by"] == "time" and 0.3 <= end["seconds"], end
    *valid, end = lines(parley("train", *more, "-ttim", 1, "-vtim", 0.2, "-vmt", "f1", "-vmm", "min", "-vp", 1000))
    assert end["ended_by"] == "time" and end["best"] == min(v["valid"]["f1"] for v in valid), end
    told = parley("train", *more, "-eps", 1, "-ltim", 1).stderr
    assert "exs" not in told or "loss" in told
    for words, says in [
        (["-eps", 1, "-vmm", "most"], "max or min"),
        ([], "the training would never end"),
        (["-eps", 1, "-veps", 0], "above 0"),
        (["-eps", 1, "-veps", 1, "-vp", 0], "patience"),
    ]:
        assert says in parley("train", *more, *words, status=2).stderr, words
    short = ["-t", task, "--agent", "starspace", "-mf", path, "-eps", 1]
    assert "best.gguf is replaced by a new agent" in parley("train", *short, "--load-from-checkpoint", "false").stderr
    for words in [], ["-veps", 1]:
        told = parley("train", *short, "-et", held_out, *words).stderr
        assert ("--evaltask has no effect" in told) == (words == []), told
    for words in ["-im", path], ["-mf", folder / "first.gguf"]:
        assert "replaced" not in parley("train", *short, *words).stderr, words
    for words, says in [([], "--agent is missing"), (["-m", "lm"], "'lm'"), (["-m", "unigram"], "--dict-file")]:
        assert says in parley("train", "-t", task, "-mf", path, "-eps", 1, *words, status=2).stderr, words
    for words, says in [
        (["-eps", 1, "-lr", 0], "learning_rate"),
        (["-eps", 1, "-esz", 5000], "embedding_size"),
        (["-eps", 1, "-veps", 1, "-vmt", "charm"], "charm"),
        (["-eps", 1, "-im", folder / "train.txt"], "train.txt"),
    ]:
        assert says in parley("train", *more, *words, status=1).stderr, words


def test_starspace_is_served(folder):
    """The file talks: in parleyd, with itself, and with a person; and what is no such file is refused."""
    path = folder / "one.gguf"
    with Parleyd(PARLEYD, "--model", f"space={path}") as client:
        c = client.open("space")
        said = [client.conversations.Ask(conversations.TurnRequest(conversation=c, text=t)).message.text for t in ("q3 q5 q8", "n1")]
        fork = client.fork(c, at_turn=1)
        again = client.conversations.Ask(conversations.TurnRequest(conversation=fork, text="n1")).message.text
    assert {"a3", "a5", "a8"} & set(said[0].split()), said
    assert again == said[1]
    chat = parley("self-chat", "--model", path, "--opening", "q3 q5 q8", "--turns", 2).stdout.splitlines()
    assert chat[:2] == ["A: q3 q5 q8", f"B: {said[0]}"] and len(chat) == 4, chat
    assert parley("interactive", "--model", path, input="q3 q5 q8\n").stdout == f"[Starspace]: {said[0]}\n"
    damaged = folder / "damaged.gguf"
    whole = path.read_bytes()
    damaged.write_bytes(whole[: len(whole) - 64])
    assert "damaged.gguf" in parley("interactive", "--model", damaged, status=1, input="").stderr
    at = whole.index(b"starspace.max_norm") + len("starspace.max_norm") + 4
    damaged.write_bytes(whole[:at] + b"\0\0\0\0" + whole[at + 4:])
    assert "max_norm" in parley("interactive", "--model", damaged, status=1, input="").stderr
    assert "parley train" in parley("interactive", "--agent", "starspace", status=1, input="").stderr
    assert "parley train" in parley("self-chat", "--agent", "starspace", status=1).stderr
    for verb, agent in itertools.product(("interactive", "self-chat"), ("seq2seq", "lm")):
        said = parley(verb, "--agent", agent, "--model", path, status=1, input="").stderr
        assert f"one.gguf is a file of --agent starspace, not of {agent}" in said, said
    assert "--world" in parley("self-chat", "--agent", "repeat_query", "--model", path, status=2).stderr


# --- Seq2Seq ---


def write_echo_task(path, n, seed):
    """The label is the text's last word but one, in another alphabet; most texts are short, some are long."""
    chance = random.Random(seed)
    with open(path, "w") as out:
        for _ in range(n):
            words = [chance.randrange(12) for _ in range(2 + min(20, int(chance.paretovariate(1.1))))]
            out.write(f"text:{' '.join(f'w{w}' for w in words)}\tlabels:v{words[-2]} .\tepisode_done:True\n")
    return f"parlai:{path}"


def test_seq2seq(folder):
    """It learns under dynamic batching, the same each time; reports have the same bits in every batch; the file talks."""
    task, held_out, path = write_echo_task(folder / "echo.txt", 1500, 3), write_echo_task(folder / "held.txt", 60, 4), folder / "echo.gguf"
    more = ["-t", task, "--agent", "seq2seq", "-esz", 24, "-hs", 32, "-lr", 0.01, "-eps", 6, "--threads", 1, "-tr", 32, "-bs", 4, "--json"]
    *valid, end = lines(parley("train", *more, "-dynb", "full", "-et", held_out, "-veps", 2, "-vmt", "ppl", "-mf", path))
    assert end["examples"] == 9000 and end["best"] == min(v["valid"]["ppl"] for v in valid) < 1.3, end
    assert end["words"] < end["padded"] and end["batches"] < 9000 / 8, end
    parley("train", *more, "-dynb", "full", "-et", held_out, "-veps", 2, "-vmt", "ppl", "-mf", folder / "again.gguf")
    assert path.read_bytes() == (folder / "again.gguf").read_bytes()
    reports = {
        parley("eval", "-t", held_out, "-mf", path, "-tr", 32, "--json", *ways).stdout
        for ways in ([], ["-bs", 7], ["-bs", 4, "-nt", 2], ["-bs", 4, "-dynb", "full"], ["-bs", 5, "-dynb", "batchsort"], ["-bs", 3, "--backend", "ref"])
    }
    assert len(reports) == 1, reports
    report = json.loads(reports.pop())
    assert report["accuracy"] > 0.7 and report["ppl"] < 1.3 and report["token_em"] > 0.7, report
    for kind in ("none", "batchsort"):
        said = lines(parley("train", *more[:-1], "-eps", 1, "-dynb", kind, "-mf", folder / "other.gguf", "--json"))[-1]
        assert said["examples"] == 1500 and said["batches"] >= 1500 / 4, said
    said = lines(parley("train", *more[:-1], "-eps", 1, "-nt", 2, "-im", path, "-mf", folder / "other.gguf", "-et", held_out, "-veps", 1, "-vmt", "ppl", "--json"))
    assert said[-1]["examples"] == 1500 and said[-1]["best"] < 1.5, said  # two threads go on with what one has learned
    went_on = lines(parley("train", *more, "-eps", 1, "-im", path, "-mf", folder / "other.gguf", "-et", held_out, "-veps", 1, "-vmt", "loss"))
    assert went_on[0]["valid"]["loss"] < 0.3, went_on
    said = parley("interactive", "--model", path, input="w5 w6\n").stdout
    assert re.fullmatch(r"\[Seq2Seq\]: v\d+ \.\n", said), said
    assert parley("self-chat", "--model", path, "--opening", "w5 w6", "--turns", 1).stdout == f"A: w5 w6\nB: {said.split(': ')[1]}"
    with Parleyd(PARLEYD, "--model", f"pair={path}", "--http", "127.0.0.1:0") as client:
        serve_seq2seq(client, path)
    for words, says in [(["-lr", 0], "learning_rate"), (["-hs", 0], "hidden_size"), (["--backend", "cuda"], "cuda")]:
        assert says in parley("train", *more, *words, "-mf", folder / "other.gguf", status=1).stderr, words
    damaged = folder / "damaged.gguf"
    damaged.write_bytes(path.read_bytes().replace(b"writer.in.bias", b"writer.in.boas"))
    assert "writer.in.bias" in parley("interactive", "--model", damaged, status=1, input="").stderr


def serve_seq2seq(client, path):
    """Replies are self-chat's in conversations, forked and rewound ones, over HTTP, and of many clients at once."""
    chat = [line[3:] for line in parley("self-chat", "--model", path, "--opening", "w5 w6", "--turns", 4).stdout.splitlines()]

    def ask(c, text):
        return client.conversations.Ask(conversations.TurnRequest(conversation=c, text=text)).message.text

    c = client.open("pair")
    assert [ask(c, chat[0]), ask(c, chat[2])] == [chat[1], chat[3]], chat[:4]
    fork = client.fork(c, at_turn=1)
    assert ask(fork, chat[2]) == chat[3]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        opened = [client.open("pair") for _ in range(8)]
        texts = [f"w{i} w{(5 * i + 1) % 12}" + " w3" * i for i in range(8)]
        many = list(pool.map(ask, opened, texts))
    assert many == [ask(client.open("pair"), text) for text in texts] and len(set(many)) > 1, many
    body = {"model": "pair", "messages": [{"role": r, "content": t} for r, t in zip(("user", "assistant", "user"), chat)]}
    asked = urllib.request.Request(f"http://{client.http}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=children.PATIENCE) as answer:
        assert json.load(answer)["choices"][0]["message"]["content"] == chat[3]


# --- killed ---


def killed_trainings(folder):
    """A training of each kind: batches, conversations of several turns, data by chance and in order, validations."""
    space, pair = folder / "long.txt", folder / "echo.txt"
    write_task(space, 900, 8)
    text = open(space).read().splitlines(keepends=True)
    with open(space, "w") as out:  # every third turn ends its conversation
        out.writelines(line if i % 3 == 2 else line.replace("\tepisode_done:True", "") for i, line in enumerate(text))
    write_task(folder / "held_out.txt", 40, 9)
    yield "starspace", ["-t", f"parlai:{space}", "-et", f"parlai:{folder}/held_out.txt", "-esz", 16, "-enorm", 1, "-cs", 50, "-eps", 4, "-veps", 0.9,
                        "-vmt", "hits@1", "--seed", 5]
    yield "seq2seq", ["-t", f"parlai:{pair}", "-et", f"parlai:{folder}/held.txt", "-dt", "train:ordered", "-esz", 16, "-hs", 16, "-eps", 2, "--threads", 1,
                      "-tr", 32, "-bs", 4, "-dynb", "full", "-veps", 0.6, "-vmt", "ppl", "-vme", 20]


def test_killed(folder):
    """However often a training is killed with -9, wherever that is, the same command goes on from the last checkpoint, to the same file and validations."""
    for kind, words in killed_trainings(folder):
        more = ["train", "--agent", kind, *map(str, words), "--json"]
        told, whole = run_all(more, folder / f"{kind}-whole.gguf")
        assert told[-1]["ended_by"] == "epochs" and len(told) >= 4, told
        assert not os.path.exists(f"{folder}/{kind}-whole.gguf.checkpoint")
        # At an event: a line of a validation, wherever the training is by the time that the signal comes.
        path = folder / f"{kind}-signal.gguf"
        learning = children.start([PARLEY, *more, "-mf", str(path), "--save-after-valid", "true"], stdout=-3, stderr=-1, text=True)  # -3: DEVNULL
        n_seen = sum(1 for _ in itertools.islice((line for line in learning.stderr if line.startswith("valid:")), 2))
        learning.send_signal(signal.SIGKILL)
        code = learning.wait(children.PATIENCE)
        learning.stderr.close()
        assert n_seen == 2 and code in (-signal.SIGKILL, 0), (n_seen, code)
        assert run_all(more, path)[1] == whole, kind
        if not KILL_AT_RENAME:
            continue
        # Before each file gets its name: the best agents, and the checkpoints.
        path, lives = folder / f"{kind}-points.gguf", 0
        env = {**os.environ, "LD_PRELOAD": KILL_AT_RENAME[0], "PARLEY_KILL_AT_RENAME": "2"}
        while True:
            has_checkpoint = os.path.exists(f"{path}.checkpoint")
            done = children.run([PARLEY, *more, "-mf", str(path), "-sval", "true"], capture_output=True, text=True, timeout=4 * children.PATIENCE, env=env)
            assert ("continues from" in done.stderr) == has_checkpoint, done.stderr
            if done.returncode == 0:
                break
            assert done.returncode == -signal.SIGKILL, done
            lives += 1
            env["PARLEY_KILL_AT_RENAME"] = str(2 + lives % 2)
            assert lives < 40, "each life comes further"
        assert lives >= 3, lives
        end = lines(done)[-1]
        same = ("examples", "validations", "best", "best_examples", "ended_by")
        assert [end[k] for k in same] == [told[-1][k] for k in same], (end, told[-1])
        assert path.read_bytes() == whole, kind
        assert not os.path.exists(f"{path}.checkpoint")


def run_all(more, path):
    """What a training says when nobody kills it, and its file."""
    done = parley(*more, "-mf", path)
    return lines(done), path.read_bytes()


def test_checkpoints_are_refused(folder):
    """One of other options or data says which; it is left alone, and begins anew when it is told to; a damaged one says so and what to do, and no other stays."""
    kind, words = next(iter(killed_trainings(folder)))
    path = folder / "other.gguf"
    more = ["train", "--agent", kind, *map(str, words), "-mf", path, "--json"]
    learning = children.start([PARLEY, *map(str, more), "-eps", "100000", "-vp", "1000000"], stdout=-3, stderr=-1, text=True)
    next(line for line in learning.stderr if line.startswith("valid:"))
    learning.send_signal(signal.SIGINT)  # writes the file, and a checkpoint
    assert learning.wait(children.PATIENCE) == 0
    learning.stderr.close()
    checkpoint = pathlib.Path(f"{path}.checkpoint")
    kept = checkpoint.read_bytes()
    assert "--seed 5, not 6" in parley(*more, "--seed", 6, status=1).stderr
    assert "--embeddingsize 16, not 8" in parley(*more, "-esz", 8, status=1).stderr
    whole = (folder / "long.txt").read_text()
    (folder / "long.txt").write_text(whole + "text:a\tlabels:b\tepisode_done:True\n")
    assert "901 examples now and had 900" in parley(*more, status=1).stderr
    (folder / "long.txt").write_text(whole)
    assert "this training ends after" in parley(*more, "-eps", 0.001, "-dt", "train", status=1).stderr
    for damaged in (kept[: len(kept) // 2], kept.replace(b'"examples":', b'"exemples":'), kept.replace(b"learner.cache", b"learner.cachd")):
        checkpoint.write_bytes(damaged)
        said = parley(*more, status=1).stderr
        assert "other.gguf.checkpoint" in said and said.endswith("use --load-from-checkpoint false to begin a new training\n"), said
        assert checkpoint.read_bytes() == damaged
    assert lines(parley(*more, "--load-from-checkpoint", "false", "-eps", 1))[-1]["ended_by"] == "epochs"
    assert not checkpoint.exists()
    checkpoint.mkdir()  # none can be written: said, and learning goes on
    done = parley(*more, "--load-from-checkpoint", "false", "-eps", 2, "-sval", "true")
    assert "cannot write a checkpoint: " in done.stderr and lines(done)[-1]["ended_by"] == "epochs", done
    checkpoint.rmdir()


# --- preprocessed data ---


RATES = "seconds", "exps", "ups"  # by the clock


def write_episodes(path, seed, n=150):
    """Of three turns: what an agent hears is the history too."""
    chance = random.Random(seed)
    with open(path, "w") as out:
        for i in range(n):
            for turn in range(3):
                text, label = (" ".join(f"w{chance.randrange(50)}" for _ in range(k)) for k in (12, 4))
                more = f"|or {label}" if i % 4 == 0 else ""
                out.write(f"text:{text}\tlabels:{label}{more}" + ("\tepisode_done:True\n" if turn == 2 else "\n"))
    return path


def test_preprocessed(folder):
    """Training and evaluation on what build-data --preprocess wrote give the same bits as on the source; stale data are refused, not used."""
    source = write_episodes(folder / "raw.txt", 1)
    learner = {"starspace": ["-esz", 8], "seq2seq": ["-esz", 8, "-hs", 8, "-bs", 8, "-tr", 40, "--max-tokens", 4]}
    for kind, words in learner.items():
        model, data, bounds = folder / f"of_{kind}.gguf", folder / f"{kind}.data", words[words.index("-tr") :][:2] if "-tr" in words else []

        def trained(task, *more, kind=kind, words=words, status=0):
            path = folder / "again.gguf"
            path.unlink(missing_ok=True)
            done = parley("train", "-t", task, "--agent", kind, *words, "-mf", path, "-dt", "train:ordered", "--json", *more, status=status)
            return done.stderr if status else (path.read_bytes(), [{k: v for k, v in line.items() if "_s" not in k and k not in RATES} for line in lines(done)])

        model.write_bytes(trained(f"parlai:{source}", "-eps", 1)[0])
        built = json.loads(parley("build-data", "-t", f"parlai:{source}", "--datafile", data, "--preprocess", "true", "--model", model, *bounds, "--json").stdout)
        assert built["examples"] == 450 and "text_vec" in data.read_text() and "full_text" not in data.read_text(), built
        for more in (["-eps", 2], ["-eps", 2, "--init-model", model], ["-eps", 2, "-et", "TASK", "-veps", "1"]):
            plain, kept = (trained(task, *(task if word == "TASK" else word for word in more)) for task in (f"parlai:{source}", f"data:{data}"))
            assert plain == kept, more
        own, built = folder / f"own_{kind}.data", trained(f"parlai:{source}", "-eps", 2)
        assert trained(f"parlai:{source}", "-eps", 2, "-pytp", "true", "--datafile", own) == built and "text_vec" in own.read_text(), kind
        assert trained(f"data:{own}", "-eps", 2) == built, kind  # it is the file of this agent
        assert trained(f"data:{own}", "-dt", "train", "-eps", 2) == built, kind  # a stream, of epochs that end
        stream = [*bounds, "-dt", "valid:stream", "--datafile", data, "--model", model, "--json"]
        want = parley("eval", "-t", f"parlai:{source}", "-dt", "valid", "--model", model, *bounds, "--json").stdout
        assert want == parley("eval", "-t", f"data:{data}", "-dt", "valid", "--model", model, *bounds, "--json").stdout
        assert want == parley("eval", "-t", f"parlai:{source}", *stream).stdout
        # what is read back is the vectors, not the texts: other vectors give another file
        changed = folder / "changed.data"
        changed.write_text(data.read_text().replace('"text_vec":[', '"text_vec":[5,5,5,'))
        assert trained(f"data:{changed}", "-eps", 1)[0] != model.read_bytes()
        # of other bounds, of other words, with labels hidden; and its source changed
        for other in ["-histsz", 1], ["-tr", 12]:
            assert "preprocessed for an agent with other words" in trained(f"data:{data}", "-eps", 1, *other, status=1), other
        same = [parley("eval", "-t", task, "-dt", "valid", "-m", "repeat_query", "--json").stdout for task in (f"data:{data}", f"parlai:{source}")]
        assert same[0] == same[1] and json.loads(same[0])["exs"] == 450, same  # another agent reads the texts
        other = folder / "other_words.gguf"
        parley("train", "-t", f"parlai:{write_episodes(folder / 'less.txt', 2, 3)}", "--agent", kind, *words, "-mf", other, "-dt", "train:ordered", "-eps", 1)
        assert "preprocessed for an agent with other words" in parley("eval", "-t", f"data:{data}", "-dt", "valid", "--model", other, *bounds, status=1).stderr
        assert "cannot be hidden" in parley("eval", "-t", f"data:{data}", "-dt", "valid", "--model", model, *bounds, "-hlbl", "true", status=1).stderr
        whole = source.read_text()
        source.write_text(whole + "text:a\tlabels:b\tepisode_done:True\n")
        kept = data.read_bytes()
        assert "build it again with build-data" in parley("eval", "-t", f"parlai:{source}", *stream, status=1).stderr and data.read_bytes() == kept
        source.write_text(whole)
    for task, agent, why in (("data:x", "starspace", "and data:x is one"), ("parlai:x,parlai:y", "seq2seq", "one task"), ("parlai:x", "plugin:x.so", "its vectors itself")):
        assert why in parley("train", "-t", task, "--agent", agent, "-pytp", "true", "-eps", 1, "-mf", folder / "no.gguf", status=1).stderr, task
    assert "cannot use preprocessed vectors" in parley("build-data", "-t", f"parlai:{source}", "--preprocess", "true", "--agent", "repeat_label", status=1).stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_a_step_is_numpys(folder)
        test_starspace_learns(folder)
        test_validation(folder)
        test_starspace_is_served(folder)
        test_seq2seq(folder)
        test_killed(folder)
        test_checkpoints_are_refused(folder)
        test_preprocessed(folder)


main()
