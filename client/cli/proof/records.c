#include "client/cli/proof/records.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json_writer.h"
#include "proto/codec.h"
#include "proto/json/protobuf_json.h"

enum { RECORD_MAX_BYTES = 1 << 30 };

void records_deinit(struct records *r)
{
    for (size_t i = 0; i < r->n; i++)
        parley__v1__conversation_record__free_unpacked(r->all[i], NULL);
    free(r->all);
    *r = (struct records){0};
}

void records_add(struct records *r, Parley__V1__ConversationRecord *m)
{
    if (r->n == r->cap) {
        r->cap = r->cap == 0 ? 16 : 2 * r->cap;
        r->all = xrealloc(r->all, r->cap * sizeof(r->all[0]));
    }
    r->all[r->n++] = m;
}

/* On the channel's thread, while the caller's waits. */
static enum parley_status on_record(void *arg, const void *data, size_t len,
                                    struct parley_error *err)
{
    Parley__V1__ConversationRecord *m = parley__v1__conversation_record__unpack(NULL, len, data);

    if (m == NULL) {
        *err = (struct parley_error){.status = PARLEY_INTERNAL,
                                     .text = "the server sent a message that is no record"};
        return PARLEY_INTERNAL;
    }
    records_add(arg, m);
    return PARLEY_OK;
}

enum parley_status records_get(struct records *out, struct parley_channel *channel,
                               const char *conversation, struct parley_error *err)
{
    Parley__V1__ConversationsRecordsRequest request =
        PARLEY__V1__CONVERSATIONS_RECORDS_REQUEST__INIT;
    enum parley_status rc;
    uint8_t *bytes;

    *out = (struct records){0};
    request.conversation = (char *)conversation;
    bytes = xalloc(codec_size(&request.base) + 1);
    rc = parley_server_stream(channel, "/parley.v1.Conversations/Records", bytes,
                              codec_encode(&request.base, bytes), on_record, out, err);
    free(bytes);
    if (rc != PARLEY_OK)
        records_deinit(out);
    return rc;
}

bool record_ends_turn(const Parley__V1__ConversationRecord *m)
{
    return m->gone == 0 &&
           (m->kind == PARLEY__V1__CONVERSATION_RECORD_KIND__CONVERSATION_RECORD_KIND_REPLIED ||
            m->kind == PARLEY__V1__CONVERSATION_RECORD_KIND__CONVERSATION_RECORD_KIND_OBSERVED);
}

uint32_t records_n_turns(const struct records *r)
{
    uint32_t n = 0;

    for (size_t i = 0; i < r->n; i++) {
        const Parley__V1__ConversationRecord *m = r->all[i];

        if (record_ends_turn(m) ||
            m->kind == PARLEY__V1__CONVERSATION_RECORD_KIND__CONVERSATION_RECORD_KIND_REWOUND ||
            m->kind == PARLEY__V1__CONVERSATION_RECORD_KIND__CONVERSATION_RECORD_KIND_OPENED)
            n = m->turn;
    }
    return n;
}

json_t *record_line(const Parley__V1__ConversationRecord *m)
{
    struct json_writer w;
    json_t *record, *line;
    struct buf text;

    buf_init(&text, SIZE_MAX);
    w = json_writer_begin(&text);
    protobuf_json_write(&w, NULL, &m->base);
    record = json_writer_end(&w) == STATUS_OK ? json_loadb(text.data, text.len, 0, NULL) : NULL;
    buf_deinit(&text);
    if (record == NULL)
        return NULL;
    line = json_pack("{so}", "record", record);
    return line;
}

enum status record_read(Parley__V1__ConversationRecord **out, const json_t *line, struct error *err)
{
    const json_t *record = json_object_get(line, "record");
    ProtobufCMessage *m;
    struct arena arena;
    uint8_t *bytes;
    enum status rc;

    if (!json_is_object(record))
        return error_set(err, STATUS_INVALID, "a line of type record has no record");
    if (json_object_size(line) > 2) /* the type, and the record */
        return error_set(err, STATUS_INVALID, "a line of type record has more than its record");
    arena_init(&arena, RECORD_MAX_BYTES);
    rc = protobuf_json_read(&m, &parley__v1__conversation_record__descriptor, record,
                            CODEC_ANY_FIELDS, &arena, err);
    if (rc == STATUS_OK) {
        bytes = xalloc(codec_size(m) + 1);
        *out = parley__v1__conversation_record__unpack(NULL, codec_encode(m, bytes), bytes);
        free(bytes);
        if (*out == NULL)
            rc = error_set(err, STATUS_EXHAUSTED, "no memory for a record");
    }
    arena_deinit(&arena);
    return rc;
}
