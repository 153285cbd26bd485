#!/usr/bin/env python3
"""Makes the pictures of docs/: what a page says, drawn. Light or dark, as the reader's screen is.

usage: docs/make_pictures.py [--check]
  --check  draws nothing: says which picture differs from what would be drawn (exit 1: one does)
"""
import html
import math
import os
import re
import sys

DOCS = os.path.dirname(os.path.abspath(__file__))
# Of a kind of box: fill and edge, light, then dark.
KINDS = {"client": ("#f6f8fa", "#8c959f", "#21262d", "#6e7681"), "loop": ("#ddf4ff", "#54aeff", "#0c2d4a", "#388bfd"),
         "compute": ("#fff1e5", "#e16f24", "#3d2106", "#db6d28"), "disk": ("#dafbe1", "#2da44e", "#0f2d1a", "#3fb950"),
         "gone": ("#ffebe9", "#cf222e", "#3c1618", "#f85149"), "lane": ("none", "#d0d7de", "none", "#3d444d"),
         "mark": ("#8c959f", "#8c959f", "#6e7681", "#6e7681")}
TEXT, FAINT, PAPER = ("#1f2328", "#f0f6fc"), ("#59636e", "#9198a1"), ("#ffffff", "#0d1117")
# Classes of text, and how wide a letter is at most in the fonts that browsers take for them.
WIDTHS = {"title": 7.4, "plain": 6.9, "code": 7.3, "faint": 6.9}


def style():
    def colours(at, dark):
        rules = [f".{kind} {{ fill: {of[2 * dark]}; stroke: {of[2 * dark + 1]} }}" for kind, of in KINDS.items()]
        return " ".join([f".paper {{ fill: {PAPER[dark]} }} text {{ fill: {TEXT[dark]} }} .faint {{ fill: {FAINT[dark]} }}",
                         f".arrow {{ stroke: {FAINT[dark]}; fill: none }} .head {{ fill: {FAINT[dark]} }}", *rules])
    return "\n".join(["<style>", "text { font: 13px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif }", ".title { font-weight: 600 }",
                      ".code { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace }",
                      ".arrow { stroke-width: 1.5 } .dashed { stroke-dasharray: 5 4 }", colours("", 0),
                      f"@media (prefers-color-scheme: dark) {{ {colours('', 1)} }}", "</style>"])


class Picture:
    def __init__(self, title, width, height):
        self.width, self.height, self.texts = width, height, []
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
                      f"<title>{html.escape(title)}</title>", "<!-- made by docs/make_pictures.py -->", style(),
                      f'<rect class="paper" width="{width}" height="{height}"/>']

    def text(self, x, y, said, kind="plain", anchor="start"):
        """A line of text. None may leave the picture or touch another one."""
        wide = WIDTHS[kind] * len(said)
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        assert 0 <= left and left + wide <= self.width and 12 < y < self.height, f"it leaves the picture: {said!r}"
        for other, a, b, c in self.texts:
            assert left + wide <= a or b <= left or abs(y - c) >= 13, f"{said!r} touches {other!r}"
        self.texts.append((said, left, left + wide, y))
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{html.escape(said, quote=False)}</text>')

    def box(self, x, y, width, height, kind, *lines, dashed=False):
        """Lines of text in a box: the first is its title, those that begin with a backquote are code."""
        self.parts.append(f'<rect class="{kind}{" dashed" if dashed else ""}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>')
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 4.5
        for i, line in enumerate(lines):
            letters = "code" if line.startswith("`") else "title" if i == 0 else "plain"
            assert WIDTHS[letters] * len(line.strip("`")) <= width - 8, f"too long for its box: {line!r}"
            self.text(x + width / 2, top + 17 * i, line.strip("`"), letters, "middle")

    def lane(self, x, y, width, height, name):
        self.box(x, y, width, height, "lane")
        self.text(x + 10, y + 18, name, "faint")

    def arrow(self, *points, said=None, at=None, anchor="middle", dashed=False, kind="faint"):
        (x0, y0), (x1, y1) = points[-2:]
        long = math.hypot(x1 - x0, y1 - y0)
        dx, dy = (x1 - x0) / long, (y1 - y0) / long
        path = " ".join(f"{x:g},{y:g}" for x, y in (*points[:-1], (x1 - 6 * dx, y1 - 6 * dy)))
        head = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((x1, y1), (x1 - 9 * dx - 4.5 * dy, y1 - 9 * dy + 4.5 * dx),
                                                       (x1 - 9 * dx + 4.5 * dy, y1 - 9 * dy - 4.5 * dx)))
        self.parts.append(f'<polyline class="arrow{" dashed" if dashed else ""}" points="{path}"/><polygon class="head" points="{head}"/>')
        if said:
            x, y = at or ((points[0][0] + x1) / 2, (points[0][1] + y1) / 2 - 6)
            self.text(x, y, said, kind, anchor)

    def line(self, x0, y0, x1, y1, dashed=True):
        self.parts.append(f'<polyline class="arrow{" dashed" if dashed else ""}" points="{x0:g},{y0:g} {x1:g},{y1:g}"/>')

    def drawn(self):
        return "\n".join([*self.parts, "</svg>", ""])


