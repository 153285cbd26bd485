"""The wheel's messages are made from proto/ when it is built; they are not in the tree. They refuse a protobuf that is older than what made
them, and are promised to work with the next major one: the wheel asks for these."""
import importlib.metadata
import pathlib
import re

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parents[2]


class BuildWithMessages(build_py):
    def run(self) -> None:
        super().run()
        import grpc_tools.protoc

        protos = sorted(map(str, (ROOT / "proto/parley/v1").glob("*.proto")))
        words = ["protoc", f"-I{ROOT / 'proto'}", f"--python_out={self.build_lib}", f"--pyi_out={self.build_lib}",
                 f"--grpc_python_out={self.build_lib}", *protos]
        if grpc_tools.protoc.main(words) != 0:
            raise SystemExit("the messages could not be made from proto/parley/v1")
        (pathlib.Path(self.build_lib) / "parley/v1/__init__.py").touch()


made_with = re.search(r"^protobuf\b.*>=(\d+)([.\d]*)", "\n".join(importlib.metadata.requires("grpcio-tools") or ()), re.MULTILINE)
assert made_with, "grpcio-tools names no protobuf"
version = re.search(r"^  version: '(.*)',$", (ROOT / "meson.build").read_text(), re.MULTILINE)
assert version, "meson.build says no version"
setup(version=version[1], cmdclass={"build_py": BuildWithMessages},
      install_requires=["grpcio>=1.60", f"protobuf>={made_with[1]}{made_with[2]},<{int(made_with[1]) + 2}"])
