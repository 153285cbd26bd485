/* A port on a loop in its own thread, and a simple gRPC client for it. */
#ifndef TESTS_UNIT_SERVER_RPC_RIG_H
#define TESTS_UNIT_SERVER_RPC_RIG_H

#include <grpc/grpc.h>
#include <stdbool.h>
#include <uv.h>

#include "base/mailbox.h"
#include "parley/v1/conversations.pb-c.h"
#include "parley/v1/error.pb-c.h"
#include "server/call/call_stats.h"
#include "server/rpc/port.h"

struct rig {
    struct port_config config;
    struct call_stats stats; /* the loop's */
    uv_thread_t thread;
    uv_loop_t loop;
    struct mailbox mailbox;
    struct port *port; /* NULL when it did not start */
    enum status rc;
    struct error err;
    uv_sem_t is_up;
    char address[160]; /* of listen[0] */
};

/* Starts with config (its listen NULL: "127.0.0.1:0"). The failure is in r->rc, r->err. */
void rig_start(struct rig *r, const struct port_config *config);
/* Stops the port and joins the thread: begin_stop and join in one. */
void rig_stop(struct rig *r);
void rig_begin_stop(struct rig *r);
void rig_join(struct rig *r);
/* Runs act on the loop and waits for it. */
void rig_on_loop(struct rig *r, void (*act)(struct rig *r, void *arg), void *arg);
struct call_stats rig_stats(struct rig *r);

/* The client. All its functions block. */
struct dial {
    grpc_channel *channel;
    grpc_completion_queue *queue;
};

struct dialled {
    grpc_call *call;
    bool has_headers;
    grpc_status_code status;
    grpc_slice text;
    grpc_metadata_array trailers, headers;
    char words[400];       /* the status's text */
    char field[64];        /* of parley-error-bin */
    uint32_t code;         /* of parley-error-bin; 0 without it */
    uint32_t retry_ms;     /* of parley-error-bin */
    char retry_header[16]; /* retry-after-ms, "" without it */
    size_t n_details;      /* of grpc-status-details-bin, whose code and text are the status's */
    char reason[64];       /* of parley-error-bin */
    char last[100000];     /* [last_len] the last message's bytes, truncated to the array */
    size_t last_len;
    char reply[100000]; /* its text, if it is a Message */
    size_t n_messages;
};

void dial_open(struct dial *d, const char *address);
void dial_close(struct dial *d);
/* Returns when the connection takes no calls any more. */
void dial_wait_while_ready(struct dial *d);

/* Begins a call and sends headers; text (unless NULL) goes as a Message, then half-closes. */
void dial_start(struct dial *d, struct dialled *c, const char *path, const char *text,
                uint32_t deadline_ms);
void dial_send(struct dial *d, struct dialled *c, const void *bytes, size_t len);
void dial_send_text(struct dial *d, struct dialled *c, const char *text);
void dial_half_close(struct dial *d, struct dialled *c);
/* True if there was a message; its text is in c->reply. */
bool dial_read(struct dial *d, struct dialled *c);
/* Waits for the end, and fills in the status and trailers. */
void dial_end(struct dial *d, struct dialled *c);
/* Runs a whole call: starts it, reads until there is no more, ends it. */
void dial_unary(struct dial *d, struct dialled *c, const char *path, const char *text,
                uint32_t deadline_ms);

#endif