def request():
    """tour.md: down the left the request, up the right the reply. The numbers are the page's."""
    p = Picture("One request's way from the socket to a token, and back", 900, 610)
    p.text(20, 26, "The numbers are the sections of docs/tour.md.", "faint")
    p.box(60, 40, 340, 40, "client", "POST /v1/chat/completions")
    p.box(500, 40, 340, 40, "client", "data: {…}   one event for each piece")
    p.lane(20, 100, 860, 352, "loop thread")
    down = [("1  accept, parse HTTP", "`listener_take, exchange_begin`"), ("2  JSON becomes a turn", "`chat_begin, conversation_turn`"),
            ("3  observe: text becomes token ids", "`lm_observe, lm_observe_find_pages`"), ("4  wait for a step", "`batcher_submit`"),
            ("4  choose the rows, reserve their pages", "`step_form, lm_reserve`")]
    up = [("7  to the socket, as fast as it takes", "`chat_piece, exchange_flush`"), ("7  pull from the reply, by a cursor", "`read_choice, reader_next`"),
          ("6  notify the readers", "`batcher_notify, on_more`"), ("6  the next step, before anyone is told", "`batcher_schedule`"),
          ("6  new tokens into the reply", "`batcher_step_done, lm_stepped`")]
    for i in range(5):
        y = 128 + 64 * i
        p.box(60, y, 340, 44, "loop", *down[i])
        p.box(500, y, 340, 44, "loop", *up[i])
        p.arrow((230, y - 20 if i else 80), (230, y))
        if i:
            p.arrow((670, y), (670, y - 20))
    p.arrow((670, 128), (670, 80))
    p.arrow((500, 342), (450, 342), (450, 406), (400, 406))
    p.lane(20, 472, 860, 120, "compute thread")
    p.box(60, 516, 780, 56, "compute", "5  one forward pass for all rows, then a token of each",
          "`lm_batch_act, transformer_forward, rows_run, take_logits, sampler_next`")
    p.arrow((230, 428), (230, 516), said="worker_submit", at=(244, 500), anchor="start", kind="code")
    p.arrow((670, 516), (670, 428), said="mailbox_post", at=(656, 500), anchor="end", kind="code")
    return p


