#!/usr/bin/env python3
"""Compares the .proto files of package parley.v1 with the set that was last agreed on, proto/agreed.txt: services, messages
and enums, without comments and whichever file they stand in. Needs protoc.

usage: check_wire.py [--agree] [--root DIR]
"""
import argparse
import glob
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # proto/ stays as it is
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proto"))
from descriptors import all_of, join, text_of  # noqa: E402: reads descriptors without protobuf's Python

PACKAGE = "parley.v1"
AGREED = "proto/agreed.txt"
HEAD = f"# What package {PACKAGE} puts on the wire. tools/check_wire.py compares it, and with --agree writes it.\n"
# of FieldDescriptorProto.Type, by number; enums and messages have a name
TYPES = ["", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "", "bytes", "uint32", "",
         "sfixed32", "sfixed64", "sint32", "sint64"]
LABELS = {2: "required ", 3: "repeated "}


def number_of(data, number):
    """Of a varint that may be negative; 0 where there is none."""
    value = (all_of(data, number) or [0])[0]
    return value - (1 << 64 if value >> 63 else 0)


def short(name):
    return name.removeprefix(f".{PACKAGE}.")


def type_of(field):
    return short(text_of(field, 6)) or TYPES[number_of(field, 5)]


def is_map_entry(message):
    return any(number_of(options, 7) for options in all_of(message, 7))


def kind_of(field, maps):
    """The field's label and type."""
    kind = type_of(field)
    if kind in maps:
        return "map<{}, {}>".format(*map(type_of, all_of(maps[kind], 2)))
    return ("optional " if number_of(field, 17) else LABELS.get(number_of(field, 4), "")) + kind


def member_of(field, oneofs):
    """Of which oneof it is, as a suffix; that of an optional field is protoc's own."""
    index = all_of(field, 9)
    return f" oneof {oneofs[index[0]]}" if index and not number_of(field, 17) else ""


def enum_lines(scope, enum):
    name = join(scope, text_of(enum, 1))
    yield ("enum", name), f"enum {name}"
    for value in all_of(enum, 2):
        yield ("enum", name, number_of(value, 2)), f"enum {name} value {number_of(value, 2)} {text_of(value, 1)}"


def message_lines(scope, message):
    name = join(scope, text_of(message, 1))
    nested = all_of(message, 3)
    maps = {join(name, text_of(one, 1)): one for one in nested if is_map_entry(one)}
    oneofs = [text_of(one, 1) for one in all_of(message, 8)]
    yield ("message", name), f"message {name}"
    for field in all_of(message, 2):
        number = number_of(field, 3)
        yield ("message", name, number), f"message {name} field {number} {text_of(field, 1)} {kind_of(field, maps)}{member_of(field, oneofs)}"
    for one in nested:
        if not is_map_entry(one):
            yield from message_lines(name, one)
    for enum in all_of(message, 4):
        yield from enum_lines(name, enum)


def service_lines(service):
    name = text_of(service, 1)
    yield ("service", name), f"service {name}"
    for method in all_of(service, 2):
        takes, answers = (("stream " if number_of(method, stream) else "") + short(text_of(method, of)) for of, stream in ((2, 5), (3, 6)))
        yield ("service", name, text_of(method, 1)), f"service {name} method {text_of(method, 1)}({takes}) returns ({answers})"


def file_lines(file):
    for message in all_of(file, 4):
        yield from message_lines("", message)
    for enum in all_of(file, 5):
        yield from enum_lines("", enum)
    for service in all_of(file, 6):
        yield from service_lines(service)


def read_wire():
    """One line for each service, method, message, field, enum and value, in an order of their own."""
    protos = sorted(glob.glob("proto/{}/*.proto".format(PACKAGE.replace(".", "/"))))
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", "-I", "proto", f"--descriptor_set_out={out.name}", *protos], check=True)
        files = all_of(out.read(), 1)
    rows = [row for file in files if text_of(file, 2) == PACKAGE for row in file_lines(file)]
    return [line for _, line in sorted(rows, key=lambda row: row[0])]


def read_agreed():
    if not os.path.exists(AGREED):
        return []
    with open(AGREED, encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file if not line.startswith("#")]


def write_agreed(wire):
    with open(AGREED, "w", encoding="utf-8") as file:
        file.write(HEAD + "".join(line + "\n" for line in wire))


def differences(agreed, wire):
    """A changed line's two forms beside each other."""
    gone, come = set(agreed) - set(wire), set(wire) - set(agreed)
    rows = [(line, "-") for line in gone] + [(line, "+") for line in come]
    return [f"{sign} {line}" for line, sign in sorted(rows, key=lambda row: (row[0].split()[:4], row[1] == "+", row[0]))]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agree", action="store_true")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    options = parser.parse_args(argv)
    os.chdir(options.root)
    wire = read_wire()
    found = differences(read_agreed(), wire)
    for line in found:
        print(line, file=sys.stderr)
    if options.agree:
        write_agreed(wire)
    elif found:
        print(f"the wire differs from the agreed one ({AGREED}); if this is intended, run tools/check_wire.py --agree and add a line to the "
              "section 'Changes of the wire' of CHANGES.md", file=sys.stderr)
    return 1 if found and not options.agree else 0


if __name__ == "__main__":
    sys.exit(main())
