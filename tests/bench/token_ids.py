#!/usr/bin/env python3
"""Compares Parley's tokenizers with their originals on random texts.

For each kind a small vocabulary is trained with PyPI's `tokenizers` (byte-level BPE) or `sentencepiece` (SPM),
written as a GGUF file without tensors, and read by `parley tokenize`. All ids must be equal.

usage: token_ids.py PARLEY [TEXTS [SEED]]
"""
import json
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

SHORT = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(ending, digits):
    return (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ending}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ending}|"
            rf"{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def gpt4(digits):
    return SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + TAIL


# tokenizer.ggml.pre: the expressions of the model's tokenizer.json, and whether whole words come first
KINDS = {
    'default': ([r'[\p{P}\$\+<=>\^~\|]+', GPT2, r'\p{N}+', '[0-9][0-9][0-9]'], False),
    'gpt-2': ([GPT2], False),
    'smollm': ([r'\p{N}', GPT2], False),
    'falcon': ([r'[\p{P}\$\+<=>\^~\|`]+', GPT2, '[0-9][0-9][0-9]'], False),
    'llama-bpe': ([gpt4(r'\p{N}{1,3}')], True),
    'chatglm-bpe': ([gpt4(r'\p{N}{1,3}')], True),
    'smaug-bpe': ([gpt4(r'\p{N}{1,3}')], False),
    'qwen2': ([gpt4(r'\p{N}')], False),
    'qwen35': ([SHORT + r'|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*'
                r'|\s*[\r\n]+|\s+(?!\S)|\s+'], False),
    'tekken': ([cased('', r'\p{N}')], True),
    'gpt-4o': ([cased(SHORT + '?', r'\p{N}{1,3}')], False),
    'deepseek-v3': ([r'\p{N}{1,3}', '[一-龥\u3040-ゟ゠-ヿ]+',
                     r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                     r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""], False),
    'deepseek-coder': ([r'[\r\n]', r'\s?\p{L}+', r'\s?\p{P}+', '[一-龥ࠀ-一가-\ud7ff]+', r'\p{N}'], False),
}

WORDS = ("the of and to in is that it was for on are as with his they I at be this have from or one had by word but "
         "not what all were we when your can said there use an each which she do how their if will up other about "
         "out many then them these so some her would make like him into time has look two more write go see number "
         "int return void static const struct if (x) == NULL { } // /* */ ;; foo_bar fooBar HTTPServer x->y 0x1F "
         "don't it's WE'LL I'd you're they've I'm Привет мир ПриветМир ΑΒΓ αβγ straße ǅ ʰ नमस्ते हिन्दी ไทย "
         "你好 世界 こんにちは カタカナ 한국어 العربية עברית 3.14 1234567 ½ Ⅷ ٣٤ 🙂 👩‍👩‍👧 ️ e\u0301 ñ").split()
SPACES = [' ', ' ', ' ', ' ', '  ', '   ', '\n', '\n\n', '\r\n', '\t', ' \n', '\u00a0', '\u3000', '\u2028', '', '']


def characters():
    """Assigned characters; those newer than all Unicode tables in use are left out by age."""
    ranges = [(0x20, 0x7f), (0x20, 0x7f), (0xa0, 0x250), (0x2b0, 0x370), (0x370, 0x530), (0x590, 0x700),
              (0x900, 0xe80), (0x1e00, 0x2000), (0x2000, 0x2c00), (0x3000, 0x3100), (0x4e00, 0x9fa6),
              (0xac00, 0xd7a4), (0xfe00, 0xfe70), (0xff00, 0xfff0), (0x1f300, 0x1f650), (0x10400, 0x10450), (0, 0x20)]
    return [[c for c in map(chr, range(*r)) if unicodedata.category(c) not in ('Cn', 'Cs')] for r in ranges]