def batch():
    """batching.md: three steps. Every row is that of a conversation."""
    p = Picture("The rows of three steps: decode rows, and the chunks of a prompt", 900, 424)
    columns = [(190, "step 1"), (420, "step 2"), (650, "step 3")]
    for x, name in columns:
        p.lane(x, 16, 214, 352, name)
    rows = ["A: writes its reply", "B: writes its reply", "C: a prompt of 400", "D: arrives later"]
    for i, name in enumerate(rows):
        p.text(14, 78 + 84 * i, name, "title")
    p.text(14, 95, "decode row", "faint")
    p.text(14, 179, "decode row", "faint")
    p.text(14, 263, "prefill chunks", "faint")
    p.text(14, 347, "a prompt of 12", "faint")

    def row(step, at, kind, wide, *lines):
        p.box(columns[step][0] + 10, 50 + 84 * at, wide, 48, kind, *lines)
    for step in range(3):
        row(step, 0, "compute", 88, "1 token", "MORE")
    row(0, 1, "compute", 88, "1 token", "MORE")
    row(1, 1, "compute", 88, "1 token", "DONE")
    p.text(columns[2][0] + 12, 166, "its future has settled:", "faint")
    p.text(columns[2][0] + 12, 183, "the turn has ended", "faint")
    row(0, 2, "loop", 194, "160 tokens", "MORE")
    row(1, 2, "loop", 194, "160 tokens", "MORE")
    row(2, 2, "loop", 194, "80 tokens, the last", "its first token, MORE")
    p.text(columns[1][0] + 12, 334, "arrives, waits", "faint")
    p.text(columns[1][0] + 12, 351, "for the next step", "faint")
    row(2, 3, "loop", 194, "12 tokens: the prompt", "its first token, MORE")
    for x, name in zip((190, 420, 650), ("162 tokens in one pass", "162 tokens in one pass", "93 tokens in one pass")):
        p.text(x + 107, 388, name, "plain", "middle")
    p.text(450, 412, "Decode rows first. Prompts share what is left of the time that the others may wait. At most 64 rows and 512 tokens.",
           "faint", "middle")
    return p


def pages():
    """pages.md: who holds which page."""
    p = Picture("Conversations share KV pages: a fork, and the prefix cache", 900, 470)
    p.text(20, 26, "Page tables, on the loop: each a list of page numbers", "faint")
    p.text(430, 26, "Pages, 16 positions each: their contents are the compute thread's", "faint")
    tables = [("A", "a conversation", [1, 2, 3, 4]), ("B", "a fork of A", [1, 2, 3, 4]), ("B", "the same, when it writes", [1, 2, 3, 5]),
              ("C", "another, same system prompt", [1, 2, 6])]
    for i, (name, what, held) in enumerate(tables):
        y = 44 + 80 * i
        p.text(20, y + 18, name, "title")
        p.text(38, y + 18, what, "plain")
        for at, page in enumerate(held):
            p.box(20 + 52 * at, y + 28, 46, 30, "loop" if page not in (5,) else "compute", str(page))
    p.box(20, 364, 360, 48, "lane", "D was closed: it holds nothing", "page 7 stays cached until it is handed out")
    pages_at = [(1, 16, "cached; held by A, B, C", "the system prompt begins"), (2, 16, "cached; held by A, B, C", "its ids, behind page 1"),
                (3, 16, "cached; held by A, B", "what A and B said before the fork"), (4, 9, "held by A alone, since B has its copy", "not full, so not cached"),
                (5, 11, "held by B: a copy of 4, and 2 tokens", "copied by the step that writes into it"),
                (6, 5, "held by C", "where C's own text begins"), (7, 16, "cached; held by nobody", "counts as free, handed out last")]
    for i, (page, full, who, what) in enumerate(pages_at):
        y = 44 + 54 * i
        kind = "compute" if page == 5 else "lane" if page == 7 else "loop"
        p.box(430, y, 34, 42, kind, str(page))
        for at in range(16):
            mark = "mark" if at < full else "lane"
            p.parts.append(f'<rect class="{mark}" x="{474 + 9 * at}" y="{y + 11}" width="7" height="20"/>')
        p.text(632, y + 17, who, "plain")
        p.text(632, y + 35, what, "faint")
    p.arrow((226, 167), (254, 167), (254, 247), (224, 247), said="copy on write", at=(262, 211), anchor="start")
    p.text(450, 452, "A page is known by its 16 ids, the page before it and the principal's salt; a hit is compared id for id.", "faint", "middle")
    return p


