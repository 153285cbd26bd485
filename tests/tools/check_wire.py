#!/usr/bin/env python3
"""tools/check_wire.py on scratch trees: what is agreed on passes, and each difference is told in lines of its own.

usage: check_wire.py CHECKER      (needs protoc)
"""
import contextlib
import importlib.util
import io
import os
import sys
import tempfile

HEAD = 'syntax = "proto3";\npackage parley.v1;\n'
PROTO = """import "parley/v1/b.proto";
service S {
  // says
  rpc Say(Request) returns (stream Answer);
  rpc Ask(Request) returns (Answer);
}
message Request {
  string text = 1;
  repeated Kind kinds = 2;
  map<string, sint32> rows = 3;
  oneof from {
    uint32 turn = 4;
    Part part = 5;
  }
  optional bool done = 6;
  message Part {
    bytes data = 10;
  }
}
enum Kind {
  KIND_UNSPECIFIED = 0;
  KIND_LOW = -1;
}
"""
OTHER = "message Answer {\n  double sum = 1;\n}\nmessage None {}\n"

WIRE = """enum Kind
enum Kind value -1 KIND_LOW
enum Kind value 0 KIND_UNSPECIFIED
message Answer
message Answer field 1 sum double
message None
message Request
message Request field 1 text string
message Request field 2 kinds repeated Kind
message Request field 3 rows map<string, sint32>
message Request field 4 turn uint32 oneof from
message Request field 5 part Request.Part oneof from
message Request field 6 done optional bool
message Request.Part
message Request.Part field 10 data bytes
service S
service S method Ask(Request) returns (Answer)
service S method Say(Request) returns (stream Answer)
"""

# What is replaced by what, and the lines that tell of it.
DIFFERENCES = [
    ("a field's number", "text = 1;", "text = 7;", ["- message Request field 1 text string", "+ message Request field 7 text string"]),
    ("its name", "text = 1;", "texts = 1;", ["- message Request field 1 text string", "+ message Request field 1 texts string"]),
    ("its type", "string text", "bytes text", ["- message Request field 1 text string", "+ message Request field 1 text bytes"]),
    ("its label", "string text", "repeated string text", ["- message Request field 1 text string", "+ message Request field 1 text repeated string"]),
    ("a map's value", "sint32> rows", "int32> rows", ["- message Request field 3 rows map<string, sint32>", "+ message Request field 3 rows map<string, int32>"]),
    ("a oneof's name", "oneof from", "oneof of", ["- message Request field 4 turn uint32 oneof from", "+ message Request field 4 turn uint32 oneof of",
                                                "- message Request field 5 part Request.Part oneof from", "+ message Request field 5 part Request.Part oneof of"]),
    ("a field less", "bytes data = 10;", "", ["- message Request.Part field 10 data bytes"]),
    ("a field more", "bytes data = 10;", "bytes data = 10; bool end = 11;", ["+ message Request.Part field 11 end bool"]),
    ("a value", "KIND_LOW = -1", "KIND_LOW = 1", ["- enum Kind value -1 KIND_LOW", "+ enum Kind value 1 KIND_LOW"]),
    ("a message more", "enum Kind", "message Late {}\nenum Kind", ["+ message Late"]),
    ("a method less", "  rpc Ask(Request) returns (Answer);\n", "", ["- service S method Ask(Request) returns (Answer)"]),
    ("what a method takes", "Ask(Request)", "Ask(Answer)", ["+ service S method Ask(Answer) returns (Answer)", "- service S method Ask(Request) returns (Answer)"]),
    ("a stream", "Ask(Request)", "Ask(stream Request)",
     ["- service S method Ask(Request) returns (Answer)", "+ service S method Ask(stream Request) returns (Answer)"]),
]


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def run(checker, *arguments, proto=PROTO, other=OTHER):
    """In the working folder: its exit code and what it says."""
    write("proto/parley/v1/a.proto", HEAD + proto)
    write("proto/parley/v1/b.proto", HEAD + other)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = checker.main(["--root", ".", *arguments])
    return code, said.getvalue().splitlines()


def check_agreeing(checker):
    code, said = run(checker)
    assert code == 1 and [f"+ {line}" for line in WIRE.splitlines()] == sorted(said[:-1]), said  # nothing is agreed on yet
    assert run(checker, "--agree")[0] == 0
    with open("proto/agreed.txt", encoding="utf-8") as file:
        assert file.read().split("\n", 1)[1] == WIRE
    assert run(checker) == (0, [])


def main():
    spec = importlib.util.spec_from_file_location("checker", sys.argv[1])
    checker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)
    with tempfile.TemporaryDirectory() as root:
        os.chdir(root)
        os.makedirs("proto/parley/v1")
        check_agreeing(checker)
        assert run(checker, proto=PROTO.replace("// says", "// says other things")) == (0, [])
        moved = PROTO[PROTO.index("enum Kind"):]
        assert run(checker, proto=PROTO.replace(moved, ""), other=moved + OTHER) == (0, [])
        for what, old, new, lines in DIFFERENCES:
            assert old in PROTO, what
            code, said = run(checker, proto=PROTO.replace(old, new, 1))
            assert code == 1 and said[:-1] == lines, f"{what}: {code}, {said}"
            assert "tools/check_wire.py --agree" in said[-1] and "Changes of the wire" in said[-1], said[-1]


if __name__ == "__main__":
    main()