def texts(n, rng):
    alphabets = characters()
    for _ in range(n):
        parts = []
        for _ in range(rng.randrange(1, 30)):
            kind = rng.random()
            if kind < 0.55:
                parts.append(rng.choice(WORDS))
            elif kind < 0.75:
                alphabet = rng.choice(alphabets)
                parts.extend(rng.choice(alphabet) for _ in range(rng.randrange(1, 8)))
            elif kind < 0.9:
                parts.append(rng.choice("0123456789 \n\t-=!?.'/\"#ß") * rng.randrange(1, 20))
            else:
                parts.append(rng.choice(['<0x0A>', '</s>', '<s>', '<unk>', "'", "''", '▁', '▁▁', '<tool>', '\x00']))
            parts.append(rng.choice(SPACES))
        yield ''.join(parts)


def gguf(path, keys):
    """A GGUF file of these keys: texts, bools, ints, lists of texts, floats or ints."""
    def text(s):
        s = s if isinstance(s, bytes) else s.encode()
        return struct.pack('<Q', len(s)) + s

    out = b'GGUF' + struct.pack('<IQQ', 3, 0, len(keys))
    for name, value in keys.items():
        out += text(name)
        if isinstance(value, bool):
            out += struct.pack('<I?', 7, value)
        elif isinstance(value, int):
            out += struct.pack('<II', 4, value)
        elif isinstance(value, str):
            out += struct.pack('<I', 8) + text(value)
        elif value and isinstance(value[0], float):
            out += struct.pack('<IIQ', 9, 6, len(value)) + struct.pack(f'<{len(value)}f', *value)
        elif value and isinstance(value[0], int):
            out += struct.pack('<IIQ', 9, 5, len(value)) + struct.pack(f'<{len(value)}i', *value)
        else:
            out += struct.pack('<IIQ', 9, 8, len(value)) + b''.join(map(text, value))
    path.write_bytes(out + b'\0' * (-len(out) % 32))


def bpe(path, pre, patterns, is_whole, corpus):
    """Trains and writes one; returns how the original encodes."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE(ignore_merges=is_whole))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), 'isolated') for p in patterns] +
        [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=3000, show_progress=False, special_tokens=['<unk>', '<s>', '</s>'],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    model = json.loads(t.to_str())['model']
    tokens = sorted(model['vocab'], key=model['vocab'].get)
    merges = [m if isinstance(m, str) else ' '.join(m) for m in model['merges']]
    gguf(path, {'tokenizer.ggml.model': 'gpt2', 'tokenizer.ggml.pre': pre, 'tokenizer.ggml.tokens': tokens + ['<tool>'],
                'tokenizer.ggml.token_type': [3, 3, 3] + [1] * (len(tokens) - 3) + [4],
                'tokenizer.ggml.merges': merges, 'tokenizer.ggml.bos_token_id': 1, 'tokenizer.ggml.eos_token_id': 2})
    # In text of users special tokens are text.
    reference = json.loads(t.to_str())
    reference['added_tokens'] = []
    t = Tokenizer.from_str(json.dumps(reference))
    t.add_tokens([AddedToken('<tool>', normalized=False)])
    assert t.token_to_id('<tool>') == len(tokens)
    return lambda text: t.encode(text, add_special_tokens=False).ids


def spm(path, has_prefix, corpus):
    import io
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as proto
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=model, model_type='bpe', vocab_size=9000, byte_fallback=True,
        normalization_rule_name='identity', remove_extra_whitespaces=False, add_dummy_prefix=has_prefix,
        character_coverage=0.99, user_defined_symbols=[] if has_prefix else ['<tool>', '\n\n'], minloglevel=2, split_digits=True,
        allow_whitespace_only_pieces=True)
    m = proto.ModelProto.FromString(model.getvalue())
    names = {'tokenizer.ggml.model': 'llama', 'tokenizer.ggml.pre': 'default',
             'tokenizer.ggml.tokens': [p.piece for p in m.pieces],
             'tokenizer.ggml.scores': [float(p.score) for p in m.pieces],
             'tokenizer.ggml.token_type': [p.type for p in m.pieces],
             'tokenizer.ggml.bos_token_id': 1, 'tokenizer.ggml.eos_token_id': 2,
             'tokenizer.ggml.add_space_prefix': has_prefix}
    gguf(path, names)
    s = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return lambda text: s.encode(text)


def text_bpe(path, corpus):
    """Gemma 4's: merges of characters within lines, U+2581 for a space, bytes for what is no token."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    t = Tokenizer(models.BPE(byte_fallback=True))
    t.normalizer = normalizers.Replace(' ', '\u2581')
    t.pre_tokenizer = pre_tokenizers.Split(Regex(r'[^\n]+|\n+'), 'isolated')
    special = ['<unk>', '<s>', '</s>']
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=4000, limit_alphabet=1000, show_progress=False,
                                                      special_tokens=special + [f'<0x{b:02X}>' for b in range(256)]))
    reference = json.loads(t.to_str())
    reference['added_tokens'] = []
    model = reference['model']
    tokens = sorted(model['vocab'], key=model['vocab'].get)
    merges = [m if isinstance(m, str) else ' '.join(m) for m in model['merges']]
    gguf(path, {'tokenizer.ggml.model': 'gemma4', 'tokenizer.ggml.tokens': tokens,
                'tokenizer.ggml.token_type': [3] * 3 + [6] * 256 + [1] * (len(tokens) - 259),
                'tokenizer.ggml.merges': merges, 'tokenizer.ggml.bos_token_id': 1, 'tokenizer.ggml.eos_token_id': 2})
    t = Tokenizer.from_str(json.dumps(reference))
    return lambda text: t.encode(text, add_special_tokens=False).ids


