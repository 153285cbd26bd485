"""Language models in a training: replies with their tokens and log-probabilities, several replies to one prompt, and the
log-probabilities of given tokens.

    >>> from parley.language import samples, score
    >>> with parley.connect(ADDRESS) as server:
    ...     prompt = "What is the capital of Germany?"
    ...     group = samples(server, prompt, 4, model="smollm2", temperature=1, max_tokens=8)
    ...     ids = score(server, [prompt], model="smollm2")[0].token_ids
    ...     again = score(server, [ids + reply.token_ids for reply in group], model="smollm2")
    >>> all(reply.logprobs == scored.logprobs[len(ids):] for reply, scored in zip(group, again))
    True

A log-probability is natural, and the model's own: that of temperature 1, before penalties, biases and cuts, whatever the temperature of
the reply was. That of a reply's token and that of the same token scored behind the same tokens are the same, to the last bit."""
from __future__ import annotations

import concurrent.futures
import dataclasses
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parley import wire
from parley.client import Conversation, Server
from parley.keywords import message_of
from parley.v1 import content_pb2, embeddings_pb2
from parley.v1 import scores_pb2 as pb
from parley.wire import Reply, Said

AT_ONCE = 64  # replies of samples that are asked for at the same time


@dataclasses.dataclass(frozen=True)
class Score:
    """The tokens of an input. Each of the others is given all tokens before it: the first has no log-probability, and is 0 here.
    `ranks`: 1 where no token was likelier. `top_logprobs`: with top=n the n likeliest tokens at each place, each as (id,
    log-probability)."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ranks: tuple[int, ...]
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...]

    def total(self, begin: int = 1) -> float:
        """Returns the log-probability of the tokens from the place `begin` on, given those before them."""
        return sum(self.logprobs[begin:])


Scored = str | Sequence[int] | Iterable[Mapping[str, Any]]


def _input(given: Scored, system: str, is_raw: bool) -> pb.ScoreInput:
    if isinstance(given, str):
        if is_raw:
            return pb.ScoreInput(text=given)
        given = [{"role": "user", "text": given}]
    items = list(given)
    if items and all(isinstance(i, Mapping) for i in items):
        return pb.ScoreInput(chat=pb.ScoreChat(system=system, messages=[message_of(content_pb2.Message, "a message", i) for i in items]))  # type: ignore[arg-type]
    return pb.ScoreInput(tokens=embeddings_pb2.EmbeddingTokens(ids=items))  # type: ignore[arg-type]


def score(server: Server, inputs: Iterable[Scored], *, model: str = "", system: str = "", top: int = 0, raw: bool = False) -> list[Score]:
    """Returns how likely the model finds each input. An input is a list of token ids; or what is said in the first turn of a
    conversation, a text or messages, whose tokens are those of the chat template, up to where the reply begins. raw: texts are taken as
    they are, without the template. top: see Score; at most 20."""
    request = pb.ScoresScoreRequest(model=model, inputs=[_input(i, system, raw) for i in inputs], top=top)
    response = server.links[0].call("Scores/Score", request, pb.ScoresScoreResponse)
    return [Score(tuple(t.id for t in s.tokens), tuple(t.logprob for t in s.tokens), tuple(t.rank for t in s.tokens),
                  tuple(tuple((k.id, k.logprob) for k in t.top) for t in s.tokens)) for s in response.scores]


def fork(chat: Conversation, n: int, at_turn: int | None = None) -> list[Conversation]:
    """Forks a conversation n times. The forks share what was computed."""
    forks: list[Conversation] = []
    try:
        for _ in range(n):
            forks.append(chat.fork(at_turn))
    except BaseException:
        close(forks)
        raise
    return forks


def close(chats: Iterable[Conversation]) -> None:
    """Closes all the conversations; the first failure is raised once all were tried."""
    failure: wire.Error | None = None
    for chat in chats:
        try:
            chat.close()
        except wire.Error as e:
            failure = failure or e
    if failure is not None:
        raise failure


def samples(source: Conversation | Server, said: Said, n: int, *, model: str = "", system: str = "", logprobs: int = 1,
            **sampling: Any) -> list[Reply]:
    """Returns n replies to the same prompt, computed together. source: a conversation, which stays as it is and is continued by n forks;
    or a server, where a conversation with the model is opened. seed=s: reply i is drawn with s + i; without, the seeds are random."""
    if n < 1:
        raise ValueError(f"n is {n}, it must be at least 1")
    seed = sampling.pop("seed", secrets.randbits(64))  # a fork has the seed of its conversation, and would say the same
    chat = source if isinstance(source, Conversation) else source.open(model, system)
    forks: list[Conversation] = []
    pool = concurrent.futures.ThreadPoolExecutor(min(n, AT_ONCE))
    try:
        forks = fork(chat, n)

        def ask(i: int) -> Reply:
            return forks[i].ask(said, logprobs=logprobs, **{**sampling, "seed": (seed + i) % (1 << 64)})

        return list(pool.map(ask, range(n)))
    finally:
        try:
            close(forks if chat is source else [*forks, chat])
        finally:
            pool.shutdown()  # the replies that were under way have ended with their conversations