def journal():
    """journal.md: what is written when, and what a crash leaves."""
    p = Picture("A turn and the journal: what is on the disk before it is told, and a crash", 900, 716)
    lines = [(110, "client", "client"), (340, "loop", "loop thread"), (570, "disk", "journal thread"), (790, "compute", "compute thread")]
    client, loop, disk, compute = (x for x, _, _ in lines)
    for x, kind, name in lines:
        p.box(x - 80, 14, 160, 32, kind, name)
        p.line(x, 46, x, 300)
        p.line(x, 372, x, 700)

    def call(x0, x1, y, said, dashed=False):
        p.arrow((x0, y), (x1 + (3 if x1 < x0 else -3), y), said=said, dashed=dashed)
    call(client, loop, 78, "Turn 3, with messages")
    p.box(loop - 80, 86, 160, 26, "loop", "observe")
    call(loop, disk, 138, "it is accepted, seed")
    p.box(disk - 100, 146, 200, 44, "disk", "one transaction, one sync", "with all that waits")
    call(disk, loop, 212, "durable")
    call(loop, client, 228, "accepted")
    call(loop, compute, 250, None)
    p.text(680, 244, "ask: steps", "faint", "middle")
    call(compute, loop, 272, None, dashed=True)
    p.text(680, 288, "tokens: not written", "faint", "middle")
    call(loop, client, 272, "pieces 1 … 40")
    p.box(20, 306, 860, 58, "gone", "kill -9, or a power cut", "The acceptance of turn 3 is in the journal. Its end is not. The client has 40 pieces.")
    call(client, loop, 400, "Turn 3, behind piece 40")
    call(loop, disk, 424, "read the conversation")
    call(disk, loop, 446, "its events, in order")
    p.box(loop - 130, 456, 260, 44, "loop", "the clone takes in turns 1 and 2", "their ids are stored: no computing")
    p.box(loop - 130, 508, 260, 44, "loop", "observes turn 3 again", "the stored messages, sampling, seed")
    call(loop, compute, 580, None)
    p.text(680, 574, "ask again: the same bytes", "faint", "middle")
    call(compute, loop, 602, None, dashed=True)
    call(loop, client, 602, "pieces 41, 42, …")
    call(loop, disk, 632, "it has ended: reply")
    call(disk, loop, 660, "durable")
    call(loop, client, 680, "done")
    return p


def workers():
    """agents.md: who keeps what."""
    p = Picture("Attached workers compute an agent; the daemon keeps its conversations", 900, 450)
    for i, name in enumerate(("gRPC, parley chat", "OpenAI's API", "Anthropic's, Ollama's", "KServe")):
        p.box(16, 96 + 62 * i, 164, 40, "client", name)
        p.arrow((180, 116 + 62 * i), (224, 116 + 62 * i))
    p.lane(224, 16, 330, 418, "parleyd")
    p.box(244, 46, 290, 82, "loop", "conversations A, B, C, D", "turn numbers, retries, deadlines,", "queues, readers of each reply")
    p.box(244, 146, 290, 62, "loop", "batcher", "a step: the rows that wait")
    p.box(244, 226, 290, 92, "loop", "agents/remote", "a clone is opened at the least busy", "worker, and stays there; answers are", "checked whole before they are used")
    p.box(244, 336, 290, 82, "disk", "what a clone is built anew from", "the system prompt, the turns,", "and the state that was saved last")
    p.arrow((389, 128), (389, 146))
    p.arrow((389, 208), (389, 226))
    p.arrow((389, 318), (389, 336))
    p.box(700, 46, 184, 96, "compute", "worker 1", "clones of A and C", "`observe, batch_act`", "many rows a step")
    p.box(700, 186, 184, 96, "compute", "worker 2", "clones of B and D", "D: opened anew here")
    p.box(700, 326, 184, 88, "gone", "worker 3 is lost", "it had D", dashed=True)
    for y in (94, 234):
        p.arrow((534, 252), (612, 252), (612, y - 10), (700, y - 10))
        p.arrow((700, y + 14), (640, y + 14), (640, 294), (534, 294), dashed=True)
    p.arrow((790, 326), (790, 282), dashed=True)
    p.text(624, 60, "open, replay, step,", "faint", "middle")
    p.text(624, 76, "fork, rewind, save", "faint", "middle")
    p.text(628, 320, "a result a step;", "faint", "middle")
    p.text(628, 337, "a state a save", "faint", "middle")
    return p


