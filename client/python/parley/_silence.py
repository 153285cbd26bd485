"""Turns gRPC's own log off, unless the environment says otherwise: parley.Error says what it says. gRPC reads the environment when it is
imported, so this comes first."""
import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
