"""Words for the prompts of peers that run in process: one token each in SmolLM2's vocabulary. A peer checks what its tokenizer counts."""

WORDS = (
    "the of and to in a is that it was for on are with as his they be at one have this from or had by but some what there we can out other were "
    "all your when up use word how said an each she which do their time if will way about many then them write would like so these her long make "
    "thing see him two has look more day could go come did my sound no most number who over know water than call first people may down side been now find"
).split()


def prompts(chance, n, n_in, n_shared=0):
    """n prompts of n_in words, which begin with the same n_shared."""
    shared = chance.choices(WORDS, k=n_shared)
    return [" ".join(shared + chance.choices(WORDS, k=n_in - n_shared)) for _ in range(n)]
