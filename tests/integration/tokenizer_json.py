"""Vocabularies as a tokenizer.json has them: each kind is trained with PyPI's `tokenizers`, put into a folder as
transformers saves it, and read by `parley tokenize`. The ids of random texts must be equal.

usage: tokenizer_json.py PARLEY [TEXTS [SEED]]
"""

import base64
import json
import pathlib
import random
import struct
import sys
import tempfile
import unicodedata
import zlib

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import token_ids  # noqa: E402

BLANK = "\u2581"
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4 = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
QWEN35 = SHORT + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(ending, digits):
    return (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ending}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ending}|"
            rf"{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*" + TAIL)


def splits(*patterns, behavior="isolated", invert=False):
    return [pre_tokenizers.Split(Regex(p), behavior, invert) for p in patterns] + [pre_tokenizers.ByteLevel(False, use_regex=False)]


DIGITS, GPT2 = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
# Byte-level BPE: the steps of the pre_tokenizer as the models' files have them, and what is replaced of the model.
BYTE_LEVEL = {
    "gpt-2": ([GPT2], {}),
    "smollm": ([DIGITS, GPT2], {}),
    "llama-3": (splits(GPT4 % r"\p{N}{1,3}"), {"ignore_merges": True}),
    "olmo-2": (splits(GPT4 % r"\p{N}{1,3}"), {}),
    "phi-4": (splits(GPT4 % r"\p{N}{1,3}", behavior="removed", invert=True), {}),
    "qwen2": (splits(GPT4 % r"\p{N}"), {}),
    "qwen3.5": (splits(QWEN35), {}),
    "tekken": (splits(cased("", r"\p{N}")), {"ignore_merges": True}),
    "o200k": (splits(cased(SHORT + "?", r"\p{N}{1,3}")), {}),
    "o200k whole": (splits(cased(SHORT + "?", r"\p{N}{1,3}")), {"ignore_merges": True}),
    "deepseek-v3": (splits(*token_ids.KINDS["deepseek-v3"][0]), {}),
    "deepseek-coder": (splits(*token_ids.KINDS["deepseek-coder"][0][:-1])[:-1] + [DIGITS, pre_tokenizers.ByteLevel(False, use_regex=False)], {}),
}
# The same, of composed text.
NFC = {"qwen2 NFC", "text NFC"}
BYTE_LEVEL["qwen2 NFC"] = BYTE_LEVEL["qwen2"]
REPLACE = normalizers.Replace(" ", BLANK)
GEMMA = pre_tokenizers.Split(" ", "merged_with_previous")
# BPE of characters: normalizer, pre_tokenizer, what is replaced of the model, and user-defined tokens.
CHARACTERS = {
    "llama 2": (normalizers.Sequence([normalizers.Prepend(BLANK), REPLACE]), None, {}, ["<tool>"]),
    "phi-3": (normalizers.Sequence([normalizers.Prepend(BLANK), REPLACE]), None, {"ignore_merges": True},
              [AddedToken("<tool>", normalized=False, rstrip=True)]),
    "gemma": (REPLACE, GEMMA, {}, ["<tool>", "\n", "\n\n", "\n\n\n", BLANK * 2, BLANK * 3, BLANK * 4]),
    "mistral": (None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), {}, ["<tool>"]),
    "words": (None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True), {},
              [AddedToken("<tool>", normalized=False, lstrip=True)]),
    "text NFC": (normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(BLANK), REPLACE]), None, {}, ["<tool>"]),
    "no prefix": (None, pre_tokenizers.Metaspace(prepend_scheme="never", split=False), {}, ["<tool>"]),
}

# A table of characters by SentencePiece: ligatures, widths, white space, accents behind letters, and what is left out.
CHARSMAP = base64.b64encode(zlib.decompress(base64.b64decode(
    "eNol03dsTWEcxvHnnF4R0kYkEiT+qITYN1okRYm996hNSlpqltrztmqrFkXV6KVVbalZRXWgRnHtVVurw0xr7/E9cZJPnt97Tt6c857398omyV"
    "3W5TA8JFe0KYM63tdNLndTYW2kWowrt5AqteR5DVOhFaSa3PNoIDHFURFxFNVIR7ipRJ67WbXNlKO3lMPYk3HSPCmi/P/8qozTySqkc70Uw/zq"
    "1LX5kP1FpuqRdVAXDdEI9cErZUfqYakx2QTeaIYjnyUvMjPYVFZTU82p+Wy1Qmv4gCWoLbKOSb4ky1MHdEQ7tEcXdEUndEYP9EQ3dEcf9EUvsD"
    "wNwED0Q3/4YQgGYTCGYwSGYhhGYwxGYhTGYhz800z5k4EYjwD+ZQA5EZMwAUGYimmYjCmYgRAEYzpmYw5mYhbmYwHmgi3QYizBQixCGJZaDYBQ"
    "LMcKhGMZVmMNVmIV1iESaxGBDdiIKLCV2owtiMYmxGIbYrAVOxGH7diB3YiHE7uQiL1IwB6kYB+SkIwDOGj1idUH1r7jKA6BtlA6jiMNbLMycA"
    "oncBLZyLH6xOoD5PoYOmszdJr6DC7gIs7hPC7jCvJwCddwHS5cxS3cxg3cxD3cxx3cxUM8Qj4e4Cme4TGe4EW+ocI8Q8+pC1CCUhShGK/xBi/x"
    "CmVRhsrIt3iHD/iIcrzHF3zFJ3Ak9AM/8Q3f8Qd/8Qu/rZPvKbvdLq/C0HBvDpOfAoMUEkK75CarICNVJc6U4szIoszY0oRs/QN9PLES"))).decode()
PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
META = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}
STRIP = {"type": "Strip", "strip_left": False, "strip_right": True}
SQUEEZE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": BLANK}
ENCODERS_TEXTS = ["a ", "a  b", " trailing \n", "x\u3000y\ttab\nnl\r\n", "don't re-do it...", "[CLS] x [SEP]", "a" * 101, "b" * 99, "é" * 100,
                  "\u00ad soft\u200bzero", "\0a\x01b", "İstanbul ΣΑΣ ǅ", "ﬁne ½ ①", "日本語テスト한국어", "ｆｕｌｌ　ｗｉｄｔｈ", "𠀀𠀁ab", "👩‍👩‍👧‍👦", "e\u0301e\u0301\u0302"]
# WordPiece: lowercase, strip_accents.
WORD_PIECE = {"uncased": (True, None), "cased": (False, False), "uncased accents": (True, False), "cased bare": (False, True)}
# Unigrams: normalizer, pre_tokenizer.
UNIGRAMS = {
    "xlm-r": (PRECOMPILED, {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, META]}),
    "bge-m3": ({"type": "Sequence", "normalizers": [PRECOMPILED, SQUEEZE]}, META),
    "stripped": ({"type": "Sequence", "normalizers": [PRECOMPILED, STRIP, SQUEEZE]}, META),
    "bare": (None, META),
}


def folder_of(path, tokenizer):
    path.mkdir()
    config = {"model_type": "llama", "tie_word_embeddings": True, "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
              "num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
              "vocab_size": 1, "bos_token_id": 1, "eos_token_id": 2}
    for name, value in {"config": config, "tokenizer": tokenizer}.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    head = json.dumps({"model.norm.weight": {"dtype": "F32", "shape": [32], "data_offsets": [0, 128]}}).encode()
    (path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(128))
    return path


def train(corpus, normalizer, pre_tokenizer, n, first, added, alphabet=(), limit=None):
    t = Tokenizer(models.BPE(byte_fallback=not alphabet, unk_token="<unk>"))
    t.normalizer, t.pre_tokenizer = normalizer, pre_tokenizer
    more = {} if limit is None else {"limit_alphabet": limit}
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=n, show_progress=False, special_tokens=first,
                                                      initial_alphabet=list(alphabet), **more))
    t.add_tokens([token if isinstance(token, AddedToken) else AddedToken(token, normalized=False) for token in added])
    return json.loads(t.to_str())


def byte_level(corpus, steps, model, normalizer):
    sequence = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    file = train(corpus, normalizer, sequence, 1500, SPECIAL, ["<tool>"], pre_tokenizers.ByteLevel.alphabet())
    file["model"] |= model
    return file


def characters(corpus, normalizer, pre_tokenizer, model, added):
    """Tokens of bytes are no special tokens there: text that spells one is text."""
    corpus = [text.replace("\0", "") for text in corpus if "<" not in text]
    lined = pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), "isolated")  # to train on shorter pieces
    normalizer_to_train = normalizer or REPLACE
    file = train(corpus, normalizer_to_train, lined, 2500, SPECIAL + BYTES, added, limit=800)
    used = Tokenizer(models.BPE())
    if normalizer is not None:
        used.normalizer = normalizer
    if pre_tokenizer is not None:
        used.pre_tokenizer = pre_tokenizer
    used = json.loads(used.to_str())
    file["normalizer"], file["pre_tokenizer"] = used["normalizer"], used["pre_tokenizer"]
    file["added_tokens"] = [token for token in file["added_tokens"] if token["content"] not in BYTES]
    file["model"] |= model
    return file


def word_piece(corpus, lowercase, strip_accents):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents), \
        pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=2500, show_progress=False,
                                                            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    return json.loads(t.to_str())


def unigrams(corpus, normalizer, pre_tokenizer):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator([text.replace("\0", "") for text in corpus[:150]], trainers.UnigramTrainer(vocab_size=2500, show_progress=False, special_tokens=["<s>", "</s>", "<unk>"],
                                                                unk_token="<unk>"))
    file = json.loads(t.to_str()) | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    scores = struct.unpack(f"{len(file['model']['vocab'])}f", struct.pack(f"{len(file['model']['vocab'])}f", *(s for _, s in file["model"]["vocab"])))
    file["model"]["vocab"] = [[text, score] for (text, _), score in zip(file["model"]["vocab"], scores)]  # as SentencePiece's are
    return file


