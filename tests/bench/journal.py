#!/usr/bin/env python3
"""What the journal costs, each as a ratio in one run: replies of 64 conversations with it and without, in turns; echo turns at 256 in flight
beside bare appends of the same rows by SQLite, in turns; a store of a million conversations beside an empty one; echo turns while a client
lists stored conversations without pause beside the same without.

usage: journal.py BUILD_DIR MODEL.gguf [--rounds N] [--stored N] [--only tokens|echo|stored|listed] [--json]

Exit 3: tokens/s with the journal are below 0.97 of without, a daemon with the million is ready more than 1 s later, one of them answers more
than 20 ms later than one that is in memory, or all of them listed cost more than 4 GiB. The appends are an aim, 0.5, and end nothing.
"""
import argparse
import contextlib
import hashlib
import json
import os
import resource
import shutil
import sqlite3
import statistics
import sys
import tempfile
import threading
import time

import loads
import chain
from harness import conversations

LEAST_TOKENS, AIM_ECHO, MOST_READY_S, MOST_TOUCH_S, MOST_BYTES = 0.97, 0.5, 1.0, 0.020, 4 << 30
N_AT_ONCE, N_TURNS, N_LONG, LONG_TURNS = 256, 40, 1000, 100


@contextlib.contextmanager
def folder(o):
    """On the disk of the build: /tmp may be memory."""
    path = tempfile.mkdtemp(prefix="journal-", dir=o.build)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def tokens(o):
    """Both daemons stand; one at a time is asked."""
    load = ["--model", "model", "--concurrency", "64", "--requests", "64", "--turns", "2", "--input-tokens", "64", "--output-tokens", "64", "--seed"]
    ratios = []
    with folder(o) as data, loads.Daemon(o.build, o.model) as without, loads.Daemon(o.build, o.model, "--data", data) as kept:
        for daemon in (without, kept):
            loads.bench(o.build, f"parley://{daemon.address}", *load, "0")
        for i in range(o.rounds):
            pair = (without, kept) if i % 2 == 0 else (kept, without)
            rate = {daemon: loads.bench(o.build, f"parley://{daemon.address}", *load, str(i + 1))["output_tok_s"] for daemon in pair}
            ratios.append(rate[kept] / rate[without])
    return {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios), "rounds": o.rounds}


def rows_of(o):
    """A turn's two rows as the daemon writes them, for each of the conversations and turns, and their schema. (What `parley bench` asked is
    closed, and so deleted, at its end.)"""
    with folder(o) as data:
        with loads.Daemon(o.build, o.model, "--data", data) as client:
            list(client.conversations.Turn(conversations.TurnRequest(conversation=client.open("echo"), turn=1, text="of the sea and its many waves")))
        with contextlib.closing(sqlite3.connect(f"{data}/journal.db")) as db:
            schema = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL AND tbl_name = 'event'")]
            bodies = [db.execute("SELECT unix_ms, body FROM event WHERE kind = ?", (kind,)).fetchone() for kind in (3, 4)]
    ids = [os.urandom(16) for _ in range(N_AT_ONCE)]
    return schema, [[(id, 1, turn, kind, *body, bytes(32), bytes(32)) for turn in range(1, N_TURNS + 1) for id in ids] for kind, body in zip((3, 4), bodies)]


