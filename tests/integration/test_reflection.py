#!/usr/bin/env python3
"""Reflection and health, as a foreign client sees them: v1alpha by grpcio-reflection's own client, v1 by hand.

usage: test_reflection.py PARLEYD      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import harness
from children import PATIENCE

SERVICES = {
    "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService", "parley.v1.Act", "parley.v1.Admin", "parley.v1.Agents", "parley.v1.Cluster", "parley.v1.Conversations", "parley.v1.Embeddings", "parley.v1.Env", "parley.v1.Models", "parley.v1.Params", "parley.v1.Registry", "parley.v1.Replay", "parley.v1.Rooms", "parley.v1.Scores", "parley.v1.Store", "parley.v1.Work",
}


def ask(channel, version, *questions):
    """The answers of one stream; the messages of v1 and v1alpha are the same."""
    method = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    return list(method(iter([reflection_pb2.ServerReflectionRequest(host="here", **q) for q in questions]), timeout=PATIENCE))


def by_grpcio(client):
    database = ProtoReflectionDescriptorDatabase(client.channel)
    assert set(database.get_services()) == SERVICES, database.get_services()
    pool = descriptor_pool.DescriptorPool(database)
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    assert len(service.methods) == 20 and service.methods_by_name["ModelStreamInfer"].client_streaming
    assert service.file.name == "inference/grpc_service.proto" and [d.name for d in service.file.dependencies] == ["inference/model_config.proto"]
    assert pool.FindMessageTypeByName("inference.ModelConfig").fields_by_name["model_transaction_policy"].number == 19
    step = pool.FindServiceByName("parley.v1.Act").methods_by_name["Step"]
    assert step.input_type.fields_by_name["observation"].message_type.full_name == "parley.v1.Tensor"
    for name in SERVICES:
        assert pool.FindServiceByName(name).methods
    details = pool.FindMessageTypeByName("google.rpc.BadRequest").fields_by_name["field_violations"].message_type
    assert details.fields_by_name["description"].number == 2 and pool.FindMessageTypeByName("google.rpc.Status").fields_by_name["details"].number == 3
    print("grpcio's client, by v1alpha")


def by_hand(client, version):
    asked = [
        {"list_services": ""},
        {"file_by_filename": "inference/model_config.proto"},
        {"file_containing_symbol": "inference.GRPCInferenceService.ModelInfer"},
        {"file_containing_symbol": "inference.Nothing"},
        {"file_by_filename": "nothing.proto"},
        {"all_extension_numbers_of_type": "inference.ModelConfig"},
        {"all_extension_numbers_of_type": "inference.DataType"},
        {"file_containing_extension": {"containing_type": "inference.ModelConfig", "extension_number": 1000}},
        {},
        {"list_services": "again"},
    ]
    answers = ask(client.channel, version, *asked)
    assert len(answers) == len(asked), answers
    for question, answer in zip(asked, answers):
        assert answer.valid_host == "here" and answer.original_request == reflection_pb2.ServerReflectionRequest(host="here", **question)
    assert {s.name for s in answers[0].list_services_response.service} == SERVICES == {s.name for s in answers[9].list_services_response.service}
    (config,) = answers[1].file_descriptor_response.file_descriptor_proto
    assert descriptor_pb2.FileDescriptorProto.FromString(config).name == "inference/model_config.proto"
    both = [descriptor_pb2.FileDescriptorProto.FromString(f).name for f in answers[2].file_descriptor_response.file_descriptor_proto]
    assert both == ["inference/grpc_service.proto", "inference/model_config.proto"]
    for i in (3, 4, 6, 7):
        assert answers[i].error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0] and answers[i].error_response.error_message, answers[i]
    numbers = answers[5].all_extension_numbers_response
    assert numbers.base_type_name == "inference.ModelConfig" and not numbers.extension_number
    assert answers[8].error_response.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    print(f"by hand, {version}")


def health(client):
    for name in SERVICES | {"", "echo"}:
        assert client.health.Check(health_pb2.HealthCheckRequest(service=name)).status == health_pb2.HealthCheckResponse.SERVING, name
    try:
        client.health.Check(health_pb2.HealthCheckRequest(service="nothing"))
        raise AssertionError("there is no such service")
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.NOT_FOUND
    watch = client.health.Watch(health_pb2.HealthCheckRequest(service="echo"))
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    client.models.Unload(harness.models.ModelsUnloadRequest(name="echo"))
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    client.models.Load(harness.models.ModelsLoadRequest(name="echo"))
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()
    print("health by name of service and model")


def main():
    with harness.Parleyd(sys.argv[1]) as client:
        by_grpcio(client)
        by_hand(client, "v1")
        by_hand(client, "v1alpha")
        health(client)


if __name__ == "__main__":
    main()