def determinism():
    """DESIGN.md: what may vary, what each operator fixes, and the lanes of a sum."""
    p = Picture("What varies from step to step, and how each operator fixes the order of its sums", 900, 660)
    p.text(30, 26, "May vary from run to run", "faint")
    p.box(12, 32, 206, 398, "lane")
    p.text(232, 26, "A position on its way", "faint")
    p.text(470, 26, "What fixes its bits", "faint")
    for i, (name, what) in enumerate((("rows in the step", "1, 7 or 64"), ("the prompt's chunks", "of 1, 16 or 512 tokens"), ("threads", "who computes which part"),
                                      ("registers", "plain C, AVX2, AVX-512"), ("pages", "own, a fork's, or cached"), ("draft tokens", "more positions a step"))):
        p.box(20, 40 + 66 * i, 190, 52, "client", name, what)
    steps = [("norm", "`rms_norm`", "a sum in sixteen lanes: element i goes into lane i % 16,", "and the lanes are folded in one order"),
             ("product with a weight", "`quant_product`", "int8 times codes, in groups of 32: sums of integers;", "one fma for each group, in the order of the groups"),
             ("keys and values into a page", "`kv_store`", "rounded by head and position: a page does not depend", "on the step that wrote it"),
             ("attention over the pages", "`attend, attend_merge`", "integers, in spans of 256 positions counted from 0;", "spans are merged in order, whoever computed them"),
             ("logits", "`logits_log_sum`", "sixteen lanes in a block of 1,024; blocks are added", "in order, in f64"),
             ("draw a token", "`sampler_next`", "the random number is a function of seed, turn,", "position; a draft token counts only if it is this one")]
    for i, (name, code, one, two) in enumerate(steps):
        y = 40 + 66 * i
        p.box(232, y, 210, 52, "compute", name, code)
        p.text(470, y + 23, one)
        p.text(470, y + 40, two)
        p.line(442, y + 26, 464, y + 26)
        if i:
            p.arrow((337, y - 14), (337, y))
    p.text(20, 462, "Sixteen lanes, whatever the register: AVX-512 has them in one, AVX2 in two, plain C in an array.", "faint")
    for i in range(16):
        x = 130 + 47 * i
        for row, at in enumerate((i, i + 16)):
            p.box(x, 476 + 30 * row, 41, 24, "loop", f"x{at}")
        p.box(x, 540, 41, 24, "compute", str(i))
        p.line(x + 20, 530, x + 20, 540, dashed=False)
    p.text(20, 493, "elements", "plain")
    p.text(20, 557, "lanes", "plain")
    for y, held, said in ((596, 8, "i + (i + 8)"), (626, 4, "i + (i + 4)")):
        for i in range(held):
            p.box(130 + 47 * i, y - 16, 41, 24, "compute", str(i))
        p.text(20, y + 1, "folded", "plain")
        p.text(136 + 47 * held, y + 1, f"lane {said}" + ("; then + 2, then + 1: the sum" if held == 4 else ""), "faint")
    return p


