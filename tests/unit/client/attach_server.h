/* A server of Agents.Attach that gives a list of orders and writes down what comes back. In its
 * functions assert, not Check's: they run on the rig's thread. */
#ifndef TESTS_UNIT_CLIENT_ATTACH_SERVER_H
#define TESTS_UNIT_CLIENT_ATTACH_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "client/lib/parley.h"
#include "parley/v1/agents.pb-c.h"
#include "tests/unit/server/rpc/rig.h"

enum { MAX_ORDERS = 12 };

/* The server: what it sends, one order after the other, and what came back, as a text. It ends the
 * stream once the last is out and all answers have come, or when the worker does. */
struct server {
    Parley__V1__AgentsAttachResponse orders[MAX_ORDERS];
    size_t n_orders, n_sent;
    size_t n_awaited, n_answers;
    enum status end; /* OK: it waits for the worker's end */
    unsigned n_streams;
    bool is_finished;
    char heard[2000];
};

extern struct server world;
extern struct rig rig;

/* Appends "what; ". */
void note(char *text, size_t size, const char *what);
/* The next order, of a kind; the caller fills it. */
Parley__V1__AgentsAttachResponse *order(Parley__V1__AgentsAttachResponse__WhatCase kind,
                                        ProtobufCMessage *what);
#define ORDER(KIND, what) (void)order(PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_##KIND, &(what).base)
/* Starts the rig with it. */
void serve(void);

/* Starts a worker (or host) of it and answers, each again and again with one more allocation that
 * succeeds before the one that fails, until it succeeds; then ends both. start returns NULL where
 * it failed. */
void serve_with_faults(struct parley_call *(*start)(struct parley_channel *channel, void *arg),
                       bool (*answer)(struct parley_call *call), void *arg);

#endif
