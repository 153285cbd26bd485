/* The bare transport: the same chunks through gRPC core, up and then down, without a parameter
 * server's work and without waiting for other clients. The server has a thread for each client. */
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/output/console.h"
#include "client/cli/bench/params_bench.h"
#include "client/lib/stream.h"

enum { CHUNK_BYTES = 1 << 20 };

static const char method[] = "/bench.Floor/Exchange";

static grpc_byte_buffer *chunk_of(const void *data, size_t size_bytes)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(data, size_bytes);
    grpc_byte_buffer *out = grpc_raw_byte_buffer_create(&slice, 1);

    grpc_slice_unref(slice);
    return out;
}

static size_t chunk_bytes(size_t size_bytes, size_t at)
{
    return size_bytes - at < CHUNK_BYTES ? size_bytes - at : CHUNK_BYTES;
}

/* --- the server --- */

struct floor_exchange {
    grpc_call *call;
    grpc_completion_queue *queue;
    grpc_metadata_array headers;
    grpc_call_details details;
    const struct params_role *role;
    const char *data; /* [role->n] numbers, what goes down */
    pthread_t thread;
};

static bool floor_start_batch(struct floor_exchange *e, const grpc_op *ops, size_t n)
{
    grpc_event event;

    if (grpc_call_start_batch(e->call, ops, n, e, NULL) != GRPC_CALL_OK)
        return false;
    event = grpc_completion_queue_pluck(e->queue, e, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    return event.success != 0;
}

static bool receive_round(struct floor_exchange *e, size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes; at += CHUNK_BYTES) {
        grpc_byte_buffer *message = NULL;
        grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

        op.data.recv_message.recv_message = &message;
        if (!floor_start_batch(e, &op, 1) || message == NULL)
            return false;
        grpc_byte_buffer_destroy(message);
    }
    return true;
}

static bool send_round(struct floor_exchange *e, size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes; at += CHUNK_BYTES) {
        grpc_byte_buffer *message;
        grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
        grpc_slice slice;
        bool is_sent;

        /* without a copy, as the parameter server does */
        slice = grpc_slice_from_static_buffer(e->data + at, chunk_bytes(size_bytes, at));
        message = grpc_raw_byte_buffer_create(&slice, 1);
        op.data.send_message.send_message = message;
        is_sent = floor_start_batch(e, &op, 1);
        grpc_byte_buffer_destroy(message);
        if (!is_sent)
            return false;
    }
    return true;
}

static void *exchange(void *arg)
{
    struct floor_exchange *e = arg;
    const size_t size_bytes = e->role->n * sizeof(float);
    grpc_slice nothing = grpc_empty_slice();
    grpc_op status = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    grpc_op begin = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    bool ok = floor_start_batch(e, &begin, 1);

    for (size_t i = 0; i < e->role->n_rounds && ok; i++)
        ok = receive_round(e, size_bytes) && send_round(e, size_bytes);
    /* Waits until the client hangs up: a process that ends with unread bytes in its socket
     * resets the connection, and the client loses what it has not read. */
    (void)receive_round(e, size_bytes);
    status.data.send_status_from_server.status = GRPC_STATUS_OK;
    status.data.send_status_from_server.status_details = &nothing;
    /* A client that misses the status misses bytes as well. */
    (void)floor_start_batch(e, &status, 1);
    grpc_call_unref(e->call);
    return NULL;
}

/* Serves as many clients as role->index says. */
enum exit_code params_floor_server(const struct params_role *role)
{
    const size_t n_clients = role->index;
    struct floor_exchange *all = xalloc(n_clients * sizeof(*all));
    char *data = xalloc(role->n * sizeof(float));
    grpc_server_credentials *insecure;
    grpc_completion_queue *queue;
    grpc_server *server;
    int port;

    grpc_init();
    insecure = grpc_insecure_server_credentials_create();
    server = grpc_server_create(NULL, NULL);
    queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server_register_completion_queue(server, queue, NULL);
    port = grpc_server_add_http2_port(server, "127.0.0.1:0", insecure);
    grpc_server_start(server);
    printf("port %d\n", port);
    (void)fflush(stdout); /* if the reader is gone, this process is ended anyway */
    for (size_t i = 0; i < n_clients; i++) {
        struct floor_exchange *e = &all[i];

        e->role = role;
        e->data = data;
        e->queue = grpc_completion_queue_create_for_pluck(NULL);
        grpc_metadata_array_init(&e->headers);
        grpc_call_details_init(&e->details);
        (void)grpc_server_request_call(server, &e->call, &e->details, &e->headers, e->queue, queue,
                                       e); /* fails only on misuse */
        (void)grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        (void)pthread_create(&e->thread, NULL, exchange,
                             e); /* without threads there can be no bench */
    }
    for (size_t i = 0; i < n_clients; i++)
        (void)pthread_join(all[i].thread, NULL);
    /* the process ends here and frees its connections and memory */
    return EXIT_DONE;
}

/* --- a client --- */

static bool client_round(struct call_stream *s, const char *data, char *to, size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes; at += CHUNK_BYTES)
        if (!stream_send(s, chunk_of(data + at, chunk_bytes(size_bytes, at))))
            return false;
    for (size_t at = 0; at < size_bytes; at += CHUNK_BYTES) {
        grpc_byte_buffer *message = stream_receive(s);
        size_t n = 0;

        if (message == NULL)
            return false;
        for (size_t i = 0; i < message->data.raw.slice_buffer.count; i++) {
            grpc_slice *slice = &message->data.raw.slice_buffer.slices[i];

            memcpy(to + at + n, GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
            n += GRPC_SLICE_LENGTH(*slice);
        }
        grpc_byte_buffer_destroy(message);
    }
    return true;
}

enum exit_code params_floor_client(const struct params_role *role)
{
    const size_t size_bytes = role->n * sizeof(float);
    char *data = xalloc(size_bytes), *to = xalloc(size_bytes);
    struct parley_channel *channel = parley_channel_open(role->address);
    struct call_stream *s = channel == NULL ? NULL : stream_open(channel, method);
    bool ok = s != NULL;

    for (size_t i = 0; i < size_bytes; i += 4096)
        data[i] = 1; /* touches all pages, as a gradient does */
    for (size_t round = 0; round < role->n_rounds && ok; round++) {
        uint64_t begin_ns = clock_ns();

        ok = client_round(s, data, to, size_bytes);
        printf("round %zu %llu %llu -\n", round, (unsigned long long)begin_ns,
               (unsigned long long)clock_ns());
        (void)fflush(stdout); /* if the reader is gone, this process is ended anyway */
    }
    if (!ok)
        console_error("the connection for comparison broke");
    stream_close(s);
    if (channel != NULL)
        parley_channel_close(channel);
    free(data);
    free(to);
    return ok ? EXIT_DONE : EXIT_FAILED;
}