def lines(parley, verb, path, requests):
    run = subprocess.run([parley, verb, '--model', path], input='\n'.join(map(json.dumps, requests)) + '\n',
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f'parley {verb}: {run.stderr}')
    return [json.loads(line) for line in run.stdout.split('\n') if line]


def compare(parley, name, path, reference, samples):
    ours = [a['ids'] for a in lines(parley, 'tokenize', path, [{'text': t} for t in samples])]
    back = [a['text'] for a in lines(parley, 'detokenize', path, [{'ids': i} for i in ours])]
    wrong = [(t, mine, theirs) for t, mine in zip(samples, ours) if mine != (theirs := reference(t))]
    lost = [t for t, text in zip(samples, back) if text != t and '\u2581' not in t]
    print(json.dumps({'kind': name, 'texts': len(samples), 'equal': len(samples) - len(wrong),
                      'come_back': len(samples) - len(lost)}), flush=True)
    for t, mine, theirs in wrong[:3]:
        print(f'  {t!r}\n    ours   {mine}\n    theirs {theirs}', file=sys.stderr)
    for t in lost[:3]:
        print(f'  does not come back: {t!r}', file=sys.stderr)
    return not wrong and not lost


def main():
    parley, n, seed = sys.argv[1], int((sys.argv + ['20000'])[2] if len(sys.argv) > 2 else 20000), 1
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else seed
    rng = random.Random(seed)
    corpus = list(texts(3000, rng))
    samples = list(texts(n, rng))
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'vocab.gguf'
        for name, (patterns, is_whole) in KINDS.items():
            is_good &= compare(parley, name, path, bpe(path, name, patterns, is_whole, corpus), samples)
        is_good &= compare(parley, 'gemma4', path, text_bpe(path, [c for c in corpus if '<' not in c]), samples)
        for has_prefix in (True, False):
            name = 'spm' if has_prefix else 'spm without prefix'
            is_good &= compare(parley, name, path, spm(path, has_prefix, [c.replace('\0', '') for c in corpus]), samples)
    return 0 if is_good else 1


if __name__ == '__main__':
    sys.exit(main())
