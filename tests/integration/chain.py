"""The chain of a journal's records, written from what docs/journal.md says and sharing no code with parleyd. Any python3; no packages."""
import contextlib
import hashlib
import sqlite3
import struct

OPEN, ACCEPT, WITHDRAW = 1, 3, 6


def content(row, principal):
    c, kind, generation, turn, unix_ms, body = row
    owner = principal.encode() if kind == OPEN else b""
    return hashlib.sha256(c + struct.pack("<IIIQI", kind, generation, turn, unix_ms, len(owner)) + owner + bytes(body)).digest()


def records(db):
    """Each conversation with its records, parents before their forks: (seq, row, gone, hash, chain, value before it)."""
    heads = {}
    for c, principal, parent, opened in db.execute("SELECT id, principal, parent, seq FROM conversation ORDER BY seq").fetchall():
        before = bytes(32)
        for seq, value in heads.get(parent, []):
            before = value if seq < opened else before
        heads[c] = []
        for seq, *row, gone, digest, chain in db.execute(
                "SELECT seq, conversation, kind, generation, turn, unix_ms, body, gone, hash, chain FROM event WHERE conversation = ? ORDER BY seq", (c,)).fetchall():
            given = yield seq, row, principal, gone, digest, chain, before
            before = hashlib.sha256(before + (given or digest)).digest()
            heads[c].append((seq, before))


def check(path):
    """How many records there are, all of them as they were written."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        n = 0
        for seq, row, principal, gone, digest, chain, before in records(db):
            assert gone == seq or digest == content(row, principal), (seq, row)
            assert chain == hashlib.sha256(before + digest).digest(), (seq, row)
            n += 1
        assert n == db.execute("SELECT count(*) FROM event").fetchone()[0]
        return n


def mend(db):
    """Gives the records as they are now a chain, as if they had been written so."""
    walk = records(db)
    step = next(walk, None)
    while step is not None:
        seq, row, principal, gone, digest, _, before = step
        digest = digest if gone == seq else content(row, principal)
        db.execute("UPDATE event SET hash = ?, chain = ? WHERE seq = ?", (digest, hashlib.sha256(before + digest).digest(), seq))
        try:
            step = walk.send(digest)
        except StopIteration:
            step = None