def page_life():
    """DESIGN.md: the states of a page, and when its contents change."""
    p = Picture("The states of a KV page, and the two owners of its number and its contents", 900, 640)
    p.lane(20, 16, 860, 350, "the accounting, on the loop: the state of a page number")
    p.box(50, 70, 150, 60, "client", "blank", "free, no contents")
    p.box(330, 70, 190, 60, "loop", "held", "by one sequence or several", "`kv_seq_share`")
    p.box(640, 70, 190, 60, "loop", "held, cached", "full: others find it", "by its ids")
    p.box(640, 240, 190, 60, "client", "cached, free", "no holder, contents stay")
    p.box(350, 240, 190, 60, "disk", "host page", "of a device: contents", "in the host's memory")
    p.arrow((200, 86), (330, 86), said="kv_seq_reserve", at=(265, 80), kind="code")
    p.arrow((330, 116), (200, 116), said="kv_seq_cut", at=(265, 132), kind="code")
    p.arrow((520, 86), (640, 86), said="kv_page_cache", at=(580, 80), kind="code")
    p.arrow((640, 116), (520, 116), said="its holder writes", at=(580, 132))
    p.arrow((690, 130), (690, 240), said="the last holder lets go", at=(682, 222), anchor="end")
    p.arrow((770, 240), (770, 130), said="kv_seq_adopt", at=(778, 190), anchor="start", kind="code")
    p.arrow((640, 270), (540, 270), said="offload", at=(590, 264))
    p.arrow((445, 240), (445, 180), (665, 180), (665, 130), said="reload", at=(555, 174))
    p.arrow((735, 300), (735, 334), (300, 334), (300, 190), (350, 190), (350, 130))
    p.text(520, 352, "evicted: no page is blank, so the number that was free longest is handed out again", "faint", "middle")
    p.lane(20, 386, 860, 236, "the contents, on the compute thread: they change only by what a step carries")
    p.text(50, 446, "loop", "title")
    p.text(50, 552, "compute", "title")
    p.box(130, 420, 216, 60, "loop", "form step 7", "a fork of A will write into", "page 12, so copy 12 to 13")
    p.box(370, 420, 222, 60, "loop", "A is closed", "nobody holds page 12,", "so it is free")
    p.box(626, 420, 236, 60, "loop", "form step 8", "page 12 is handed", "to another row")
    p.box(370, 516, 222, 84, "compute", "step 7", "first all copies, in order;", "then all rows: the fork", "writes into page 13")
    p.box(690, 516, 172, 84, "compute", "step 8", "page 12 is written;", "its copy was made", "before")
    p.arrow((238, 480), (238, 558), (370, 558), said="worker_submit", at=(246, 506), anchor="start", kind="code")
    p.arrow((592, 558), (652, 558), (652, 480))
    p.text(644, 506, "mailbox_post", "code", "end")
    p.arrow((776, 480), (776, 516))
    return p


def turn_states():
    """DESIGN.md: the structs of a turn, one in the other, and the states that each goes through."""
    p = Picture("The states of a turn, its agent's turn, its request and its row, side by side", 900, 590)
    columns = [(196, "observe"), (336, "accept"), (476, "wait"), (616, "steps"), (756, "end")]
    for x, name in columns:
        p.text(x + 62, 24, name, "title", "middle")
        p.line(x - 8, 36, x - 8, 440)
    lanes = [(44, "struct turn", "`server/conversation`", ("QUEUED", "ACCEPTING", "ASKED", "ASKED", "STORING")),
             (142, "struct agent_turn", "`agents/turn.h`", ("OBSERVED", "OBSERVED", "ASKED", "ASKED", "ENDED, OVER")),
             (240, "struct batch_request", "`batching/request.h`", ("", "", "WAITING", "RUNNING", "SETTLED")),
             (338, "struct row", "`batching/request.h`", ("", "", "loop's", "compute's", "loop's"))]
    for y, name, where, states in lanes:
        p.text(20, y + 36, name, "title")
        p.text(20, y + 54, where.strip("`"), "code")
        for (x, _), state in zip(columns, states):
            if state:
                p.box(x, y + 18, 124, 48, "compute" if state.startswith("compute") else "disk" if state in ("ACCEPTING", "STORING") else "loop", state)
    for y, codes in ((124, ("turn_start", "turn_proceed", "turn_ask", "on_more", "on_ended")), (222, ("agent_turn_observe", "", "agent_turn_ask", "", "agent_turn_keep")),
                     (320, ("", "", "batcher_submit", "step_form", "future_settle")), (418, ("", "", "reserve", "batch_act", "stepped"))):
        for (x, _), code in zip(columns, codes):
            if code:
                p.text(x + 62, y, code, "code", "middle")
    p.text(20, 138 - 20, "holds the one below", "faint")
    p.text(20, 216, "holds both below", "faint")
    p.text(20, 464, "Green: the journal writes; only of a conversation that is kept. Orange: compute owns the row while a step runs.", "faint")
    p.lane(20, 478, 860, 96, "the callers of agent_turn_ask")
    for i, (name, code, what) in enumerate((("a chat turn", "`server/conversation/turn.c`", "tokens; CONTINUOUS"), ("an action of a policy", "`server/act, server/rollout`", "cost 1; ADAPTIVE"),
                                            ("a gradient", "`server/params/round.c`", "cost 1; FIXED"), ("an offline world", "`worlds/participant`", "any kind of agent"))):
        p.box(36 + 209 * i, 502, 201, 64, "client", name, code, what)
    return p


