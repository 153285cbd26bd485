/* Converts between wire messages and the domain's types. Decoded values borrow the request and lie
 * in the given arena; encoded messages borrow the domain's memory until they are written. */
#ifndef SERVER_API_PARLEY_WIRE_H
#define SERVER_API_PARLEY_WIRE_H

#include "parley/v1/conversations.pb-c.h"
#include "parley/v1/error.pb-c.h"
#include "parley/v1/models.pb-c.h"

#include "base/arena.h"
#include "server/api/parley/turn_parts.h"
#include "server/conversation/body.h"
#include "server/conversation/conversation.h"
#include "server/conversation/import.h"
#include "server/conversation/reader.h"
#include "server/journal/store.h"
#include "server/model/model.h"

struct principal;

enum { WIRE_MAX_MESSAGES = 4096 };

/* Reads a turn's request. format is the reply format of the turn's model, or NULL where the model
 * has none. */
enum status wire_turn(struct turn_request *out, const Parley__V1__TurnRequest *from,
                      const struct reply_format *format, struct arena *arena,
                      struct error *err) MUST_CHECK;

/* Reads only the text or the messages of a turn. */
enum status wire_messages(struct turn_request *out, const Parley__V1__TurnRequest *from,
                          struct arena *arena, struct error *err) MUST_CHECK;

/* Reads a turn of a transcript, for an import. */
enum status wire_imported_turn(struct imported_turn *out, const Parley__V1__TranscriptTurn *from,
                               struct arena *arena, struct error *err) MUST_CHECK;

/* Read the request of Conversations.Open, of Update, and the metadata of Fork's. */
enum status wire_open(struct open_request *out, const Parley__V1__ConversationsOpenRequest *from,
                      struct arena *arena, struct error *err) MUST_CHECK;

enum status wire_update(struct update_request *out,
                        const Parley__V1__ConversationsUpdateRequest *from, struct arena *arena,
                        struct error *err) MUST_CHECK;

enum status wire_fork_metadata(const struct pair **out,
                               const Parley__V1__ConversationsForkRequest *from,
                               struct arena *arena, struct error *err) MUST_CHECK;

/* An event of a turn as a message; event's kind selects the member. */
struct wire_event {
    Parley__V1__TurnAccepted accepted;
    Parley__V1__TurnProgress progress;
    Parley__V1__TurnPiece piece;
    Parley__V1__TurnDone done;
    Parley__V1__Usage usage;
    Parley__V1__TurnTimings timings;
};

/* Makes the message of an event that reader has given out and parts has taken. parts may be NULL.
 * EXHAUSTED without memory. */
enum status wire_event(struct wire_event *out, const struct turn_event *event,
                       const struct turn_reader *reader, struct turn_parts *parts,
                       struct arena *arena, struct error *err) MUST_CHECK;

/* Makes the message of the whole reply of a turn that reader has seen complete: reader->completed
 * is set. generation is the conversation's. EXHAUSTED without memory. */
enum status wire_reply(Parley__V1__TurnReply **out, const struct turn_reader *reader,
                       const struct turn_parts *parts, uint32_t generation, struct arena *arena,
                       struct error *err) MUST_CHECK;

/* Makes the message of a conversation, without its transcript. Only the conversation's owner may
 * see the message. */
enum status wire_conversation(Parley__V1__Conversation **out, const struct conversation *c,
                              const struct principal *owner, struct arena *arena,
                              struct error *err) MUST_CHECK;

/* Makes the message of a conversation that the journal lists. Where the conversation is not in
 * memory, the message says nothing of its KV cache. */
enum status wire_listed_conversation(Parley__V1__Conversation **out,
                                     const struct conversations *all, const struct journal_row *row,
                                     const struct principal *owner, struct arena *arena,
                                     struct error *err) MUST_CHECK;

/* The turns of a page of a transcript: the default, the most, and the bytes of the message behind
 * which no turn is added. A page has at least one turn, however many bytes that turn has. */
enum { WIRE_PAGE_TURNS = 100, WIRE_PAGE_TURNS_MAX = 1000, WIRE_PAGE_BYTES = 2 << 20 };

/* Adds a page of the transcript, the oldest turn first, to m, which wire_conversation has made and
 * which has no page yet. page_size 0 means WIRE_PAGE_TURNS, page_token "" the first page. INVALID
 * for a malformed token, RANGE for a token from before a rewind; both name the field. */
enum status wire_transcript(Parley__V1__Conversation *m, const struct conversation *c,
                            uint32_t page_size, const char *page_token, struct arena *arena,
                            struct error *err) MUST_CHECK;

/* Makes the messages of all loaded models and, with with_unloaded, behind them those of the models
 * that can be loaded by name. */
enum status wire_models(Parley__V1__Model ***ret_models, size_t *ret_n, const struct models *models,
                        bool with_unloaded, struct arena *arena, struct error *err) MUST_CHECK;
/* Makes the message of one model. */
enum status wire_model(Parley__V1__Model **out, const struct model *m, bool is_default,
                       struct arena *arena, struct error *err) MUST_CHECK;

#endif
