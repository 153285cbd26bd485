#!/usr/bin/env python3
"""Writes a FileDescriptorSet as the C of proto/descriptors.h. Reads the wire format by itself, so that the build needs no
more than Python.

usage: descriptors.py SET OUT.c
"""
import sys


def fields(data):
    """(number, value) of a message: bytes of what has a length, a number of what is a varint."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
        elif kind == 2:
            size = varint()
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            at += {1: 8, 5: 4}[kind]


def all_of(data, number):
    return [value for n, value in fields(data) if n == number]


def text_of(data, number):
    return "".join(value.decode() for value in all_of(data, number)[:1])


def join(scope, name):
    return f"{scope}.{name}" if scope else name


def has_option(thing, options, option):
    """Whether the option, a number, is 1 among the thing's."""
    return any(1 in all_of(one, option) for one in all_of(thing, options))


def enum_symbols(scope, enum):
    yield join(scope, text_of(enum, 1)), "NAME"
    for value in all_of(enum, 2):  # values stand beside their enum
        yield join(scope, text_of(value, 1)), "NAME"


def message_symbols(scope, message):
    name = join(scope, text_of(message, 1))
    yield name, "MAP_ENTRY" if has_option(message, 7, 7) else "MESSAGE"
    for field in all_of(message, 2) + all_of(message, 8):
        yield join(name, text_of(field, 1)), "NAME"
    for nested in all_of(message, 3):
        yield from message_symbols(name, nested)
    for enum in all_of(message, 4):
        yield from enum_symbols(name, enum)


def services(file):
    return [(join(text_of(file, 2), text_of(service, 1)), service) for service in all_of(file, 6)]


def symbols(file):
    scope = text_of(file, 2)
    for message in all_of(file, 4):
        yield from message_symbols(scope, message)
    for enum in all_of(file, 5):
        yield from enum_symbols(scope, enum)
    for name, service in services(file):
        yield name, "NAME"
        for method in all_of(service, 2):  # idempotency_level: NO_SIDE_EFFECTS
            yield join(name, text_of(method, 1)), "READER" if has_option(method, 4, 34) else "NAME"


def closure(name, imports):
    found, todo = [], list(imports[name])
    while todo:
        one = todo.pop(0)
        if one not in found:
            found.append(one)
            todo += imports[one]
    return found


def main():
    with open(sys.argv[1], "rb") as f:
        files = all_of(f.read(), 1)
    names = [text_of(file, 1) for file in files]
    imports = {text_of(file, 1): [i.decode() for i in all_of(file, 3)] for file in files}
    out = ['#include "proto/descriptors.h"', ""]
    for i, file in enumerate(files):
        out.append(f"static const uint8_t bytes_{i}[] = {{")
        out += ["    " + " ".join(f"{b}," for b in file[at : at + 20]) for at in range(0, len(file), 20)]
        out.append("};")
        places = [names.index(n) for n in closure(names[i], imports)]
        out.append(f"static const uint16_t imports_{i}[] = {{{', '.join(map(str, places)) or '0'}}};")
    out.append("const struct descriptor_file descriptor_files[] = {")
    for i, name in enumerate(names):
        out.append(f'    {{"{name}", bytes_{i}, sizeof(bytes_{i}), imports_{i}, {len(closure(name, imports))}}},')
    out += ["};", f"const size_t descriptor_n_files = {len(files)};", "const struct descriptor_symbol descriptor_symbols[] = {"]
    rows = sorted((symbol, i, kind) for i, file in enumerate(files) for symbol, kind in symbols(file))
    out += [f'    {{"{symbol}", {i}, DESCRIPTOR_{kind}}},' for symbol, i, kind in rows]
    out += ["};", f"const size_t descriptor_n_symbols = {len(rows)};", "const char *const descriptor_services[] = {"]
    listed = sorted(name for file in files for name, _ in services(file))
    out += [f'    "{name}",' for name in listed]
    out += ["};", f"const size_t descriptor_n_services = {len(listed)};", ""]
    with open(sys.argv[2], "w", encoding="ascii") as f:
        f.write("\n".join(out))


if __name__ == "__main__":
    main()
