"""Two clients that go on when parleyd (with --data) is killed and started again, with nothing but a retry: gRPC's stubs continue a stream
behind what they have; the openai package sends the same request again, whose Idempotency-Key gets the same reply.

usage: retries.py grpc HOST:PORT TEXT [SEED [TOKENS]] | retries.py openai HOST:PORT TEXT [SEED [TOKENS]]
       (pip install grpcio grpcio-tools openai; the stubs are made as client/examples/words.py says)"""
import sys
import uuid


def by_grpc(address, text, seed, tokens):
    import grpc
    from parley.v1 import conversations_pb2 as c, conversations_pb2_grpc, cursor_pb2

    parley = conversations_pb2_grpc.ConversationsStub(grpc.insecure_channel(address))
    name = str(uuid.uuid4())  # the same request opens one conversation, however often it is sent

    def until_answered(call):
        while True:
            try:
                return call()
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise

    opened = until_answered(lambda: parley.Open(c.ConversationsOpenRequest(request_id=name), wait_for_ready=True))
    turn = c.TurnRequest(conversation=opened.conversation, turn=1, text=text)
    turn.sampling.seed, turn.sampling.max_tokens, turn.sampling.ignore_eos = seed, tokens, True
    behind = None  # the cursor behind what was read

    def read():
        nonlocal behind
        again = turn if behind is None else c.TurnRequest(conversation=opened.conversation, resume_from=behind)
        for event in parley.Turn(again, wait_for_ready=True):
            if event.HasField("accepted"):
                generation = event.accepted.generation
            if event.HasField("piece"):
                print(event.piece.text, end="", flush=True)
                behind = cursor_pb2.Cursor(generation=generation, turn=1, index=event.piece.next_index)

    until_answered(read)
    print()


def by_openai(address, text, seed, tokens):
    from openai import OpenAI

    client = OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=10)
    model = client.models.list().data[0].id
    reply = client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], seed=seed, max_tokens=tokens,
                                           extra_body={"ignore_eos": True}, extra_headers={"Idempotency-Key": str(uuid.uuid4())})
    print(reply.choices[0].message.content)


def main():
    how, address, text, seed, tokens = (sys.argv[1:] + ["1", "100"][len(sys.argv) - 4:])[:5]
    {"grpc": by_grpc, "openai": by_openai}[how](address, text, int(seed), int(tokens))


if __name__ == "__main__":
    main()
