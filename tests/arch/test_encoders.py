"""Every encoder against its definition in float64 (encoders.py), on each backend, and the bits of the same texts batched in
other ways (encode.c). Folders as transformers saves them against recordings (record_saved.py). With mutate: each rule of the definition broken in turn must be seen.

usage: test_encoders.py ENCODE [NAME…]
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

import encoders
import saved_weights
import test_saved

LENGTHS = (64, 1, 17, 70, 33)  # longer than the windows; the first and the fourth are two texts
MOST = {"ref": 1e-4, "cpu": 0.02}  # of a vector's norm


def rows_of(model):
    rng = np.random.default_rng(7)
    rows = []
    for i, n in enumerate(LENGTHS):
        ids = rng.integers(0, model.n["vocab"], n)
        rows.append((ids, n // 3 if i % 3 == 0 else n))
    return rows


def run(encode, folder, path, backend, rows, pooling="0"):
    given, got = folder / "rows", folder / "vectors"
    np.concatenate([np.concatenate([[len(ids), first], ids]) for ids, first in rows]).astype(np.int32).tofile(given)
    done = subprocess.run([encode, path, backend, pooling, given, got], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{path.stem} on {backend}: exit {done.returncode}: {done.stderr.strip()}")
    return np.fromfile(got, np.float32).astype(np.float64).reshape(len(rows), -1)


def furthest(got, want):
    """The greatest difference, as a part of the vector's norm; a score is a number from 0 to 1."""
    scale = 1.0 if want.shape[1] == 1 else np.linalg.norm(want, axis=1, keepdims=True)
    return (np.abs(got - want) / scale).max()


# What an engine might do wrong: method of Forward -> what takes its place
def causal(self, n, il):
    return np.tril(np.ones((n, n), bool))


def whole_window(self, n, il):
    away = np.abs(np.arange(n)[:, None] - np.arange(n))
    return away <= self.m.keys["attention.sliding_window"] if self.is_windowed(il) else away >= 0


def one_base(self, il):
    return self.m.keys["rope.freq_base"]


def one_type(self, ids, n_first):
    return ORIGINAL_EMBED(self, ids, len(ids))


def no_embedding_norm(self, x, name):
    return x if name == "token_embd_norm" else ORIGINAL_NORM(self, x, name)


def all_windowed_but(place):
    return lambda self, il: "attention.sliding_window" in self.m.keys and il % (3 if self.m.arch == "modern-bert" else 6) != place


ORIGINAL_EMBED, ORIGINAL_NORM = encoders.Forward.embed, encoders.Forward.layer_norm
MUTATIONS = (("sees", causal, ("bert", "nomic", "modern", "gemma")), ("sees", whole_window, ("modern", "gemma")),
             ("base", one_base, ("modern", "gemma")), ("embed", one_type, ("bert", "nomic")),
             ("layer_norm", no_embedding_norm, ("bert", "nomic", "modern")),
             ("is_windowed", all_windowed_but(1), ("modern", "gemma")),
             ("rotate", lambda self, x, il: x, ("nomic", "modern", "gemma")))


def check_mutations(got):
    """got: name -> vectors of ref. Each mistake must differ from them."""
    for method, wrong, names in MUTATIONS:
        right = getattr(encoders.Forward, method)
        setattr(encoders.Forward, method, wrong)
        for name in names:
            model = encoders.all_encoders()[name]
            want = np.array([encoders.Forward(model).vector(*row) for row in rows_of(model)])
            assert furthest(got[name], want) > 10 * MOST["ref"], f"{name}: a wrong {method} is not seen"
        setattr(encoders.Forward, method, right)


def published(name, config, tensors):
    """The same as it is published: tables of numbers, sentence-transformers' pooling, GPT-2's names of sizes."""
    if name == "bert":
        return config, tensors | {"embeddings.position_ids": ("I64", (1, 64), bytes(512))}
    if name == "nomic_bert":
        names = {"num_hidden_layers": "n_layer", "hidden_size": "n_embd", "num_attention_heads": "n_head", "intermediate_size": "n_inner",
                 "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon"}
        older = {names.get(k, k): v for k, v in config.items() if k not in ("rope_parameters", "hidden_act")}
        return older | {"rotary_emb_base": 1000, "activation_function": "swiglu", "rotary_emb_fraction": 1.0}, tensors
    if name == "modernbert":
        older = {k: v for k, v in config.items() if k not in ("rope_parameters", "layer_types")}
        return older | {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "global_attn_every_n_layers": 3}, tensors
    return None


def write_dense(path, n_known):
    """Two products behind the model, which together change nothing: the known numbers are turned around, and again."""
    exchange = np.eye(64, dtype=np.float32)
    exchange[:n_known] = exchange[:n_known][::-1]
    for module in ("2_Dense", "3_Dense"):
        (path / module).mkdir()
        (path / module / "config.json").write_text(json.dumps({"activation_function": "torch.nn.modules.linear.Identity"}))
        saved_weights.write(path / module / "model.safetensors", {"linear.weight": ("F32", (64, 64), exchange.tobytes())})
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_Dense": "Dense", "4_Normalize": "Normalize"}
    (path / "modules.json").write_text(json.dumps([{"path": name, "type": f"sentence_transformers.models.{kind}"} for name, kind in modules.items()]))


