"""Draws schemas, instances of them and near-instances, and compares what our grammars admit with two validators of PyPI, jsonschema and
jsonschema-rs. What is admitted must be valid by both, and so must texts that are drawn from the grammars themselves; what is valid and not admitted is
counted by the rule that says why.
usage: schema_pairs.py VERDICTS PAIRS [SEED]      (run by an interpreter that has the two; see schema_pairs.sh)

exit 1: something was admitted that a validator refuses, and no rule below names the difference; or a grammar was none for the engine
"""
import collections
import fractions
import itertools
import json
import random
import subprocess
import sys
import threading
import warnings

import jsonschema
import jsonschema_rs

warnings.simplefilter("ignore")
N_TEXTS = 20  # for each schema
N_DRAWN = 4  # texts that its grammar draws, beside them
LEAST_ADMITTED = 0.5  # of the valid texts: a grammar that admits nothing is no answer
FORMATS = ("date", "date-time", "time", "ipv4", "ipv6", "uuid", "email", "duration", "json-pointer", "uri", "hostname", "no-such-format",
           "idn-email", "idn-hostname", "iri", "iri-reference", "regex", "relative-json-pointer", "uri-reference", "uri-template")
OF_FORMAT = {"date": ("2024-02-29", "2023-02-29", "1999-12-31", "2024-13-01", "2024-1-1"),
             "date-time": ("2024-02-29T23:59:59Z", "2024-01-01T00:00:00.5+01:00", "2024-01-01 00:00:00Z", "2024-01-01T24:00:00Z", "1998-12-31T23:59:60Z"),
             "time": ("12:00:00Z", "12:00:00.123-05:00", "25:00:00Z", "12:00:00", "23:59:60Z"),
             "ipv4": ("127.0.0.1", "255.255.255.255", "256.0.0.1", "1.2.3", "01.2.3.4"),
             "ipv6": ("::1", "fe80::1:2", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1::2::3", "12345::"),
             "uuid": ("2f1a3b4c-0000-4000-8000-00000000abcd", "2F1A3B4C-0000-4000-8000-00000000ABCD", "2f1a3b4c00004000800000000000abcd", "x"),
             "email": ("a@b.example", "a.b+c@example.org", "@b", "a@", "a b@c.d"),
             "duration": ("P1D", "PT1H30M", "P1Y2M3DT4H5M6S", "P", "PT", "P1W", "1D"),
             "json-pointer": ("", "/a/b", "/a~1b", "a", "/a~2"), "uri": ("https://a.example/b?c#d", "urn:x:y", "a/b", "http://[::1]/"),
             "hostname": ("a.example", "localhost", "-a.example", "a_b"), "no-such-format": ("x", ""),
             "idn-email": ("a@b.example", "é@b.example", "a"), "idn-hostname": ("a.example", "é.example", "-a", "xn--x"),
             "iri": ("https://a.example/b", "https://é.example/", "a/b"), "iri-reference": ("a/b", "é", "a b"), "regex": ("^a+$", "(a|b)*", "(a", "[b-a]"),
             "relative-json-pointer": ("0", "1/a", "0#", "/a", "01"), "uri-reference": ("a/b", "#c", "a b", "//["), "uri-template": ("a{b}", "{?c,d*}", "{", "a{")}
CHARS = "abcxyz019 _-.:/é→😀\"\\\n\t"

def is_leap_second(value, _):
    return ":60" in value


def is_exact_multiple(value, divisor):
    return fractions.Fraction(repr(value)) % fractions.Fraction(repr(divisor)) == 0


def ends_a_line(value, _):
    return '\\n"' in json.dumps(value)


def any_instance(*_):
    return True


# Differences of dialect, each with its reason: (keyword of the path at which a validator refuses, its argument or None, of which instances, reason).
# The validators refuse, the grammar admits.
RULES = (
    ("format", "time", is_leap_second, "jsonschema takes no leap second, which RFC 3339 allows at the end of a day in UTC"),
    ("format", "date-time", is_leap_second, "likewise"),
    ("format", "uri", any_instance, "jsonschema without rfc3987 checks nothing; jsonschema-rs asks more of a host than RFC 3986"),
    ("format", "email", any_instance, "jsonschema asks for an @ alone; jsonschema-rs asks more of a domain than RFC 5321's letters"),
    ("format", "idn-email", any_instance, "likewise"),
    ("oneOf", None, ends_a_line, "Python's $ matches before a last line feed, too: then an alternative's pattern does"),
    ("not", None, ends_a_line, "likewise"),
    ("multipleOf", None, is_exact_multiple, "jsonschema divides as floating point does: 0.07 is no multiple of 0.01"),
)


class Draw:
    """Schemas and values by turns of a die."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.defs = {}

    def one(self, *ways):
        return self.chance.choice(ways)

    def maybe(self, share=0.5):
        return self.chance.random() < share

    def text(self):
        return "".join(self.chance.choice(CHARS) for _ in range(self.chance.randint(0, 6)))

    def name(self):
        return self.one("a", "b", "ab", "abc", "x-1", "é", "q\"", "$ref", "type", "0")

    # regular expressions: (text, a function that draws what matches)
    def regex_atom(self, depth):
        kind = self.chance.randint(0, 7 if depth else 5)
        if self.maybe(0.05):
            name, chars = self.chance.choice((("p{L}", "aé→Ω"), ("P{L}", "1-☃"), ("p{Lu}", "AÉ"), ("p{gc=Nd}", "0٣"), ("p{Script=Greek}", "αΩ"),
                                              ("p{scx=Cyrl}", "дЖ"), ("p{Alphabetic}", "aⅣ"), ("p{Punctuation}", "._«")))
            return self.one(f"\\{name}", f"[\\{name}0]"), lambda: self.chance.choice(chars)
        if kind == 0:
            return "[a-c]", lambda: self.one("a", "b", "c")
        if kind == 1:
            return "\\d", lambda: self.one(*"0123456789")
        if kind == 2:
            return "[^x\"]", lambda: self.one("a", "é", "9", "\\", "\n")
        if kind == 3:
            return "\\.", lambda: "."
        if kind in (4, 5):
            letter = self.one("a", "b", "_", "é")
            return letter, lambda: letter
        inner, draw = self.regex(depth - 1)
        return f"(?:{inner})", draw

    def regex_part(self, depth):
        text, draw = self.regex_atom(depth)
        least, most = self.one((1, 1), (1, 1), (0, 1), (0, 3), (1, 3), (2, 2), (1, 2))
        sign = {(1, 1): "", (0, 1): "?", (0, 3): "*", (1, 3): "+", (2, 2): "{2}", (1, 2): "{1,2}"}[least, most]
        return text + sign, lambda: "".join(draw() for _ in range(self.chance.randint(least, most)))

    def regex(self, depth):
        ways = [[self.regex_part(depth) for _ in range(self.chance.randint(1, 3))] for _ in range(self.one(1, 1, 2))]

        def draw():
            return "".join(part[1]() for part in self.chance.choice(ways))
        return "|".join("".join(part[0] for part in way) for way in ways), draw

    def pattern(self):
        text, draw = self.regex(1)
        start, end = self.maybe(0.7), self.maybe(0.7)
        return ("^" * start + (f"(?:{text})" if "|" in text else text) + "$" * end,
                lambda: ("" if start else self.text()) + draw() + ("" if end else self.text()))

    # Each returns the schema and a function that draws an instance of it, as a rule.
    def string(self):
        schema, draw = {"type": "string"}, self.text
        kind = self.chance.randint(0, 5)
        if kind == 0:
            schema["pattern"], draw = self.pattern()
        elif kind == 1:
            schema["format"] = self.chance.choice(FORMATS)
            draw = lambda: self.chance.choice(OF_FORMAT[schema["format"]])  # noqa: E731
        if self.maybe(0.3):
            schema["minLength"] = self.chance.randint(0, 4)
        if self.maybe(0.3):
            schema["maxLength"] = self.chance.randint(0, 8)
        if self.maybe(0.05):
            schema["maxLength"] = self.chance.choice((255, 300, 600))
            longest, begin = schema["maxLength"], draw if "pattern" in schema else str
            draw = lambda: begin().ljust(self.chance.choice((longest, longest - 1, longest + 1, longest // 2)), "é")  # noqa: E731
        return schema, draw

    def number(self):
        kind = self.one("integer", "number")
        schema, low = {"type": kind}, self.chance.randint(-20, 20)
        if self.maybe():
            schema[self.one("minimum", "exclusiveMinimum")] = low
        if self.maybe():
            schema[self.one("maximum", "exclusiveMaximum")] = low + self.one(0, 1, 7, 100, 0.5)
        if self.maybe(0.2):
            schema["multipleOf"] = self.one(1, 2, 5, 7, 0.5, 0.25, 10, 0.1, 0.01, 360, 1000, 86400)

        def draw():
            if kind == "integer" or self.maybe():
                return self.one(low, low + 1, low - 1, 0, low * 7, low + 10, 10**12)
            return self.one(low + 0.5, low - 0.25, 0.1, 1.0, low + 1.5, 1e-7)
        return schema, draw

    def values(self):
        all_values = [self.one(self.text(), self.chance.randint(-3, 3), 2.5, None, True, False, [1, "a"], {"a": 1}, "é") for _ in range(self.chance.randint(1, 5))]
        if self.maybe(0.2):
            return {"const": all_values[0]}, lambda: all_values[0]
        return {"enum": all_values}, lambda: self.chance.choice(all_values)

    def array(self, depth):
        items, draw_item = self.schema(depth - 1)
        least = self.chance.randint(0, 2)
        schema, most, prefix = {"type": "array", "items": items}, least + self.chance.randint(0, 3), []
        if self.maybe():
            schema["minItems"] = least
        if self.maybe():
            schema["maxItems"] = most
        if self.maybe(0.2):
            prefix = [self.schema(depth - 1) for _ in range(self.chance.randint(1, 2))]
            schema["prefixItems"] = [p[0] for p in prefix]
            if self.maybe():
                schema["items"] = False
        if self.maybe(0.2):
            schema["uniqueItems"] = True
        if self.maybe(0.1):
            schema["contains"] = self.schema(0)[0]
            if self.maybe(0.3):
                schema["minContains"] = self.chance.randint(0, 2)
            if self.maybe(0.2):
                schema["maxContains"] = self.chance.randint(1, 2)
        return schema, lambda: [prefix[i][1]() if i < len(prefix) else draw_item() for i in range(self.chance.randint(0, most + 1))]

    def object(self, depth):
        names = self.chance.sample(("a", "b", "ab", "abc", "x-1", "é", "q\"", "type", "0"), self.chance.randint(0, 4))
        members = {n: self.schema(depth - 1) for n in names}
        schema = {"type": "object", "properties": {n: m[0] for n, m in members.items()}}
        required = [n for n in names if self.maybe()] + (["z"] if self.maybe(0.05) else [])
        rest = self.text
        if required and self.maybe(0.8):
            schema["required"] = required
        if self.maybe(0.4):
            schema["additionalProperties"] = self.one(False, False, True)
            if self.maybe(0.3):
                schema["additionalProperties"], rest = self.schema(0)
        if self.maybe(0.15):
            schema["patternProperties"] = {self.one("^x-", "b", "^a", "[0-9]"): self.schema(0)[0]}
        if self.maybe(0.1):
            schema["propertyNames"] = self.one({"pattern": "^[a-z]"}, {"maxLength": 3}, {"minLength": 2}, {"enum": ["a", "b", "ab"]}, {"type": "string"},
                                               {"anyOf": [{"pattern": "^a"}, {"enum": ["b", "x-1"]}]}, {"anyOf": [{"minLength": 3}, {"const": "a"}, False]},
                                               {"oneOf": [{"pattern": "b"}, {"maxLength": 1}]}, {"not": {"pattern": "^a", "minLength": 2}})
        if self.maybe(0.15):
            schema["minProperties"] = self.chance.randint(0, 3)
        if self.maybe(0.15):
            schema["maxProperties"] = self.chance.randint(0, 4)
        if names and self.maybe(0.1):
            schema["dependentRequired"] = {names[0]: [self.chance.choice(names)]}

        def draw():
            out = {n: m[1]() for n, m in members.items() if n in required or self.maybe()}
            if self.maybe(0.2):
                out[self.name()] = rest()
            return out
        return schema, draw

    def combined(self, depth):
        kind = self.one("anyOf", "anyOf", "oneOf", "oneOf", "overlap", "allOf", "not", "if", "$ref", "types", "siblings")
        if kind in ("anyOf", "oneOf"):
            ways = [self.schema(depth - 1) for _ in range(self.chance.randint(1, 3))]
            return {kind: [w[0] for w in ways]}, lambda: self.chance.choice(ways)[1]()
        if kind == "overlap":
            of = self.one(self.object, self.string, self.number)
            ways = [of(depth - 1) if of == self.object else of() for _ in range(2)]
            beside = self.one({}, {}, {"properties": {"a": {}, "b": {}}}, {"required": [self.name()]}, {"minProperties": 2})
            return {"oneOf": [w[0] for w in ways]} | beside, lambda: self.chance.choice(ways)[1]()
        if kind == "allOf":
            first, draw = self.object(depth - 1)
            return {"allOf": [first, self.object(depth - 1)[0]]}, draw
        if kind == "siblings":
            first, draw = self.object(depth - 1)
            return first | {self.one("anyOf", "oneOf"): [{"required": [self.name()]}, {"required": [self.name()]}]}, draw
        if kind == "not":
            first, draw = self.schema(depth - 1)
            return first | {"not": self.one({"const": self.text()}, {"enum": [1, "a"]}, {"type": "null"}, {"required": ["a"]})}, draw
        if kind == "if":
            first, draw = self.object(depth - 1)
            return first | {"if": {"properties": {"a": {"const": self.one(1, "a", True)}}, "required": ["a"]}, "then": {"required": ["b"]}} | (
                {"else": {"required": ["ab"]}} if self.maybe() else {}), draw
        if kind == "types":
            types = self.chance.sample(("string", "integer", "null", "boolean", "array", "object", "number"), 2)
            return {"type": types} | (self.one({}, {"minLength": 1}, {"minimum": 0}, {"maxItems": 1})), lambda: self.one("a", "", 1, -1, None, True, [], [1, 2], {}, 0.5)
        name = self.one("d0", "d1")
        if name not in self.defs:
            self.defs[name] = None  # it may refer to itself
            self.defs[name] = self.schema(depth - 1)
        return {"$ref": f"#/$defs/{name}"}, lambda: self.defs[name][1]() if self.defs.get(name) and self.maybe(0.8) else None

    def schema(self, depth):
        kind = self.chance.randint(0, 11 if depth > 0 else 7)
        if kind <= 2:
            return self.string()
        if kind <= 4:
            return self.number()
        if kind == 5:
            return self.values()
        if kind == 6:
            return {"type": "boolean"}, lambda: self.maybe()
        if kind == 7:
            return self.one({"type": "null"}, {"type": "null"}, {}), lambda: None
        return self.array(depth) if kind == 8 else self.object(depth) if kind <= 10 else self.combined(depth)

    def top(self):
        self.defs = {}
        schema, draw = self.one(self.object, self.object, self.schema)(2)
        if self.defs and isinstance(schema, dict):
            schema = schema | {"$defs": {name: of[0] if of else {} for name, of in self.defs.items()}}
        return schema, draw

    def near(self, value):
        """A little else."""
        kind = self.chance.randint(0, 5)
        if isinstance(value, dict) and value and kind < 5:
            out, name = dict(value), self.chance.choice(list(value))
            if kind == 0:
                del out[name]
            elif kind == 1:
                out[self.name()] = self.one(1, "a", None)
            else:
                out[name] = self.near(value[name])
            return out
        if isinstance(value, list) and kind < 5:
            out = list(value)
            if out and kind == 0:
                out.pop()
            elif out and kind == 1:
                out.append(out[0])
            elif out and kind == 2:
                i = self.chance.randrange(len(out))
                out[i] = self.near(out[i])
            else:
                out.append(self.one(1, "a", None))
            return out
        if isinstance(value, str) and kind < 5:
            return self.one(value + self.one("a", "é", "\n", "0", " "), value[:-1], value[1:], value.upper(), value * 2)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and kind < 5:
            return self.one(value + 1, value - 1, value + 0.5, -value, value * 2)
        return self.one(None, True, 0, 1, "", "a", [], {}, -1.5)


def pairs(seed, n):
    """Schemas with texts, about n of them in all."""
    draw = Draw(seed)
    for _ in range(max(1, n // N_TEXTS)):
        schema, instance = draw.top()
        values = []
        for _ in range(N_TEXTS):
            value = instance()
            for _ in range(draw.one(0, 0, 1, 2)):
                value = draw.near(value)
            values.append(value)
        yield schema, [in_order(schema, v) for v in values]


def in_order(schema, value):
    """Members as grammars have them: in the schema's order, the others behind."""
    if isinstance(value, dict):
        known = list(schema.get("properties", {})) if isinstance(schema, dict) else []
        names = [n for n in known if n in value] + [n for n in value if n not in known]
        return {n: in_order(schema.get("properties", {}).get(n, {}) if isinstance(schema, dict) else {}, value[n]) for n in names}
    if isinstance(value, list):
        items = schema.get("items", {}) if isinstance(schema, dict) else {}
        return [in_order(items, v) for v in value]
    return value


class NoJson(str):
    """A text that a grammar has, and that is no JSON."""


def instance_of(text):
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return NoJson(text)


def why_invalid(validators, value):
    """None, or of the first validator that refuses: its name, the keyword, the instance; of jsonschema, its error behind."""
    ours, theirs = validators
    if not theirs.is_valid(value):
        error = next(iter(theirs.iter_errors(value)))
        return "jsonschema-rs", str(error.schema_path[-1]) if error.schema_path else "", error.instance
    for error in ours.iter_errors(value) if ours else ():
        return "jsonschema", error.validator, error.instance, error
    return None


def formats_of(schema):
    if isinstance(schema, dict):
        yield from (f for f in (schema.get("format"),) if isinstance(f, str))
        yield from itertools.chain.from_iterable(map(formats_of, schema.values()))
    elif isinstance(schema, list):
        yield from itertools.chain.from_iterable(map(formats_of, schema))


def rule_of_error(error):
    """The rule that names why jsonschema refuses; of alternatives, of one that would hold but for such a difference."""
    if error.context:
        of_alternatives = {}
        for inner in error.context:
            of_alternatives.setdefault(inner.schema_path[0], []).append(rule_of_error(inner))
        return next((reasons[0] for reasons in of_alternatives.values() if all(reasons)), None)
    return next((reason for keyword, argument, holds, reason in RULES
                 if error.validator == keyword and argument in (error.validator_value, None) and holds(error.instance, error.validator_value)), None)


def rule_of(schema, why):
    if len(why) == 4:
        return rule_of_error(why[3])
    return next((reason for keyword, argument, holds, reason in RULES
                 if why[1] == keyword and argument in formats_of(schema) and holds(why[2], argument)), None)


def main():
    verdicts, n, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    program = subprocess.Popen([verdicts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    drawn, counts, refused, excused, wrong, broken = (
        list(pairs(seed, n)), collections.Counter(), collections.Counter(), collections.Counter(), [], [])

    def ask():
        for schema, values in drawn:
            program.stdin.write(json.dumps({"schema": json.dumps(schema, ensure_ascii=False), "texts": [json.dumps(v, ensure_ascii=False) for v in values],
                                            "n_drawn": N_DRAWN, "seed": seed}) + "\n")
        program.stdin.close()

    threading.Thread(target=ask, daemon=True).start()
    for schema, values in drawn:
        answer = program.stdout.readline().rstrip("\n")
        if not answer and program.wait() == 77:
            print("constraints are not built")
            return 77
        if answer.startswith("refused"):
            counts["of refused schemas"] += len(values)
            refused[answer.split("'", 2)[1] if "'" in answer else answer] += 1
            if "by the engine" in answer and "no reply is finite" not in answer:
                broken.append((schema, answer))
            continue
        answer, drawn_texts = answer.split(" ", 1)
        assert len(answer) == len(values), (schema, answer)
        drawn_values = [instance_of(text) for text in json.loads(drawn_texts)]
        answer += "1" * len(drawn_values)
        text = json.dumps(schema)
        # Its re has no properties of characters, and may take years for a repeated group: jsonschema-rs alone judges those.
        by_python = not any(part in text for part in ("\\\\p{", "\\\\P{", ")*", ")+", "){"))
        validators = (jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER) if by_python else None,
                      jsonschema_rs.Draft202012Validator(schema, validate_formats=True, ignore_unknown_formats=True))
        for i, (value, said) in enumerate(zip(values + drawn_values, answer, strict=True)):
            why = ("", "a text that is no JSON", None) if isinstance(value, NoJson) else why_invalid(validators, value)
            if said == "1" and why is not None:
                reason, why = rule_of(schema, why), why[:3]
                counts["admitted by a rule" if reason else "admitted though invalid"] += 1
                excused[reason] += 1
                if not reason:
                    wrong.append((schema, value, why))
            else:
                counts["drawn" if i >= len(values) else "admitted" if said == "1" else "valid, not admitted" if why is None else "refused"] += 1
    for schema, value, why in wrong[:40]:
        print("admitted though invalid:", json.dumps(schema, ensure_ascii=False), json.dumps(value, ensure_ascii=False), why)
    for schema, answer in broken[:10]:
        print("a grammar that is none:", json.dumps(schema, ensure_ascii=False), answer)
    del excused[None]
    print(f"seed {seed}:", dict(counts))
    print("schemas refused, by keyword:", dict(refused.most_common()))
    print("differences by rule:", dict(excused))
    share = counts["admitted"] / max(1, counts["admitted"] + counts["valid, not admitted"])
    print(f"{share:.1%} of the valid texts are admitted")
    return 1 if wrong or broken or share < LEAST_ADMITTED else 0


if __name__ == "__main__":
    sys.exit(main())
