"""A parleyd of its own for a test: started on a free port, stopped at the end, and a client made from proto/ by grpcio-tools."""
import os
import sys

import grpc

import children

sys.path.insert(0, os.environ["PARLEY_STUBS"])  # made by venv.sh
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from parley.v1 import admin_pb2 as admin, admin_pb2_grpc  # noqa: E402,F401
from parley.v1 import content_pb2 as content  # noqa: E402,F401
from parley.v1 import conversations_pb2 as conversations, conversations_pb2_grpc  # noqa: E402
from parley.v1 import sampling_pb2 as sampling, tensor_pb2  # noqa: E402,F401
from parley.v1 import params_pb2 as params, params_pb2_grpc  # noqa: E402,F401
from parley.v1 import error_pb2, models_pb2 as models, models_pb2_grpc  # noqa: E402,F401


def word(message, field):
    """The value of an enum as people write it: FINISH_REASON_STOP is "stop"."""
    values = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return values[getattr(message, field)].name.removeprefix(values[0].name.removesuffix("UNSPECIFIED")).lower()


class Client:
    def __init__(self, address, *options):
        self.address = address
        self.channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1), *options])
        self.conversations = conversations_pb2_grpc.ConversationsStub(self.channel)
        self.models = models_pb2_grpc.ModelsStub(self.channel)
        self.admin = admin_pb2_grpc.AdminStub(self.channel)
        self.params = params_pb2_grpc.ParamsStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def open(self, model="", **more):
        return self.conversations.Open(conversations.ConversationsOpenRequest(model=model, **more)).conversation

    def fork(self, conversation, **more):
        return self.conversations.Fork(conversations.ConversationsForkRequest(conversation=conversation, **more)).conversation

    def get(self, conversation, **more):
        return self.conversations.Get(conversations.ConversationsGetRequest(conversation=conversation, **more))

    def close(self, conversation):
        self.conversations.Close(conversations.ConversationsCloseRequest(conversation=conversation))


class Parleyd(children.Daemon):
    """with Parleyd(path, flags…) as client: the daemon lives as long as the block, and must end with 0."""

    def __enter__(self):
        super().__enter__()
        self.client = Client(self.address)
        self.client.http = self.http
        return self.client

    def __exit__(self, kind, value, trace):
        self.client.channel.close()
        super().__exit__(kind, value, trace)
