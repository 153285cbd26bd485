"""Whether the models show a wrong rule: each rule is broken in the definition, and log-probabilities must move by more
than the tolerance that backends have.

usage: mutations.py
"""

import sys

import numpy as np

import models
from test_archs import N_TOKENS, REF_MOST, log_softmax


N_FIRST = 40  # tokens that show most rules, and take a third of the time
MOST_LAYERS = 12  # more take long, and have no rules of their own but one


# the definition sees by the tensors what these say
BY_TENSORS = ("shortconv.l_cache", "attention.sliding_window_pattern", "attention.key_length_swa", "attention.value_length_swa",
              "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank", "ssm.inner_size",
              "full_attention_interval", "attention.recurrent_layers", "attention.shared_kv_layers", "embedding_length_per_layer_input",
              "altup.num_inputs", "altup.active_idx", "leading_dense_block_count", "interleave_moe_layer_step", "expert_shared_count",
              "expert_shared_feed_forward_length")


def mutated(**methods):
    return type("Mutated", (models.Forward,), methods)


def other_halves(forward, x, il):
    """Pairs of the other kind."""
    arch, forward.m.arch = forward.m.arch, "llama" if forward.m.arch in models.HALVES else "qwen2"
    try:
        return models.Forward.rope(forward, x, il)
    finally:
        forward.m.arch = arch


def key_without(*names):
    def key(forward, name, default):
        return default if name in names else models.Forward.key(forward, name, default)
    return mutated(key=key)


def key_as(wrong):
    def key(forward, name, default):
        return wrong.get(name, models.Forward.key(forward, name, default))
    return mutated(key=key)


def without(*ends):
    class Less(models.Forward):
        def __init__(self, model):
            super().__init__(model)
            self.t = {name: x for name, x in self.t.items() if not name.endswith(ends)}
    return Less


def set_without(name, arch):
    """A definition for which the architecture is not in that set of models.py."""
    class Other(models.Forward):
        def hidden(self, ids):
            all_archs = getattr(models, name)
            setattr(models, name, all_archs - {arch})
            try:
                return super().hidden(ids)
            finally:
                setattr(models, name, all_archs)
    return Other


def reversed_taps():
    class Other(models.Forward):
        def __init__(self, model):
            super().__init__(model)
            self.t = {name: x[:, ::-1] if name.endswith("shortconv.conv.weight") else x for name, x in self.t.items()}
    return Other


def other_shares():
    def routing(forward):
        kind, renorm = models.Forward.routing(forward)
        return kind, not renorm
    return mutated(routing=routing)


def other_heads():
    def key_head(forward, j):
        n = forward.m.n
        return j // (n["state_heads"] // n["key_heads"]) if forward.m.arch in models.TILED else j % n["key_heads"]
    return mutated(key_head=key_head)


def chosen_at_once(forward, scores):
    chosen, _ = models.Forward.shares_one_by_one(forward, scores)
    share = np.exp(scores[chosen] - scores[chosen].max())
    return chosen, share / share.sum()


def delta_mutations(m):
    def late(forward, S, k, v, decay, beta):
        return decay * (S + np.outer(k, beta * (v - S.T @ k)))

    def early_gate(forward, o, z, w):
        return models.rms(o * z * models.sigmoid(z), w, forward.m.n["eps"])

    def halves_of_rows(forward, q):
        q, gate = np.split(q, 2, axis=1)
        return q, models.sigmoid(gate)

    def steps(x):
        return x[:, ::-1] if x.ndim == 2 else x

    yield "decay ignored", mutated(delta_step=lambda forward, S, k, v, decay, beta: models.Forward.delta_step(forward, S, k, v, 1.0, beta))
    yield "decay behind the step", mutated(delta_step=late)
    if m.n["state_heads"] != m.n["key_heads"] > 1:
        yield "heads the other way", other_heads()
    yield "no gate of attention", mutated(gated_queries=lambda forward, q: (models.Forward.gated_queries(forward, q)[0], 1.0))
    yield "queries, then gates", mutated(gated_queries=halves_of_rows)
    yield "no SiLU", mutated(convolved=lambda forward, x: x)
    yield "keys of any length", mutated(unit=lambda forward, x: x)
    yield "queries not scaled", mutated(query_scale=lambda forward, dk: 1.0)
    yield "the gate before the norm", mutated(delta_output=early_gate)

    class Reversed(models.Forward):
        def __init__(self, model):
            super().__init__(model)
            self.t = {name: steps(x) if name.endswith("ssm_conv1d.weight") else x for name, x in self.t.items()}
    yield "taps reversed", Reversed


