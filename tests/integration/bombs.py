"""Constraints that would take all time or memory of whoever compiles or follows them: hostile.py measures them, test_bombs.py tries
some. Any python3; no packages."""
import json


def nested(schema, n):
    return '{"properties":{"a":' * n + schema + "}}" * n


def names(n):
    return ",".join(f'"n{i}"' for i in range(n))


def optional(n):
    return '{"type":"object","properties":{%s}}' % ",".join(f'"n{i}":{{"type":"string"}}' for i in range(n))


def chain(n, line, end):
    """Rules r0 to rn, each by a line of its number, the next one and the next but one."""
    return "root ::= r0\n" + "".join(line.format(i, i + 1, min(i + 2, n)) + "\n" for i in range(n)) + f"r{n} ::= {end}\n"


def defs(n, body):
    return '{"$defs":{%s,"d%d":{"const":1}},"$ref":"#/$defs/d0"}' % (",".join(f'"d{i}":{body % {"next": i + 1}}' for i in range(n)), n)


def mesh(n):
    """Each rule begins with each other one."""
    return ("root ::= " + " | ".join(f"r{i} root" for i in range(n)) + ' | "z"\n'
            + "\n".join(f"r{i} ::= [a-y] r{(i * 7 + 1) % n} | [a-y] | root root" for i in range(n)))


