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

/* format: of the model that the turn is of; NULL: it has none. */
enum status wire_turn(struct turn_request *out, const Parley__V1__TurnRequest *from,
                      const struct reply_format *format, struct arena *arena,
                      struct error *err) MUST_CHECK;

/* The text or the messages of a turn alone. */
enum status wire_messages(struct turn_request *out, const Parley__V1__TurnRequest *from,
                          struct arena *arena, struct error *err) MUST_CHECK;

/* A turn as a transcript tells it. */
enum status wire_imported_turn(struct imported_turn *out, const Parley__V1__TranscriptTurn *from,
                               struct arena *arena, struct error *err) MUST_CHECK;

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

/* reader produced the event, parts took it; parts may be NULL. STATUS_EXHAUSTED without memory. */
enum status wire_event(struct wire_event *out, const struct turn_event *event,
                       const struct turn_reader *reader, struct turn_parts *parts,
                       struct arena *arena, struct error *err) MUST_CHECK;

/* The whole reply of the turn that reader has seen complete: its completed is set. generation: of
 * the conversation. STATUS_EXHAUSTED without memory. */
enum status wire_reply(Parley__V1__TurnReply **out, const struct turn_reader *reader,
                       const struct turn_parts *parts, uint32_t generation, struct arena *arena,
                       struct error *err) MUST_CHECK;

/* Without its transcript. Only its owner may be told of it. */
enum status wire_conversation(Parley__V1__Conversation **out, const struct conversation *c,
                              const struct principal *owner, struct arena *arena,
                              struct error *err) MUST_CHECK;

/* The same of one that the journal lists. Of the KV cache of one that is not in memory nothing is
 * known. */
enum status wire_listed_conversation(Parley__V1__Conversation **out,
                                     const struct conversations *all, const struct journal_row *row,
                                     const struct principal *owner, struct arena *arena,
                                     struct error *err) MUST_CHECK;

/* Of a page of a transcript; bytes are those of the whole message. A page has at least one turn,
 * however many bytes that has. */
enum { WIRE_PAGE_TURNS = 100, WIRE_PAGE_TURNS_MAX = 1000, WIRE_PAGE_BYTES = 2 << 20 };

/* Adds a page of the transcript to m, wire_conversation's, which has none; oldest turns first.
 * page_size 0: WIRE_PAGE_TURNS. page_token "": the first page. STATUS_INVALID for a malformed
 * token, STATUS_RANGE for one from before a rewind; both name the field. */
enum status wire_transcript(Parley__V1__Conversation *m, const struct conversation *c,
                            uint32_t page_size, const char *page_token, struct arena *arena,
                            struct error *err) MUST_CHECK;

/* All models that are loaded: the list, and its length. with_unloaded: behind them those that are
 * known. */
enum status wire_models(Parley__V1__Model ***ret_models, size_t *ret_n, const struct models *models,
                        bool with_unloaded, struct arena *arena, struct error *err) MUST_CHECK;
enum status wire_model(Parley__V1__Model **out, const struct model *m, bool is_default,
                       struct arena *arena, struct error *err) MUST_CHECK;

#endif