def mamba_mutations(m):
    def early_norm(forward, y, z, w):
        return models.rms(y.reshape(len(y), *np.shape(w)), w, forward.m.n["eps"]).reshape(len(y), -1) * z * models.sigmoid(z)

    def one_group(forward, y, z, w):
        return models.Forward.mamba_output(forward, y, z, np.reshape(w, (1, -1)))

    if not m.n.get("is_bare"):
        yield "the norm before the gate", mutated(mamba_output=early_norm)
    yield "no SiLU", mutated(convolved=lambda forward, x: x)
    yield "no skip", without("ssm_d")
    if m.arch == "falcon-h1":
        yield "one behind the other", mutated(beside=lambda forward, h, mixed: h + mixed)
        yield "no norm before the network", without("ffn_norm")
        yield "no state", mutated(mamba=lambda forward, b, h: 0 * h)
    yield "logarithms of decays", mutated(mamba_decay=lambda forward, a: np.log(-a))
    if m.n["groups"] > 1:
        yield "heads the other way", mutated(mamba_group=lambda forward, j: j % forward.m.n["groups"])
        if not m.n.get("is_bare"):
            yield "one group", mutated(mamba_output=one_group)


def stream_mutations(m):
    def turned(forward, b, X):
        c = (forward.stream_scores(b, X[0]) @ forward.t[b + "altup_predict_coef.weight"].T).reshape(X.shape[1], len(X), len(X))
        return X + np.einsum("tij,itd->jtd", c, X)

    yield "streams of their own sizes", mutated(resized=lambda forward, x, size: x)
    yield "coefficients turned", mutated(predicted=turned)
    yield "nothing predicted", mutated(predicted=lambda forward, b, X: X)
    yield "nothing scored", mutated(stream_scores=lambda forward, b, x: np.zeros((len(x), forward.m.keys["altup.num_inputs"])))
    yield "no product beside attention", mutated(laurel=lambda forward, b, h: h)
    yield "nothing beside attention", mutated(laurel=lambda forward, b, h: 0 * h)
    yield "no scale of the embedding's gate", without("altup_correct_scale.weight")
    yield "values not normed", mutated(gemma4_values=lambda forward, v, eps: v)
    yield "scores scaled", mutated(gemma4_scale=lambda forward, hd: hd ** -0.5)


def llama4_mutations(m):
    def early(forward, at):
        return models.Forward.temperature(forward, at - 1)

    def moving(forward, at):
        return at[:, None] - at[None, :] >= forward.window()

    yield "shares on outputs", mutated(weighed=lambda forward, row, share: (row, share))
    yield "heads normed otherwise", mutated(unit_heads=lambda forward, x: x if m.n["experts"] != 128 else models.rms(x, 1.0, m.n["eps"]))
    if "attention.sliding_window" in m.keys:
        yield "windows that move", mutated(unseen=moving)
        yield "a position that does not count itself", mutated(temperature=early)