# By name: how it is asked for, and the text. What a reply may be: "finite" may be answered (200), all else is refused or ends with an error.
SCHEMAS = {
    "array of itself, one at least": '{"type":"array","minItems":1,"items":{"$ref":"#"}}',
    "object of itself": '{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}',
    "a pair that needs each other": '{"$defs":{"a":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/b"}},"b":{"type":"object",'
                                    '"properties":{"x":{"$ref":"#/$defs/a"}},"required":["x"]}},"$ref":"#/$defs/a"}',
    "30 $defs that double": defs(30, '{"type":"array","prefixItems":[{"$ref":"#/$defs/d%(next)d"},{"$ref":"#/$defs/d%(next)d"}],'
                                     '"items":false,"minItems":2}'),
    "30 $defs of objects that double": defs(30, '{"type":"object","properties":{"a":{"$ref":"#/$defs/d%(next)d"},'
                                                '"b":{"$ref":"#/$defs/d%(next)d"}},"required":["a","b"]}'),
    "30 $defs that may double": defs(30, '{"type":"object","properties":{"a":{"$ref":"#/$defs/d%(next)d"},"b":{"$ref":"#/$defs/d%(next)d"}}}'),
    "30 $defs of anyOf that double": defs(30, '{"anyOf":[{"$ref":"#/$defs/d%(next)d"},{"type":"array","items":{"$ref":"#/$defs/d%(next)d"}}]}'),
    "2,000 optional members": optional(2000),
    "200 optional members": optional(200),
    "arrays of arrays of 512": '{"type":"array","minItems":512,"maxItems":512,"items":{"type":"array","minItems":512,"maxItems":512,'
                               '"items":{"type":"array","minItems":512,"items":{"type":"array","minItems":512}}}}',
    "strings of 512 in arrays of 512": '{"type":"array","minItems":512,"items":{"type":"string","minLength":512,"maxLength":512}}',
    "60 levels of objects with members": '{"properties":{"b":{"type":"string"},"c":{"type":"number"},"a":' * 60 + "{}" + "}}" * 60,
    "enumeration of 4,000 long texts": '{"enum":[%s]}' % ",".join(f'"{i:024}"' for i in range(4000)),
    "pattern of 1,000 choices 30 times": '{"type":"string","pattern":"^((%s)x?){30}$"}' % "|".join(f"a{i}b" for i in range(1000)),
    "pattern of nested stars": '{"type":"string","pattern":"^(((a*)*b*)*c*)*d$"}',
    "pattern of 2^20 states": '{"type":"string","pattern":"^[ab]*a[ab]{20}[ab]{20}$"}',
    "pattern of 10^6 repetitions": '{"type":"string","pattern":"^(a{1000}){1000}$"}',
    "depth 2,000": nested('{"type":"string"}', 2000),
    "enumeration of 10^6 numbers": '{"enum":[%s]}' % ",".join(map(str, range(1_000_000))),
    "maxLength 10^9": '{"type":"string","maxLength":1000000000}',
    "minItems 10^9": '{"type":"array","minItems":1000000000}',
    "100,000 required names": '{"type":"object","required":[%s]}' % names(100_000),
    "60,000 members": optional(60_000),
    "allOf of 4,000 with 1,000 members": '{"$defs":{"a":{"properties":{%s}}},"allOf":[%s]}' % (
        ",".join(f'"n{i}":{{}}' for i in range(1000)), ",".join(['{"$ref":"#/$defs/a"}'] * 4000)),
    "allOf of itself": '{"allOf":[{"$ref":"#"},{"$ref":"#"}]}',
    "anyOf of anyOf of 1,000 each": '{"anyOf":[%s]}' % ",".join(['{"anyOf":[%s]}' % ",".join(["{}"] * 1000)] * 40),
}
GRAMMARS = {
    "a rule of itself": 'root ::= "a" root',
    "left recursion": 'root ::= root "a"',
    "a circle of rules": 'root ::= x\nx ::= "a" y\ny ::= "b" x',
    "an unending repetition": 'root ::= x{3}\nx ::= "a" x',
    "30 rules that double": chain(30, "r{0} ::= r{1} r{1}", '"a"'),
    "30 rules that double with a choice": chain(30, 'r{0} ::= r{1} r{1} | "b" r{1} r{2}', '"a"'),
    "500 rules of two": chain(500, "r{0} ::= r{1} r{2}", '"a"'),
    "a literal of 120,000": 'root ::= "%s"' % ("ab" * 60_000),
    "1,000 literals of 120": "root ::= " + " | ".join(f'"{i:0120}"' for i in range(1000)),
    "any number of ways": 'root ::= "" | "a" | root root',
    "300 times any number of ways": 'root ::= y{300}\ny ::= "a" | y y',
    "empty rules in each other": 'root ::= x x x x x x x x\nx ::= "" | y x | x y | x x\ny ::= [a-z ] | y y | [a-z]* y',
    "stars in stars": 'root ::= ([a-z ]* [a-z ]*)* "!"',
    "300 rules that begin with each other": mesh(300),
    "40 rules that begin with each other": mesh(40),
    "a long way round": 'root ::= x "z"\nx ::= [a-z ]* x | [a-z ] x x | [a-z ]',
    "1,000 nested groups": "root ::= " + "(" * 1000 + '"a"' + ")" * 1000,
    "repetitions of repetitions": 'root ::= (("a"{1,30} "b"?){1,30} "c"?){1,1}',
    "a class of classes": "root ::= " + " ".join(["[a-z]*"] * 300) + ' "!"',
}
REGEXES = {
    "regex (a|aa)*": "(a|aa|aaa|aaaa)*b",
    "regex of 10^6": "(a{1000}){1000}",
    "regex with 900 optional": "(" + "a?" * 900 + ")b",
    "regex of dots": ".*.*.*.*.*.*.*.*x",
}


def all_bodies():
    """(name, the fields of a chat completion)"""
    for name, schema in SCHEMAS.items():
        yield name, '"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":%s}}' % schema
    for name, grammar in GRAMMARS.items():
        yield name, '"grammar":%s' % json.dumps(grammar)
    for name, regex in REGEXES.items():
        yield name, '"guided_regex":%s' % json.dumps(regex)


def body(fields, model, max_tokens, text="Once upon a time"):
    return ('{"model":"%s","max_tokens":%d,"temperature":1,"seed":1,"messages":[{"role":"user","content":"%s"}],%s}' % (
        model, max_tokens, text, fields)).encode()