def append_s(o, schema, kinds):
    """The same rows as the daemon wrote, in its schema: a transaction of accepts, and one of replies, for each round of turns."""
    with folder(o) as path:
        with contextlib.closing(sqlite3.connect(f"{path}/bare.db", isolation_level=None)) as db:
            db.executescript("PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;"
                             "PRAGMA wal_autocheckpoint = 4096;" + ";".join(schema))
            begun = time.monotonic()
            for at in range(0, len(kinds[0]), N_AT_ONCE):
                for rows in kinds:
                    db.execute("BEGIN IMMEDIATE")
                    db.executemany("INSERT INTO event (conversation, generation, turn, kind, unix_ms, body, hash, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows[at:at + N_AT_ONCE])
                    db.execute("COMMIT")
            return time.monotonic() - begun


def cpu_s(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def daemon_cpu_s(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def echo(o):
    """The daemon has no memory for keys and values to fetch ahead, which would take a processor for its first second. Processor time a turn says
    what bounds the rate where the disk does not: that of the daemon and its client is shared by two cores, that of the appends is one's."""
    load = ["--model", "echo", "--multiplexed", "--input-tokens", "8", "--output-tokens", "8", "--concurrency", str(N_AT_ONCE), "--requests",
            str(N_AT_ONCE), "--turns", str(N_TURNS)]
    ratios, rates, bare_rates, cpu = [], [], [], {"daemon": [], "client": [], "bare": []}
    schema, kinds = rows_of(o)
    n = len(kinds[0])
    for _ in range(o.rounds):
        with folder(o) as data:
            daemon = loads.Daemon(o.build, o.model, "--data", data, "--kv-bytes", "16M")
            with daemon:
                before = daemon_cpu_s(daemon.process.pid), cpu_s(resource.RUSAGE_CHILDREN)
                rates.append(loads.bench(o.build, daemon.url, *load)["request_s"])
                cpu["daemon"].append(daemon_cpu_s(daemon.process.pid) - before[0])
                cpu["client"].append(cpu_s(resource.RUSAGE_CHILDREN) - before[1])
            before = cpu_s(resource.RUSAGE_SELF)
            bare_rates.append(n / append_s(o, schema, kinds))
            cpu["bare"].append(cpu_s(resource.RUSAGE_SELF) - before)
        ratios.append(rates[-1] / bare_rates[-1])
    return {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios), "turns_s": statistics.median(rates),
            "bare_turns_s": statistics.median(bare_rates), "rounds": o.rounds} | {
                f"{who}_cpu_us": 1e6 * statistics.median(seconds) / n for who, seconds in cpu.items()}


def fill(data, n, n_long=N_LONG):
    """Copies one conversation of no turn, and one of many, to n, of which n_long are long. The ids of these."""
    with contextlib.closing(sqlite3.connect(f"{data}/journal.db", isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA cache_size = -262144; BEGIN")
        (short, short_body, ms), (long, _, _) = [db.execute(
            "SELECT c.id, e.body, e.unix_ms FROM conversation AS c JOIN event AS e ON e.seq = c.seq ORDER BY c.seq LIMIT 1 OFFSET ?", (i,)).fetchone()
            for i in (0, 1)]
        past = db.execute("SELECT generation, turn, kind, unix_ms, body FROM event WHERE conversation = ? ORDER BY seq", (long,)).fetchall()
        event = "INSERT INTO event (conversation, generation, turn, kind, unix_ms, body, hash, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        open_it = "INSERT INTO conversation (id, principal, model, seq) SELECT ?, principal, model, ? FROM conversation WHERE id = ?"
        ids = [os.urandom(16) for _ in range(n)]
        for i, id in enumerate(ids):
            rows = past if i < n_long else [(1, 0, 1, ms, short_body)]
            before = bytes(32)
            for number, (generation, turn, kind, unix_ms, body) in enumerate(rows):
                digest = chain.content((id, kind, generation, turn, unix_ms, body), "")
                before = hashlib.sha256(before + digest).digest()
                seq = db.execute(event, (id, generation, turn, kind, unix_ms, body, digest, before)).lastrowid
                if number == 0:
                    db.execute(open_it, (id, seq, long if i < n_long else short))
        db.execute("UPDATE tally SET n = (SELECT count(*) FROM conversation WHERE principal = tally.principal AND model = tally.model AND is_listed)")
        db.execute("COMMIT")
    return [id.hex() for id in ids[:n_long]]


def ready_s(o, data):
    daemon = loads.Daemon(o.build, o.model, "--data", data)
    with daemon:
        return daemon.ready_s


def resident(pid):
    return int(next(line for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS")).split()[1]) << 10


def ask_s(client, conversation, turn):
    request = conversations.TurnRequest(conversation=conversation, turn=turn, text="And?")
    begun = time.monotonic()
    list(client.conversations.Turn(request))
    return time.monotonic() - begun


def stored(o):
    """Echo answers, so there is no prefill: what is left is reading."""
    with folder(o) as empty, folder(o) as full:
        with loads.Daemon(o.build, o.model, "--data", full) as client:
            client.open("echo")
            long = client.open("echo")
            for turn in range(1, LONG_TURNS + 1):
                ask_s(client, long, turn)
        ready_s(o, empty)
        begun = time.monotonic()
        long = fill(full, o.stored)
        print(f"{o.stored:,} conversations written in {time.monotonic() - begun:.0f} s, {os.path.getsize(full + '/journal.db') >> 20:,} MiB", file=sys.stderr)
        ready = [(ready_s(o, empty), ready_s(o, full)) for _ in range(o.rounds)]
        daemon = loads.Daemon(o.build, o.model, "--data", full)
        with daemon as client:
            touched, again = [], []
            for conversation in long[:50]:
                touched.append(ask_s(client, conversation, LONG_TURNS + 1))
                again.append(ask_s(client, conversation, LONG_TURNS + 2))
            token, n, begun = "", 0, time.monotonic()
            while n == 0 or token:
                page = client.conversations.List(conversations.ConversationsListRequest(page_size=1000, page_token=token))
                n, token = n + len(page.conversations), page.next_page_token
            listed_s, bytes = time.monotonic() - begun, resident(daemon.process.pid)
            assert n == o.stored + 2, n
    return {"later_s": statistics.median(full - empty for empty, full in ready), "touched_ms": 1000 * statistics.median(touched),
            "in_memory_ms": 1000 * statistics.median(again), "listed_s": listed_s, "resident_mib": bytes >> 20, "stored": o.stored}


def listed(o):
    """One client lists one row a page, in a loop, in half of the rounds."""
    load = ["--model", "echo", "--multiplexed", "--input-tokens", "8", "--output-tokens", "8", "--concurrency", "64", "--requests", "64", "--turns", "100"]
    ratios, rates, pages = [], {True: [], False: []}, 0
    with folder(o) as data:
        with loads.Daemon(o.build, o.model, "--data", data) as client:
            client.open("echo")
            ask_s(client, client.open("echo"), 1)
        fill(data, o.stored)
        daemon = loads.Daemon(o.build, o.model, "--data", data, "--kv-bytes", "16M")
        with daemon as client:
            for i in range(o.rounds):
                for is_listing in (i % 2 == 0, i % 2 != 0):
                    is_over = threading.Event()

                    def lists():
                        nonlocal pages
                        while not is_over.is_set():
                            client.conversations.List(conversations.ConversationsListRequest(page_size=1))
                            pages += 1

                    thread = threading.Thread(target=lists)
                    if is_listing:
                        thread.start()
                    rates[is_listing].append(loads.bench(o.build, daemon.url, *load)["request_s"])
                    is_over.set()
                    if is_listing:
                        thread.join()
                ratios.append(rates[True][-1] / rates[False][-1])
    return {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios), "turns_s": statistics.median(rates[False]),
            "listing_turns_s": statistics.median(rates[True]), "pages": pages, "stored": o.stored}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stored", type=int, default=1000000)
    parser.add_argument("--only", choices=("tokens", "echo", "stored", "listed"))
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    o.build = os.path.abspath(o.build)
    said = {}
    for part in (tokens, echo, stored, listed):
        if o.only in (None, part.__name__):
            said[part.__name__] = part(o)
            if not o.json:
                print(part.__name__, " ".join(f"{key}={value:.3f}" if isinstance(value, float) else f"{key}={value}" for key, value in said[part.__name__].items()), flush=True)
    if o.json:
        print(json.dumps(said))
    is_good = said.get("tokens", {"ratio": 1})["ratio"] >= LEAST_TOKENS
    if "stored" in said:
        s = said["stored"]
        is_good &= s["later_s"] <= MOST_READY_S and s["touched_ms"] - s["in_memory_ms"] <= 1000 * MOST_TOUCH_S and s["resident_mib"] << 20 <= MOST_BYTES
    sys.exit(0 if is_good else 3)


if __name__ == "__main__":
    main()