def is_new(c):
    """A mark that is younger than the Unicode of PyPI's tokenizers."""
    kind = unicodedata.category(c)
    return kind[0] == "P" and len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(c + "a")) == 1 or \
        kind == "Mn" and normalizers.StripAccents().normalize_str(c) == c or \
        kind[0] == "C" and normalizers.BertNormalizer(lowercase=False).normalize_str(c) == c


def without_special(file):
    return file | {"added_tokens": [token for token in file["added_tokens"] if not token["special"]]}


def wrong_ids(parley, path, file, samples, is_trusted):
    theirs = Tokenizer.from_str(json.dumps(file if is_trusted else without_special(file)))
    lines = token_ids.lines(parley, "tokenize", path, [{"text": t, "parse_special": is_trusted} for t in samples])
    return [(t, a["ids"], ids) for t, a in zip(samples, lines) if a["ids"] != (ids := theirs.encode(t, add_special_tokens=False).ids)]


def lost_texts(parley, path, samples, is_blank):
    """Those that do not come back, though U+2581 or a space that could be the prefix does not hide it. Behind
    <tool> the prefix comes back as a space, in transformers too."""
    samples = [t for t in samples if not is_blank or (BLANK not in t and "<tool>" not in t and not t.startswith(" "))]
    ids = [{"ids": a["ids"]} for a in token_ids.lines(parley, "tokenize", path, [{"text": t} for t in samples])]
    return [t for t, a in zip(samples, token_ids.lines(parley, "detokenize", path, ids)) if a["text"] != t]


def composed(text):
    return unicodedata.normalize("NFC", text)


def check(parley, folder, name, file, samples):
    if name == "gemma" or name in UNIGRAMS:  # runs of U+2581 in text are taken for spaces, which merge in another way
        samples = [t.replace(BLANK, " ") for t in samples]
    if name in NFC:  # PyPI's tokenizers know no mark that is younger than Unicode 10; Python's unicodedata does
        samples = [t for t in samples if normalizers.NFC().normalize_str(t) == composed(t)]
    if name in WORD_PIECE:
        samples = [t for t in samples if not any(map(is_new, set(t)))]
    if name in UNIGRAMS:  # they find a special token in text of which it is said that it has none
        samples = [t for t in samples if not any(s in t for s in SPECIAL)]
    path = folder_of(folder / name, file)
    wrong = wrong_ids(parley, path, file, samples, False) + wrong_ids(parley, path, file, samples, True)
    given = [composed(t) for t in samples] if name in NFC else samples
    is_lossy = name in WORD_PIECE or name in UNIGRAMS
    lost = [] if is_lossy else lost_texts(parley, path, given, file["model"]["byte_fallback"])
    print(json.dumps({"tokenizer.json": name, "texts": len(samples), "differ": len(wrong), "lost": len(lost)}), flush=True)
    for text, ours, theirs in wrong[:3]:
        print(f"  {text!r}\n    ours   {ours}\n    theirs {theirs}", file=sys.stderr)
    for text in lost[:3]:
        print(f"  does not come back: {text!r}", file=sys.stderr)
    return not wrong and not lost


def main():
    parley, n, seed = sys.argv[1], int((sys.argv + ["300"])[2]) if len(sys.argv) > 2 else 300, 1
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else seed
    rng = random.Random(seed)
    corpus, samples = list(token_ids.texts(400, rng)), list(token_ids.texts(n, rng))
    samples += [unicodedata.normalize("NFD", t) for t in samples[::4]] + ["\u1112\u1161\u11ab", "\u0344", "a\u0323\u0302", "a\u0302\u0323"]
    samples += ["", " ", "  ", " a", BLANK + "a", "<s>", "<s>a", "<s> a", "a<s>b</s>", "<tool> a", "\n\n\n\n\n", "a" * 5000, " " * 70]
    files = {name: byte_level(corpus, *kind, normalizers.NFC() if name in NFC else None) for name, kind in BYTE_LEVEL.items()}
    files |= {name: characters(corpus, *kind) for name, kind in CHARACTERS.items()}
    files |= {name: word_piece(corpus, *kind) for name, kind in WORD_PIECE.items()}
    files |= {name: unigrams(corpus, *kind) for name, kind in UNIGRAMS.items()}
    with tempfile.TemporaryDirectory() as folder:
        is_good = [check(parley, pathlib.Path(folder), name, file, samples + ENCODERS_TEXTS * (name in WORD_PIECE or name in UNIGRAMS))
                   for name, file in files.items()]
    return 0 if all(is_good) else 1


if __name__ == "__main__":
    sys.exit(main())