def check_saved(encode, folder, names):
    """What is wrong with folders."""
    wrong = []
    recorded = json.loads((pathlib.Path(__file__).parent / "saved.json").read_text())
    for name, known in recorded.items():
        if "vectors" not in known or (names and name not in names):
            continue
        tensors = {n: ("F32", shape, saved_weights.values(n, shape, base, scale).tobytes())
                   for n, (shape, base, scale) in known["tensors"].items()}
        rows = [(np.array(ids, np.int32), first) for first, *ids in known["rows"]]
        for i, given in enumerate([(known["config"], tensors), published(name, known["config"], tensors)]):
            if given is None:
                continue
            path = folder / f"{name}_{i}"
            test_saved.write_folder(path, *given)
            (path / "README.md").mkdir()  # which nobody can read, and encoders need not
            if name == "gemma_embedding":
                write_dense(path, len(known["vectors"][0]))
            (path / "1_Pooling").mkdir()
            (path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
            got = run(encode, folder, path, "ref", rows)
            got = got if got.shape[1] == 1 else got / np.linalg.norm(got, axis=1, keepdims=True)
            off = np.abs(got[:, :len(known["vectors"][0])] - known["vectors"]).max()
            print(f"{path.name:20} ref: {off:.1e}", flush=True)
            if not off <= 1e-5:
                wrong.append(f"{path.name}: {off:.2e}")
    gemma = recorded["gemma_embedding"]
    for file, content, words in (("config.json", '{"activation_function": "torch.nn.modules.activation.Tanh"}', "only Identity is supported"),
                                 ("model.safetensors", {"linear.weight": ("F32", (64,), bytes(256))}, "only a matrix of floats"),
                                 ("model.safetensors", {"linear.weight": ("F32", (8, 63), bytes(2016))}, "dense_2.weight"),
                                 ("model.safetensors", None, "2_Dense/model.safetensors"),
                                 ("config.json", None, "2_Dense/config.json is missing: modules.json names this module"),
                                 ("../modules.json", '[{"path": "4_Dense", "type": "sentence_transformers.models.Dense"}]', "only 2_Dense and 3_Dense"),
                                 ("../modules.json", "[", "modules.json")):
        path = folder / "dense_refused"
        shutil.rmtree(path, ignore_errors=True)
        test_saved.write_folder(path, gemma["config"], {
            n: ("F32", shape, saved_weights.values(n, shape, base, scale).tobytes()) for n, (shape, base, scale) in gemma["tensors"].items()})
        write_dense(path, 0)
        if content is None:
            (path / "2_Dense" / file).unlink()
        elif file.endswith(".json"):
            (path / "2_Dense" / file).write_text(content)
        else:
            saved_weights.write(path / "2_Dense" / file, content)
        done = subprocess.run([encode, path, "ref", "0", folder / "rows", folder / "vectors"], capture_output=True, text=True, check=False)
        if done.returncode == 0 or words not in done.stderr:
            wrong.append(f"not refused by {words}: {done.stderr}")
    path = folder / "refused"
    config = recorded["bert"]["config"]
    for changed, words in (({}, "is of type 'I32'"), ({"hidden_act": "relu"}, "'hidden_act' is 'relu'"), ({"is_decoder": True}, "'is_decoder' is true"),
                           ({"position_embedding_type": "relative_key"}, "only 'absolute'"), ({"num_hidden_layers": 3}, "blk.2")):
        shutil.rmtree(path, ignore_errors=True)
        test_saved.write_folder(path, config | changed, {n: ("F32" if changed else "I32", shape, bytes(4 * int(np.prod(shape))))
                                                         for n, (shape, _, _) in recorded["bert"]["tensors"].items()})
        done = subprocess.run([encode, path, "ref", "0", folder / "rows", folder / "vectors"], capture_output=True, text=True, check=False)
        if done.returncode == 0 or words not in done.stderr:
            wrong.append(f"not refused by {words}: {done.stderr}")
    return wrong


def main():
    encode, names = sys.argv[1], sys.argv[2:]
    failures, of_ref = [], {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, model in encoders.all_encoders().items():
            if names and name not in names:
                continue
            path = folder / (name + ".gguf")
            model.write(path)
            rows = [(ids[:model.n["ctx"]], first) for ids, first in rows_of(model)]
            want = np.array([encoders.Forward(model).vector(*row) for row in rows])
            for backend, most in MOST.items():
                got = run(encode, folder, path, backend, rows)
                if backend == "ref":
                    of_ref[name] = got
                off = furthest(got, want)
                print(f"{name:14} {backend}: {off:.1e}", end="  ")
                if not off <= most:
                    failures.append(f"{name} on {backend}: {off:.2e}")
            print(flush=True)
        failures += check_saved(encode, folder, names)
    if not names:
        check_mutations(of_ref)
    for text in failures:
        print("FAILED", text)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
