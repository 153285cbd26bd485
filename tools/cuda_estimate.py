"""What the machine code of attention says of whole steps, on paper: the notes of tests/bench/cuda-kernels.txt."""

# A warp's instructions in the inner loops of attention, f16 pages: before and after a warp took a chunk of values for all queries. A loop of
# values has 4 positions, of `queries` queries at once; one of keys 2 pieces of 16 bytes of each of its threads' positions, of 4 queries.
# The kernel is that of the machine code which has the loop now.
BEFORE_VALUES, BEFORE_KEYS = 183, 229  # one query at once, whatever the head
VALUES = {64: 90, 128: 176}            # 4 queries at once
VALUES_8 = {64: 125, 128: 271}
KEYS = {64: 192, 128: 191}
KERNELS = {64: "attend<0, 1u>", 128: "attend<0, 2u>"}

SPAN, WARPS = 256, 8          # positions, and warps, of a block
SMS, SCHEDULERS, ISSUED, HZ = 132, 4, 0.5, 1.7e9  # of an H200; half an instruction a cycle and scheduler
CONTEXT = 512
# name, layers, key heads, queries of each, head's size, {rows: ms of a step by the estimate before}
MODELS = (("SmolLM2", 30, 3, 3, 64, {1: 1.4, 64: 3, 256: 8}),
          ("8B Q4_K", 32, 8, 4, 128, {1: 3.3, 64: 22, 256: 57}))


def span_instructions(head, queries):
    """Before and after, of the block for a span and a key head."""
    keys = WARPS * (2 * head // 32)  # a position a thread
    values = SPAN // 4
    return (keys * BEFORE_KEYS + queries * values * BEFORE_VALUES, keys * KEYS[head] + -(-queries // 4) * values * VALUES[head])


def attention_ms(layers, key_heads, rows, instructions):
    """A block does all spans of a row and key head; fewer blocks than processors leave the others idle."""
    blocks = max(rows * key_heads / SMS, 1)
    return layers * blocks * (CONTEXT // SPAN) * instructions / (SCHEDULERS * ISSUED * HZ) * 1e3


def missing(loops):
    """Loops that are counted here and that no kernel has; loops: those of each kernel."""
    return [f"{KERNELS[head]} has loops of {sorted(loops[KERNELS[head]])}, none of {n}"
            for by_head in (VALUES, VALUES_8, KEYS) for head, n in by_head.items() if n not in loops[KERNELS[head]]]


def notes():
    lines = ["", "Attention of f16 pages on sm_90, instructions of inner loops, before and after a warp took a chunk of",
             "values for all queries (tools/cuda_estimate.py):", "",
             "  loop                                       before   after: 4 queries at once, 8"]
    for head in KERNELS:
        lines.append(f"  values, 4 positions, head of {head:>3}           {BEFORE_VALUES:>6}   {VALUES[head]:>5}, {VALUES_8[head]}; before: 1 query")
        lines.append(f"  keys, 32 bytes a position, head of {head:>3}     {BEFORE_KEYS:>6}   {KEYS[head]:>5}")
    lines += ["", f"Warp instructions of these loops for a span of {SPAN} positions and one key head:"]
    for name, _, _, queries, head, _ in MODELS:
        before, after = span_instructions(head, queries)
        lines.append(f"{name} ({queries} queries, head of {head}) {before / 1e3:.1f}k -> {after / 1e3:.1f}k.")
    lines += ["", f"What follows for a step on an H200 at context {CONTEXT}, on paper, +- 2 times: half an instruction a cycle",
              "and scheduler, at 1.7 GHz; all else as in the estimate before. No GPU has run them.", "",
              "  model, rows          before    after    of which attention"]
    for name, layers, key_heads, queries, head, steps in MODELS:
        before, after = span_instructions(head, queries)
        for rows, ms in steps.items():
            was, now = (attention_ms(layers, key_heads, rows, n) for n in (before, after))
            lines.append(f"  {f'{name}, {rows}':<20} {ms:>4} ms  {ms - was + now:>5.2g} ms    {now:.2g} ms, {was:.2g} before")
    lines += ["", "Products load weights with LDG; they were LD, to any memory. Blocks of the same weights follow one",
              "another (products_many), so that these stream once however many rows there are; in no estimate."]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)
