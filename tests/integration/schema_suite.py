"""The official JSON-Schema suite, draft 2020-12, through guard and engine: what is admitted must be
valid. usage: schema_suite.py VERDICTS SUITE [--refused]   (SUITE: the folder that holds draft2020-12)"""
import collections
import json
import pathlib
import subprocess
import sys

# Formats are approximate: the engine's date may be 30 February, its seconds 60 at any hour.
APPROXIMATE = {"date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri",
               "uri-reference", "uri-template", "uuid", "json-pointer", "relative-json-pointer"}
LEAST_CORRECT = 1350
LEAST_CASES = 1200  # a suite that is not there must not pass


def cases(suite):
    files = sorted((suite / "draft2020-12").glob("*.json")) + sorted((suite / "draft2020-12/optional").rglob("*.json"))
    for path in files:
        for case in json.loads(path.read_text()):
            yield path, case


def main():
    verdicts, suite = sys.argv[1], pathlib.Path(sys.argv[2])
    all_cases = list(cases(suite))
    lines = [json.dumps({"schema": json.dumps(c["schema"], ensure_ascii=False), "texts": [json.dumps(t["data"], ensure_ascii=False) for t in c["tests"]]})
             for _, c in all_cases]
    done = subprocess.run([verdicts], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=500)
    if done.returncode == 77:
        print(done.stdout.strip())
        return 77
    answers = done.stdout.splitlines()
    assert done.returncode == 0 and len(answers) == len(all_cases), (done.returncode, len(answers), len(all_cases), done.stderr[-500:])
    counts, wrong, refused = collections.Counter(), [], collections.Counter()
    for (path, case), answer in zip(all_cases, answers):
        if answer.startswith("refused"):
            counts["refused"] += len(case["tests"])
            refused[answer] += 1
            if "--refused" in sys.argv:
                print(f"{path.name}: {case['description']}: {answer}")
            continue
        for test, said in zip(case["tests"], answer):
            is_format = path.parent.name == "format" and path.stem in APPROXIMATE
            if (said == "1") == test["valid"]:
                counts["correct"] += 1
            elif said == "0":
                counts["false refusals"] += 1
                if "--narrow" in sys.argv:
                    print(f"narrow: {path.name}: {case['description']}: {test['description']} {json.dumps(test['data'])}")
            elif is_format:
                counts["approximate formats"] += 1
            else:
                wrong.append(f"{path.name}: {case['description']}: {test['description']}: {json.dumps(test['data'])}")
    for line in wrong:
        print("accepted though invalid:", line)
    print(dict(counts), "accepted though invalid:", len(wrong))
    assert sum(counts.values()) + len(wrong) >= LEAST_CASES
    return 1 if wrong or counts["correct"] < LEAST_CORRECT else 0


if __name__ == "__main__":
    sys.exit(main())
