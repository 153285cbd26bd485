"""The wheel's messages are made from proto/ when it is built; they are not in the tree. They refuse a grpcio and a protobuf that are older
than what made them, and are promised to work with protobuf's next major version: the wheel asks for these."""
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


def made_with(package: str) -> re.Match[str]:
    least = re.search(rf"^{package}\b.*>=(\d+)([.\d]*)", "\n".join(importlib.metadata.requires("grpcio-tools") or ()), re.MULTILINE)
    assert least, f"grpcio-tools names no {package}"
    return least


grpcio, protobuf = made_with("grpcio"), made_with("protobuf")
version = re.search(r"^  version: '(.*)',$", (ROOT / "meson.build").read_text(), re.MULTILINE)
assert version, "meson.build says no version"
setup(version=version[1], cmdclass={"build_py": BuildWithMessages},
      install_requires=[f"grpcio>={grpcio[1]}{grpcio[2]}", f"protobuf>={protobuf[1]}{protobuf[2]},<{int(protobuf[1]) + 2}"])
