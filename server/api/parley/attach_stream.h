/* The stream of a program that has attached itself (Agents.Attach, Work.Attach, Act.Attach). The
 * program sends its offer first. Once the offer is accepted, the program gets orders and sends
 * answers. The end of the stream detaches the program; so does a message that is wrong, with one
 * sentence. A stream is the first member of its service's struct. Loop. */
#ifndef SERVER_API_PARLEY_ATTACH_STREAM_H
#define SERVER_API_PARLEY_ATTACH_STREAM_H

#include "base/peer.h"
#include "server/call/call.h"

struct attach_stream;

/* What a service does at its streams. half_close and detach may be NULL. */
struct attach_stream_kind {
    /* Takes a message that came before the offer was accepted, and calls attach_stream_accept, at
     * once or later. A failure ends the stream. */
    enum status (*offer)(struct attach_stream *s, const ProtobufCMessage *m, struct error *err);
    /* Takes a message that came after the offer was accepted. A failure ends the stream. */
    enum status (*take)(struct attach_stream *s, const ProtobufCMessage *m, struct arena *arena,
                        struct error *err);
    /* The program sends nothing any more; the stream ends next. */
    void (*half_close)(struct attach_stream *s);
    void (*write_accepted)(struct attach_stream *s);
    void (*write_orders)(struct attach_stream *s); /* writes one message, or none */
    void (*detach)(struct attach_stream *s);       /* the stream ends: detaches the program */
    void (*release)(struct attach_stream *s); /* the stream has ended: detaches the program if it is
                                                 attached still, and frees what the service holds,
                                                 but not s */
    bool ends_when_draining; /* else the server's turns and tasks need the stream while it drains */
};

struct attach_stream {
    struct call *call;
    const struct attach_stream_kind *kind;
    const char *what, *name; /* for the log: what the program is, and of which name; NULL: no log */
    bool is_accepted, is_accepted_due; /* due: write_accepted is to be called */
    bool is_finished;
};

/* Begins the stream of a call. s is zeroed; the stream frees s when the call has ended. */
void attach_stream_begin(struct attach_stream *s, struct call *call,
                         const struct attach_stream_kind *kind);
/* Makes s the stream of a peer that is not open yet. */
void attach_stream_adopt(struct attach_stream *s, struct peer *p);
/* The offer is accepted: the program is told so, then it gets orders. */
void attach_stream_accept(struct attach_stream *s);
/* Detaches the program and ends the stream, with err, or OK if err is NULL. */
void attach_stream_finish(struct attach_stream *s, const struct error *err);

#endif
