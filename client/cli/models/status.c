#include <inttypes.h>
#include <stdio.h>

#include "cli/output/out.h"
#include "cli/output/table.h"
#include "client/cli/connection.h"
#include "client/cli/output/message_json.h"
#include "client/cli/verbs.h"
#include "parley/v1/admin.pb-c.h"
#include "proto/words.h"

static void print_batching(const Parley__V1__ModelBatching *b)
{
    printf("  batches      %s: %u rows run, %u wait; %" PRIu64 " steps", b->policy, b->running,
           b->waiting, b->steps);
    if (b->steps > 0)
        printf(" of %.1f rows on average, %u at most", (double)b->rows / (double)b->steps,
               b->max_rows_seen);
    printf("\n  asks         %" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " cancelled, %" PRIu64
           " expired, %" PRIu64 " refused, %" PRIu64 " preempted\n",
           b->done, b->failed, b->cancelled, b->expired, b->refused, b->preempted);
    for (size_t i = 0, up_to = 1; i < b->n_rows_histogram; i++, up_to *= 2)
        if (b->rows_histogram[i] > 0)
            printf("    steps of up to %zu rows: %" PRIu64 "\n", up_to, b->rows_histogram[i]);
}

static void print_disk(const Parley__V1__ModelDisk *d, uint64_t page_bytes)
{
    char bytes[24];

    printf("  disk         %" PRIu64 " of %" PRIu64 " pages full (%s), %" PRIu64
           " written, %" PRIu64 " read, %" PRIu64 " made room, %" PRIu64 " broken, %" PRIu64
           " writes failed\n"
           "    saved      %" PRIu64 " prompt tokens not computed again, about %.1f s; "
           "%.3g s for each GiB that is full\n"
           "    missed     %" PRIu64 " tokens never computed, %" PRIu64 " evicted, %" PRIu64
           " another principal's, %" PRIu64 " of another revision\n",
           d->pages_used, d->pages, table_bytes(bytes, d->pages_used * page_bytes), d->written,
           d->read, d->evicted, d->broken, d->failed, d->hit_tokens, d->saved_seconds,
           d->pages_used == 0
               ? 0.0
               : d->saved_seconds * 1073741824.0 / ((double)d->pages_used * (double)page_bytes),
           d->missed_never_computed, d->missed_evicted, d->missed_other_principal,
           d->missed_other_revision);
}

static void print_model(const Parley__V1__Model *m)
{
    char bytes[24], kind[WORD_CHARS], state[WORD_CHARS];

    (void)enum_word(kind, &parley__v1__model_kind__descriptor, (int)m->kind);
    (void)enum_word(state, &parley__v1__model_state__descriptor, (int)m->state);
    printf("\nmodel %s%s: %s%s%s\n", m->name, m->is_default ? " (the default)" : "", state,
           *m->error == '\0' ? "" : ", ", m->error);
    printf("  agent        %s%s%s%s%s\n", kind, *m->architecture == '\0' ? "" : ", ",
           m->architecture, *m->backend == '\0' ? "" : ", backend ", m->backend);
    printf("  clones       %u\n", m->conversations);
    if (m->weight_bytes > 0)
        printf("  weights      %s\n", table_bytes(bytes, m->weight_bytes));
    if (m->kv_pages > 0)
        printf("  KV pages     %u of %u in use (%u shared), %s each; %" PRIu64 " copied, %" PRIu64
               " evictions, %" PRIu64 " recomputed\n"
               "  prefix cache %u pages, %" PRIu64 " of %" PRIu64 " prompt tokens found, %" PRIu64
               " pages evicted\n",
               m->kv_pages - m->kv_pages_free, m->kv_pages, m->kv_pages_shared,
               table_bytes(bytes, m->kv_page_bytes), m->kv_copies, m->kv_evictions,
               m->kv_recomputes, m->kv_pages_cached, m->prefix_hit_tokens, m->prefix_lookup_tokens,
               m->kv_pages_evicted);
    if (m->state_slots > 0)
        printf("  state        %u of %u slots in use, %s each; %u snapshots, used %" PRIu64
               " times, %" PRIu64 " evicted\n",
               m->state_slots - m->state_slots_free, m->state_slots,
               table_bytes(bytes, m->state_slot_bytes), m->state_snapshots, m->state_snapshots_used,
               m->state_snapshots_evicted);
    if (m->disk != NULL)
        print_disk(m->disk, m->kv_page_bytes);
    if (*m->products != '\0')
        printf("  products     %s\n", m->products);
    if (m->device_host_pages > 0 || m->device_losses > 0 || m->device_graphs > 0)
        printf("  device       %u of %u pages behind it on the host, %" PRIu64
               " moved there, %" PRIu64 " back; %u graphs, %" PRIu64 " losses\n",
               m->device_host_pages_used, m->device_host_pages, m->device_spills, m->device_fills,
               m->device_graphs, m->device_losses);
    if (m->drafted_tokens > 0)
        printf("  drafts       %" PRIu64 " of %" PRIu64 " guessed tokens were right\n",
               m->accepted_tokens, m->drafted_tokens);
    if (m->batching != NULL)
        print_batching(m->batching);
}

static void print_status(const Parley__V1__AdminStatusResponse *s)
{
    char time[32], bytes[24], state[WORD_CHARS];

    (void)enum_word(state, &parley__v1__server_state__descriptor, (int)s->state);
    printf("parleyd %s, process %u: %s for %s\n", s->version, s->pid, state,
           table_time(time, s->uptime_ms));
    printf("  conversations  %u\n", s->conversations);
    printf("  calls          %u in flight\n", s->calls);
    printf("  turns          %" PRIu64 " completed\n", s->turns);
    printf("  memory         %s\n", table_bytes(bytes, s->rss_bytes));
    for (size_t i = 0; i < s->n_models; i++)
        print_model(s->models[i]);
}

static enum exit_code status_show(struct parley_channel *channel, bool is_json)
{
    Parley__V1__AdminStatusRequest request = PARLEY__V1__ADMIN_STATUS_REQUEST__INIT;
    ProtobufCMessage *answer;
    struct parley_error err;

    if (connection_call(&answer, channel, "/parley.v1.Admin/Status", &request.base,
                        &parley__v1__admin_status_response__descriptor, 0, &err) != PARLEY_OK)
        return connection_complain(&err);
    if (is_json)
        (void)out_json(message_json(answer)); /* out_end reports a failure */
    else
        print_status((const Parley__V1__AdminStatusResponse *)answer);
    protobuf_c_message_free_unpacked(answer, NULL);
    return EXIT_DONE;
}

enum exit_code status_run(const struct verb *verb, int argc, char **argv)
{
    return connection_run(verb, argc, argv, status_show);
}
