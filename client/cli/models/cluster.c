#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/output/out.h"
#include "cli/output/table.h"
#include "client/cli/connection.h"
#include "client/cli/output/message_json.h"
#include "client/cli/verbs.h"
#include "parley/v1/admin.pb-c.h"
#include "parley/v1/cluster.pb-c.h"

/* "params, store"; "-": it has none. */
static const char *cluster_places(char *out, size_t size, const Parley__V1__ClusterDaemon *d)
{
    size_t n = 0;

    (void)snprintf(out, size, "-");
    for (size_t i = 0; i < d->n_places; i++) {
        const ProtobufCEnumValue *place = protobuf_c_enum_descriptor_get_value(
            &parley__v1__cluster_place__descriptor, (int)d->places[i]);
        const char *name = place == NULL ? "?" : place->name + strlen("CLUSTER_PLACE_");

        for (n += n == 0 ? 0 : (size_t)snprintf(out + n, size - n, ", ");
             *name != '\0' && n + 1 < size; name++)
            out[n++] = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
        out[n] = '\0';
        if (n + 16 > size)
            break;
    }
    return out;
}

static void cluster_print(const Parley__V1__ClusterListResponse *list)
{
    static const char *const header[] = {"NAME", "ADDRESS",       "LEASE", "LAG",
                                         "UP",   "CONVERSATIONS", "HAS",   ""};
    struct text_table table;
    char time[32], places[128];

    table_init(&table, header);
    for (size_t i = 0; i < list->n_daemons; i++) {
        const Parley__V1__ClusterDaemon *d = list->daemons[i];

        table_cell(&table, "%s%s", d->name, d->is_self ? " (asked)" : "");
        table_cell(&table, "%s", *d->address == '\0' ? "-" : d->address);
        if (d->lease_ms > 0)
            table_cell(&table, "%" PRIi64 " ms", d->lease_ms);
        else
            table_cell(&table, "over");
        table_cell(&table, "%" PRIu64 " ms", d->lag_ms);
        table_cell(&table, "%s", table_time(time, d->up_ms));
        table_cell(&table, "%" PRIu64, d->conversations);
        table_cell(&table, "%s", cluster_places(places, sizeof(places), d));
    }
    table_print(&table);
    table_deinit(&table);
    printf("%" PRIu64 " stored conversations are at no daemon\n", list->free_conversations);
}

static enum exit_code cluster_show(struct parley_channel *channel, bool is_json)
{
    Parley__V1__ClusterListRequest request = PARLEY__V1__CLUSTER_LIST_REQUEST__INIT;
    ProtobufCMessage *answer;
    struct parley_error err;

    if (connection_call(&answer, channel, "/parley.v1.Cluster/List", &request.base,
                        &parley__v1__cluster_list_response__descriptor, 0, &err) != PARLEY_OK)
        return connection_complain(&err);
    if (is_json)
        (void)out_json(message_json(answer)); /* out_end reports a failure */
    else
        cluster_print((const Parley__V1__ClusterListResponse *)answer);
    protobuf_c_message_free_unpacked(answer, NULL);
    return EXIT_DONE;
}

enum exit_code cluster_run(const struct verb *verb, int argc, char **argv)
{
    return connection_run(verb, argc, argv, cluster_show);
}

static enum exit_code drain_begin(struct parley_channel *channel, bool is_json)
{
    Parley__V1__AdminDrainRequest request = PARLEY__V1__ADMIN_DRAIN_REQUEST__INIT;
    ProtobufCMessage *answer;
    struct parley_error err;
    uint32_t n_turns;

    if (connection_call(&answer, channel, "/parley.v1.Admin/Drain", &request.base,
                        &parley__v1__admin_drain_response__descriptor, 0, &err) != PARLEY_OK)
        return connection_complain(&err);
    n_turns = ((const Parley__V1__AdminDrainResponse *)answer)->turns;
    if (is_json)
        (void)out_json(message_json(answer)); /* out_end reports a failure */
    else if (n_turns == 0)
        printf("it stops now: no turn is running\n");
    else
        printf("it stops once %u turn%s handed over\n", n_turns,
               n_turns == 1 ? " has ended or is" : "s have ended or are");
    protobuf_c_message_free_unpacked(answer, NULL);
    return EXIT_DONE;
}

enum exit_code drain_run(const struct verb *verb, int argc, char **argv)
{
    return connection_run(verb, argc, argv, drain_begin);
}
