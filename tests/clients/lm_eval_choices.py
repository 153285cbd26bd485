#!/usr/bin/env python3
"""lm_eval's `local-completions`, unmodified, on a multiple-choice task of 200 questions that this script makes: it chooses as the weights do in float
(tests/arch/models.py, the definition of the architecture, with the file's weights), except where two choices are within a hair of each other.

usage: lm_eval_choices.py BUILD_DIR MODEL.gguf [--questions N]      exit 3: a choice differs
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "integration"), HERE]
import children  # noqa: E402
import environments  # noqa: E402

FOLDER = os.path.abspath("build/clients/choices")
SEED = 24
NEAR = 0.35  # nats: weights of 4 bits, with activations of 8, against float
TASK = """task: choices
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
doc_to_choice: "{{{{choices}}}}"
metric_list:
  - metric: acc
"""
# Answers that a model of this size knows, so that its choices are no chance.
FACTS = {
    "The capital of {} is": {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "Japan": "Tokyo", "Egypt": "Cairo", "Russia": "Moscow",
                             "China": "Beijing", "Greece": "Athens", "Cuba": "Havana", "Peru": "Lima", "Norway": "Oslo", "Kenya": "Nairobi", "Austria": "Vienna"},
    "A young {} is called a": {"dog": "puppy", "cat": "kitten", "cow": "calf", "sheep": "lamb", "horse": "foal", "duck": "duckling", "goat": "kid"},
    "The opposite of {} is": {"hot": "cold", "big": "small", "fast": "slow", "up": "down", "old": "young", "light": "dark", "open": "closed", "rich": "poor",
                              "wet": "dry", "full": "empty", "hard": "soft", "early": "late"},
    "The colour of {} is": {"snow": "white", "grass": "green", "blood": "red", "the sky": "blue", "coal": "black", "a lemon": "yellow"},
}


def questions(n):
    chance, out = random.Random(SEED), []
    while len(out) < n:
        form = chance.choice(sorted(FACTS))
        thing = chance.choice(sorted(FACTS[form]))
        others = chance.sample(sorted(set(FACTS[form].values()) - {FACTS[form][thing]}), 3)
        choices = others + [FACTS[form][thing]]
        chance.shuffle(choices)
        known = chance.choice([t for t in sorted(FACTS[form]) if t != thing])  # an example before it makes each question another
        out.append({"question": f"{form.format(known)} {FACTS[form][known]}. {form.format(thing)}", "choices": choices,
                    "answer": choices.index(FACTS[form][thing])})
    return out


REFERENCE = """
import json, sys
sys.path.insert(0, {arch!r})
import gguf, numpy as np
import models
reader = gguf.GGUFReader({model!r})
def key(name):
    return reader.fields["llama." + name].contents()
model = models.Model("llama", 0, layers=key("block_count"), d=key("embedding_length"), heads=key("attention.head_count"), kv=key("attention.head_count_kv"),
                     hd=key("embedding_length") // key("attention.head_count"), ff=key("feed_forward_length"), ctx=key("context_length"),
                     eps=key("attention.layer_norm_rms_epsilon"), base=key("rope.freq_base"))
forward = models.Forward(model)
forward.t = {{t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}}
for i, line in enumerate(sys.stdin):
    if i % 100 == 0:
        print(f"the reference: {{i}} of {n} endings", file=sys.stderr, flush=True)
    ids, n_asked = json.loads(line)
    y = forward.logits(np.array(ids[:-1]))[n_asked - 1:]
    y -= y.max(axis=1, keepdims=True)
    y -= np.log(np.exp(y).sum(axis=1, keepdims=True))
    print(float(sum(y[i, t] for i, t in enumerate(ids[n_asked:]))), flush=True)
"""


def reference(python, model, prompts):
    """The log-probability of each ending: pairs of ids and how many of them are the question's."""
    script = REFERENCE.format(arch=os.path.join(HERE, "..", "arch"), model=os.path.abspath(model), n=len(prompts))
    done = subprocess.run([python, "-c", script], input="".join(json.dumps(p) + "\n" for p in prompts), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the reference ended with {done.returncode}")
    return [float(x) for x in done.stdout.split()]


def ids_of(http, texts):
    import urllib.request
    out = []
    for text in texts:
        request = urllib.request.Request(f"http://{http}/tokenize", json.dumps({"prompt": text, "add_special_tokens": False}).encode())
        with urllib.request.urlopen(request) as answer:
            out.append(json.load(answer)["tokens"])
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--questions", type=int, default=200)
    options = parser.parse_args()
    python = environments.python_of("lm_eval")
    os.makedirs(FOLDER, exist_ok=True)
    asked = questions(options.questions)
    with open(f"{FOLDER}/choices.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(q) + "\n" for q in asked)
    with open(f"{FOLDER}/choices.yaml", "w", encoding="utf-8") as file:
        file.write(TASK.format(data=f"{FOLDER}/choices.jsonl"))
    for old in glob.glob(f"{FOLDER}/out/**/*.jsonl", recursive=True):
        os.remove(old)
    with children.Daemon(f"{options.build}/parleyd", "--http", "127.0.0.1:0", "--model", f"smollm2={options.model}") as parley:
        children.run([python, "-m", "lm_eval", "run", "--model", "local-completions", "--tasks", "choices", "--include_path", FOLDER, "--output_path", f"{FOLDER}/out",
                      "--log_samples", "--model_args",
                      f"model=smollm2,base_url=http://{parley.http}/v1/completions,tokenizer_backend=remote,num_concurrent=4,max_retries=1,tokenized_requests=True"],
                     timeout=1500, check=True, env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": f"{FOLDER}/cache", "OPENAI_API_KEY": "none"})
        prompts = [(q["question"] + " " + c, q["question"]) for q in asked for c in q["choices"]]
        whole, heads = ids_of(parley.http, [p[0] for p in prompts]), ids_of(parley.http, [p[1] for p in prompts])
    [samples] = glob.glob(f"{FOLDER}/out/**/samples_*.jsonl", recursive=True)
    with open(samples, encoding="utf-8") as file:
        said = {s["doc_id"]: [float(r[0][0] if isinstance(r[0], list) else r[0]) for r in s["filtered_resps"]] for s in map(json.loads, file)}
    right = reference(python, options.model, [(w, len(h)) for w, h in zip(whole, heads)])
    n_same = n_near = n_known = 0
    worst = 0.0
    for i, q in enumerate(asked):
        ours, theirs = said[i], right[4 * i:4 * i + 4]
        best = max(range(4), key=lambda c: ours[c])
        wanted = max(range(4), key=lambda c: theirs[c])
        worst = max(worst, *(abs(a - b) for a, b in zip(ours, theirs)))
        n_known += wanted == q["answer"]
        if best == wanted:
            n_same += 1
        elif theirs[wanted] - theirs[best] < NEAR:
            n_near += 1
        else:
            print(f"differs: {q['question']} {q['choices']}: {ours}, by the reference {theirs}")
    print(f"{len(asked)} questions: {n_same} choices as the reference's, {n_near} near-ties, {len(asked) - n_same - n_near} others; "
          f"{n_known} are right; the largest difference of a log-probability is {worst:.3f}")
    sys.exit(0 if n_same + n_near == len(asked) else 3)


main()
