/* What PostgreSQL itself takes for the rows of turns: libpq alone inserts them, in a transaction of
 * accepted turns and one of their replies for each round, as a daemon does with so many turns in
 * flight. Prints turns a second.
 *
 *     bench_inserts URL CONVERSATIONS TURNS ACCEPT_BYTES REPLY_BYTES
 *
 * The table is bare.event, with the columns of parley.event. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/journal/libpq.h"

enum { ID_BYTES = 16, HASH_BYTES = 32, NUMBER_TEXT = 24 };

static const char insert[] =
    "INSERT INTO bare.event (conversation, generation, turn, kind, unix_ms, body, hash, chain)"
    " VALUES ($1, 1, $2, $3, $4, $5, $6, $7)";

_Noreturn static void die(const char *why)
{
    (void)fprintf(stderr, "bench_inserts: %s\n", why);
    abort();
}

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void send_row(const struct libpq *pq, PGconn *c, unsigned conversation, int turn, int kind,
                     const char *body, int size_bytes)
{
    unsigned char id[ID_BYTES] = {0};
    static const char hash[HASH_BYTES];
    char numbers[3][NUMBER_TEXT];
    const char *values[] = {(const char *)id, numbers[0], numbers[1], numbers[2], body, hash, hash};
    const int lengths[] = {ID_BYTES, 0, 0, 0, size_bytes, HASH_BYTES, HASH_BYTES};
    const int formats[] = {1, 0, 0, 0, 1, 1, 1};

    /* Spread over the index, as ids are that were drawn. */
    for (size_t i = 0; i < 4; i++)
        id[i] = (unsigned char)(conversation * 2654435761U >> (24 - 8 * i));
    (void)snprintf(numbers[0], NUMBER_TEXT, "%d", turn);
    (void)snprintf(numbers[1], NUMBER_TEXT, "%d", kind);
    (void)snprintf(numbers[2], NUMBER_TEXT, "%lld", (long long)time(NULL) * 1000);
    if (pq->PQsendQueryParams(c, insert, 7, NULL, values, lengths, formats, 1) != 1)
        die(pq->PQerrorMessage(c));
}

/* One transaction: a row of each conversation. */
static void commit_rows(const struct libpq *pq, PGconn *c, unsigned n, int turn, int kind,
                        const char *body, int size_bytes)
{
    PGresult *r;

    for (unsigned i = 0; i < n; i++)
        send_row(pq, c, i, turn, kind, body, size_bytes);
    if (pq->PQpipelineSync(c) != 1)
        die(pq->PQerrorMessage(c));
    for (unsigned i = 0; i < n; i++) {
        r = pq->PQgetResult(c);
        if (pq->PQresultStatus(r) != PGRES_COMMAND_OK)
            die(pq->PQerrorMessage(c));
        pq->PQclear(r);
        if (pq->PQgetResult(c) != NULL) /* what ends a statement's results */
            die("more than one result");
    }
    r = pq->PQgetResult(c);
    if (pq->PQresultStatus(r) != PGRES_PIPELINE_SYNC)
        die(pq->PQerrorMessage(c));
    pq->PQclear(r);
}

static PGconn *connected(const struct libpq *pq, const char *url)
{
    static const char *const names[] = {"dbname", NULL};
    const char *const values[] = {url, NULL};
    PGconn *c = pq->PQconnectStartParams(names, values, 1);
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;

    while (next != PGRES_POLLING_OK && next != PGRES_POLLING_FAILED)
        next = pq->PQconnectPoll(c); /* of a moment: nothing is measured yet */
    if (next != PGRES_POLLING_OK || pq->PQenterPipelineMode(c) != 1)
        die(pq->PQerrorMessage(c));
    return c;
}

int main(int argc, char **argv)
{
    const struct libpq *pq;
    struct error err;
    unsigned n;
    int turns, sizes[2];
    double began_s;
    char *body;
    PGconn *c;

    if (argc != 6)
        die("usage: bench_inserts URL CONVERSATIONS TURNS ACCEPT_BYTES REPLY_BYTES");
    n = (unsigned)strtoul(argv[2], NULL, 10);
    turns = (int)strtol(argv[3], NULL, 10);
    sizes[0] = (int)strtol(argv[4], NULL, 10);
    sizes[1] = (int)strtol(argv[5], NULL, 10);
    body = calloc(1, (size_t)(sizes[0] > sizes[1] ? sizes[0] : sizes[1]) + 1);
    if (body == NULL || libpq_load(&pq, &err) != STATUS_OK)
        die(body == NULL ? "no memory" : err.text);
    c = connected(pq, argv[1]);
    began_s = now_s();
    for (int turn = 1; turn <= turns; turn++) {
        commit_rows(pq, c, n, turn, 3, body, sizes[0]);
        commit_rows(pq, c, n, turn, 4, body, sizes[1]);
    }
    (void)printf("%.1f\n", n * (double)turns / (now_s() - began_s));
    pq->PQfinish(c);
    free(body);
    return EXIT_SUCCESS;
}