def mutations(name, m):
    """(what is wrong, a definition with that)"""
    is_rotated = any(".attn_q" in n for n in m.tensors) and m.keys.get("rope.scaling.finetuned", True)
    if is_rotated and m.arch not in ("gemma4", "gemma3n") and m.arch not in models.HALVED:
        yield "pairs of the other kind", mutated(rope=other_halves)
    for key in m.keys:
        if key in ("rope.scaling.type", "expert_count", "expert_used_count", "expert_feed_forward_length",
                   "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", *BY_TENSORS) or \
                (m.arch == "phi3" and key in ("attention.sliding_window", "rope.scaling.original_context_length")):
            continue
        if m.arch == "gemma4" and key == "attention.sliding_window":
            continue  # it also says how wide heads are
        if (key == "logit_scale" and m.keys[key] == 1.0) or (key == "attention.norms_heads" and m.keys[key]):
            continue  # as without
        if key == "activation_sparsity_scale" and not np.isfinite(m.keys[key]).any():
            continue
        yield "no " + key, key_without(key)
    if "attention.sliding_window" in m.keys and m.arch in models.WINDOW_PATTERN:
        yield "a window one too long", key_as({"attention.sliding_window": m.keys["attention.sliding_window"] + 1})
    if "rope_factors_long.weight" in m.tensors:
        yield "the other factors", key_as({"rope.scaling.original_context_length": 64 if "short" in name else 1024})
    if "expert_used_count" in m.keys:
        yield "an expert less", key_as({"expert_used_count": m.keys["expert_used_count"] - 1})
    parts = {n.split(".", 2)[-1] if n.startswith("blk.") else n for n in m.tensors}
    for part in sorted(parts):
        if part in ("rope_freqs.weight", "layer_output_scale.weight") or part.endswith((".bias", ".scale", "norm.weight", "sinks.weight", "inp_shexp.weight")):
            yield "no " + part, without(part)
    if m.arch.startswith("lfm2"):
        yield "taps reversed", reversed_taps()
    if m.arch in models.GATED:
        yield from delta_mutations(m)
    if "groups" in m.n:
        yield from mamba_mutations(m)
    if m.arch.startswith("nemotron"):
        yield "not squared", mutated(activated=lambda forward, gate, up: np.maximum(gate, 0.0) * up)
        yield "rotated", set_without("HALVED_UNROTATED", m.arch)
    if m.arch == "gemma4":
        yield "values not normed", mutated(gemma4_values=lambda forward, v, eps: v)
        yield "full heads rotated", without("rope_freqs.weight")
        yield "scores scaled", mutated(gemma4_scale=lambda forward, hd: hd ** -0.5)
    if m.arch in models.NORM_AFTER_ROPE:
        yield "heads normed before they are rotated", set_without("NORM_AFTER_ROPE", m.arch)
    if m.arch in models.UNROTATED_GLOBAL and "attention.sliding_window" in m.keys:
        yield "global layers rotated", set_without("UNROTATED_GLOBAL", m.arch)
    if m.arch == "phimoe":
        yield "shares of one each", mutated(near=lambda forward, scores, most: scores == most)
        yield "shares among all", mutated(near=lambda forward, scores, most: scores == scores)
        yield "shares of both over their sum", mutated(shares_one_by_one=lambda forward, scores: chosen_at_once(forward, scores))
    if m.arch in models.LAYER_NORMED:
        yield "norms by the root mean square", set_without("LAYER_NORMED", m.arch)
    if m.arch == "gemma3n":
        yield from stream_mutations(m)
    if m.arch == "llama4":
        yield from llama4_mutations(m)
    if m.keys.get("expert_used_count", 0) < m.n.get("experts", 0) and m.arch not in ("phimoe", "llama4"):
        yield "shares the other way", other_shares()
    if any("norm" in n and "attn_q_norm" in n for n in m.tensors):
        yield "heads not normed", without("attn_q_norm.weight", "attn_k_norm.weight")


def main():
    unseen = []
    for name, model in models.all_models().items():
        if model.n["layers"] > MOST_LAYERS:
            continue
        ids = np.random.default_rng(99).integers(0, model.n["vocab"], N_TOKENS)
        right = log_softmax(models.Forward(model).logits(ids))
        for what, wrong in mutations(name, model):
            for n in N_FIRST, N_TOKENS:  # a position's log-probabilities are of what stands before it alone
                most = np.abs(log_softmax(wrong(model).logits(ids[:n])) - right[:n]).max()
                if most > 2 * REF_MOST:
                    break
            else:
                unseen.append(f"{name}: {what}: {most:.1e}")
    print("\n".join(unseen) or "every mutation is seen")
    sys.exit(1 if unseen else 0)


if __name__ == "__main__":
    main()