def step_form():
    """DESIGN.md: the loop between two steps, and how it chooses the rows of the next one."""
    p = Picture("The loop between two steps, and how it forms the next one", 900, 610)
    p.lane(20, 16, 860, 190, "compute waits only while the next step is formed")
    p.text(36, 76, "compute", "title")
    p.text(36, 150, "loop", "title")
    p.box(110, 48, 250, 44, "compute", "step 7")
    p.box(560, 48, 300, 44, "compute", "step 8")
    p.box(110, 122, 250, 66, "loop", "submit, cancel, deadlines", "calls that only move requests", "from list to list")
    p.box(384, 122, 196, 66, "loop", "take back, settle, form", "`stepped, future_settle`", "`step_form`")
    p.box(604, 122, 256, 66, "loop", "notify: readers get their part", "`batcher_notify, on_more`", "meanwhile step 8 runs")
    p.arrow((360, 70), (420, 70), (420, 122))
    p.arrow((530, 122), (530, 70), (560, 70))
    p.arrow((360, 155), (384, 155))
    p.arrow((580, 155), (604, 155))
    p.lane(20, 222, 860, 262, "step_form: which rows are in the step, and how many tokens each computes")
    steps = [("1  who yields", "`yield_rows`", "rows of tenants above their", "part pause, pages stay"), ("2  how many may begin", "`step_admit_by_policy`", "the only part that differs", "from policy to policy"),
             ("3  decode rows", "`plan_decode`", "each gets its next token;", "the first prompt a chunk"), ("4  chunks of prompts", "`plan_chunks`", "as many tokens as the others'", "latency permits"),
             ("5  what they need", "`reserve_planned`", "pages; if too few are left", "a row is preempted"), ("6  new requests", "`step_admit_first`", "in the order of tenants and", "aged priority")]
    for i, lines in enumerate(steps):
        x, y = 36 + 283 * (i % 3), 252 + 116 * (i // 3)
        p.box(x, y, 263, 92, "loop", *lines)
        if i % 3:
            p.arrow((x - 20, y + 46), (x, y + 46))
    p.arrow((733, 344), (733, 356), (167, 356), (167, 368))
    p.text(36, 512, "The list that a request is in is its state:", "faint")
    for i, name in enumerate(("queued in its flow", "waiting", "running", "ending", "settled")):
        p.box(36 + 172 * i, 526, 152, 36, "client", name)
        if i:
            p.arrow((16 + 172 * i, 544), (36 + 172 * i, 544))
    p.arrow((456, 562), (456, 586), (284, 586), (284, 562), said="preempted", at=(370, 602))
    return p


def commit():
    """DESIGN.md: the loop, the journal's thread, and what a failed write leaves."""
    p = Picture("Group commit on the journal's thread, a write that fails, and the records of a conversation", 900, 620)
    p.lane(20, 16, 860, 182, "what is appended while a transaction is written is the next transaction")
    p.text(36, 76, "loop", "title")
    p.text(36, 160, "journal", "title")
    p.box(110, 46, 130, 52, "loop", "append", "A accepts turn 1")
    p.box(266, 46, 258, 52, "loop", "append: nobody waits", "B, C accept turns; A is forked")
    p.box(550, 46, 150, 52, "loop", "A is told", "its steps begin")
    p.box(726, 46, 140, 52, "loop", "B, C, A are told", "all three at once")
    p.box(200, 132, 300, 48, "disk", "transaction 1: one record", "write, one sync")
    p.box(530, 132, 180, 48, "disk", "transaction 2: three", "write, one sync")
    p.arrow((175, 98), (175, 156), (200, 156), said="journal_run", at=(182, 122), anchor="start", kind="code")
    p.arrow((500, 146), (537, 146), (537, 72), (550, 72))
    p.arrow((710, 156), (796, 156), (796, 98), said="journal_done", at=(788, 122), anchor="end", kind="code")
    p.lane(20, 214, 860, 182, "a write that fails leaves an unknown outcome")
    p.text(36, 274, "loop", "title")
    p.text(36, 358, "journal", "title")
    p.box(110, 244, 170, 52, "loop", "append", "turn 2 of A has ended")
    p.box(372, 244, 230, 52, "loop", "it fails, and all behind it", "UNAVAILABLE; A leaves memory")
    p.box(660, 244, 206, 52, "loop", "A is asked for again", "it is as the journal has it")
    p.box(150, 330, 180, 48, "gone", "transaction 3", "the sync fails")
    p.box(372, 330, 230, 48, "disk", "the connection is closed", "no sync is tried again")
    p.box(660, 330, 206, 48, "disk", "a new connection", "reads what there is")
    p.arrow((210, 296), (210, 330))
    p.arrow((330, 342), (351, 342), (351, 270), (372, 270))
    p.arrow((330, 366), (372, 366))
    p.arrow((602, 354), (660, 354))
    p.arrow((602, 270), (660, 270))
    p.arrow((763, 330), (763, 296))
    p.lane(20, 412, 860, 192, "the records of a conversation: what happened to it, never the state that followed")
    kinds = [("OPEN", "model, seed,", "system prompt"), ("ACCEPT 1", "messages, all", "of the sampling"), ("FINISH 1", "text, ids,", "finish reason"),
             ("ACCEPT 2", "tokens of turn 2", "are not written"), ("no FINISH 2", "after a crash it is", "computed again")]
    for i, lines in enumerate(kinds):
        p.box(36 + 168 * i, 440, 144, 66, "gone" if i == 4 else "disk", *lines, dashed=i == 4)
        if i:
            p.arrow((12 + 168 * i, 473), (36 + 168 * i, 473))
    p.box(372, 526, 144, 60, "disk", "OPEN", "a fork, at turn 1:", "no turn is copied")
    p.arrow((444, 506), (444, 526))
    return p


PICTURES = {"request.svg": request, "batch.svg": batch, "pages.svg": pages, "journal.svg": journal, "workers.svg": workers,
            "determinism.svg": determinism, "page_life.svg": page_life, "turn_states.svg": turn_states, "step_form.svg": step_form,
            "commit.svg": commit}


def unknown_names():
    """Functions that a picture names and the sources do not have."""
    root, names, sources = os.path.dirname(DOCS), set(), []
    for draw in PICTURES.values():
        for code in re.findall(r'<text class="code"[^>]*>([^<]*)<', draw().drawn()):
            names |= set(re.findall(r"[a-z]+(?:_[a-z]+)+", code))
    for folder in ("agents", "base", "batching", "compute", "server"):
        for at, _, files in os.walk(os.path.join(root, folder)):
            for name in files:
                if name.endswith((".c", ".h")):
                    with open(os.path.join(at, name), encoding="utf-8") as file:
                        sources.append(file.read())
    text = "\n".join(sources)
    return sorted(name for name in names if not re.search(rf"\b{name}\b", text))


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(__doc__.strip())
    if unknown := unknown_names():
        raise SystemExit(f"a picture names what the sources do not have: {', '.join(unknown)}")
    for name, draw in PICTURES.items():
        path, drawn = os.path.join(DOCS, name), draw().drawn()
        if sys.argv[1:] == []:
            with open(path, "w", encoding="utf-8") as file:
                file.write(drawn)
            continue
        with open(path, encoding="utf-8") as file:
            if file.read() != drawn:
                raise SystemExit(f"docs/{name} is not what docs/make_pictures.py draws: run it")


if __name__ == "__main__":
    main()
