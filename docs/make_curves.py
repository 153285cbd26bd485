#!/usr/bin/env python3
"""Trains each algorithm of client/examples/algorithms with five seeds, and draws docs/algorithms.svg; prints the table of docs/algorithms.md.

usage: docs/make_curves.py FOLDER [NAME]…    FOLDER keeps what was trained: NAME.json; what is there is not trained again. By a Python with
torch (tests/support/torch.sh or tests/bench/baselines.sh), from the root of a built tree, with PYTHONPATH as `./run train sac` sets it"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TRAIN = os.path.join(HERE, "../client/examples/algorithms/train.py")
SEEDS = 1, 2, 3, 4, 5
# The command of each, and the mean return of random actions.
RUNS = {"ddpg": ("ddpg --steps 3500", -1197), "td3": ("td3 --steps 3500", -1197), "sac": ("sac --steps 3500", -1197),
        "rainbow": ("rainbow --steps 8000", 25), "maddpg": ("maddpg --steps 10000", -50)}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 300, 200, 46, 26, 28


def smooth(curve, n=4):
    """The mean of the last n episodes: the environments of a seed."""
    return [(curve[i][0], sum(r for _, r in curve[max(0, i + 1 - n):i + 1]) / min(n, i + 1)) for i in range(len(curve))]


def panel(found):
    """The curves of one algorithm, a line for each seed."""
    curves = [smooth(curve) for curve in found["curves"]]
    values = [y for curve in curves for _, y in curve]
    low, high, most = min(values), max(values), found["steps"]
    right, bottom = WIDTH - 10, HEIGHT - BOTTOM

    def at(x, y):
        return f"{LEFT + (right - LEFT) * x / most:.1f},{bottom - (bottom - TOP) * (y - low) / ((high - low) or 1):.1f}"

    lines = "".join(f'<polyline fill="none" stroke="hsl({211 + 40 * i},70%,45%)" stroke-width="1.2" points="'
                    + " ".join(at(x, y) for x, y in curve[::max(1, len(curve) // 120)] + curve[-1:]) + '"/>' for i, curve in enumerate(curves))
    marks = "".join(f'<text x="{LEFT - 5}" y="{bottom - (bottom - TOP) * k / 2 + 4:.0f}" text-anchor="end">{low + (high - low) * k / 2:.0f}</text>' for k in range(3))
    return (f'<text x="{WIDTH / 2}" y="16" text-anchor="middle" font-weight="bold">{found["algorithm"]}, {found["env"]}</text>{lines}{marks}'
            f'<text x="{right}" y="{HEIGHT - 8}" text-anchor="end">{most:,} steps</text>')


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(RUNS)
    os.makedirs(folder, exist_ok=True)
    for name in names:
        path = os.path.join(folder, f"{name}.json")
        if not os.path.exists(path):
            subprocess.run(["nice", "-n", "19", sys.executable, TRAIN, *RUNS[name][0].split(), "--seeds", *map(str, SEEDS), "--json", path], check=True)
    found = {}
    for name in RUNS:
        path = os.path.join(folder, f"{name}.json")
        if os.path.exists(path):
            with open(path) as f:
                found[name] = json.load(f)
    rows = -(-len(found) // 2)
    with open(os.path.join(HERE, "algorithms.svg"), "w") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {rows * HEIGHT}" font-family="sans-serif" font-size="11">'
                  f'<rect width="{2 * WIDTH}" height="{rows * HEIGHT}" fill="white"/>')
        for i, one in enumerate(found.values()):
            out.write(f'<g transform="translate({i % 2 * WIDTH},{i // 2 * HEIGHT})">{panel(one)}</g>')
        out.write("</svg>\n")
    print("| command | environment | updates | seconds | random actions | returns of the five seeds | mean |\n|---|---|---|---|---|---|---|")
    for name, one in found.items():
        scores = ", ".join(f"{s:.0f}" for s in one["scores"])
        print(f"| `{RUNS[name][0]}` | {one['env']} | {one['updates']:,} | {one['seconds']:.0f} | {RUNS[name][1]} | {scores} | **{sum(one['scores']) / len(one['scores']):.0f}** |")


if __name__ == "__main__":
    main()
