/* Each frame of parley.v1.Rooms is a call of server/room, and each thing that a reader is told is a
 * frame. Nothing is allocated: a response borrows from the request and from the room. */
#include "server/api/parley/room_frames.h"

#include "base/list.h"

/* --- answers --- */

static void room_response_init(struct room_response *out)
{
    parley__v1__rooms_attach_response__init(&out->message);
}

/* Protobuf-c's strings are not const, and are only read. */
static char *unconst(const char *text)
{
    union {
        const char *from;
        char *to;
    } u = {text};

    return u.to;
}

void room_frames_fail(struct room_response *out, const struct error *err)
{
    room_response_init(out);
    out->err = *err;
    parley__v1__room_error__init(&out->error);
    out->error.code = unconst(status_name(err->status));
    out->error.message = out->err.text;
    out->error.field = out->err.field;
    out->error.retry_ms = error_retry_ms(err);
    out->message.frame_case = PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_ERROR;
    out->message.error = &out->error;
}

static bool room_frames_refuse(struct room_response *out, const struct error *err, char *room,
                               uint32_t client_seq)
{
    room_frames_fail(out, err);
    out->error.room = room;
    out->error.client_seq = client_seq;
    return true;
}

static bool room_frames_hello(struct room_response *out, struct room_reader *reader,
                              const struct principal *who, const Parley__V1__RoomHello *m)
{
    const struct room_person *p;
    struct error err;

    if (room_reader_hello(reader, who, m->token, m->name, &err) != STATUS_OK) {
        room_frames_fail(out, &err);
        return true;
    }
    p = reader->person;
    room_response_init(out);
    parley__v1__room_welcome__init(&out->welcome);
    out->welcome.participant = unconst(room_person_id(p));
    out->welcome.token = unconst(room_person_token(p));
    out->welcome.name = unconst(room_person_name(p));
    out->welcome.grace_ms = ROOM_GRACE_MS;
    out->welcome.durable = reader->rooms->keeping.journal != NULL;
    out->message.frame_case = PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_WELCOME;
    out->message.welcome = &out->welcome;
    return true;
}

static bool room_frames_say(struct room_response *out, struct room_reader *reader,
                            const Parley__V1__RoomSay *m)
{
    const struct room_said said = {.text = m->text,
                                   .quick_replies = (const char *const *)m->quick_replies,
                                   .n_quick_replies = m->n_quick_replies,
                                   .reply_to = m->reply_to,
                                   .client_seq = m->client_seq};
    struct error err;
    uint32_t seq;

    return room_say(reader, m->room, &said, &seq, &err) != STATUS_OK &&
           room_frames_refuse(out, &err, m->room, m->client_seq); /* else an ack comes */
}

static enum status room_frames_invite(struct room_reader *reader, const Parley__V1__RoomInvite *m,
                                      struct error *err)
{
    static const enum room_policy policies[] = {
        [PARLEY__V1__ROOM_POLICY__ROOM_POLICY_UNSPECIFIED] = ROOM_WHEN_NAMED,
        [PARLEY__V1__ROOM_POLICY__ROOM_POLICY_NAMED] = ROOM_WHEN_NAMED,
        [PARLEY__V1__ROOM_POLICY__ROOM_POLICY_EVERY_TURN] = ROOM_EVERY_TURN,
        [PARLEY__V1__ROOM_POLICY__ROOM_POLICY_EVERY_N] = ROOM_EVERY_N,
    };
    struct room_invitation i = {.model = m->agent,
                                .name = m->name,
                                .system = m->system,
                                .every = m->every,
                                .max_tokens = m->max_tokens};

    if ((size_t)m->policy >= sizeof(policies) / sizeof(policies[0]))
        return error_field(err, "policy", "is %d, there is no such one", (int)m->policy);
    i.policy = policies[m->policy];
    return room_reader_invite(reader, m->room, &i, err);
}

bool room_frames_take(struct room_response *out, struct room_reader *reader,
                      const struct principal *who, const Parley__V1__RoomsAttachRequest *request)
{
    enum status rc;
    struct error err;
    char *room;

    switch (request->frame_case) {
    case PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_HELLO:
        return room_frames_hello(out, reader, who, request->hello);
    case PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_SAY:
        return room_frames_say(out, reader, request->say);
    case PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_JOIN:
        room = request->join->room;
        rc = room_join(reader, room, request->join->after_seq, request->join->from_now != 0, &err);
        break;
    case PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_TYPING:
        room = request->typing->room;
        rc = room_type(reader, room, request->typing->on != 0, &err);
        break;
    case PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_LEAVE:
        room = request->leave->room;
        rc = room_leave(reader, room, &err);
        break;
    case PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_INVITE:
        room = request->invite->room;
        rc = room_frames_invite(reader, request->invite, &err);
        break;
    case PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_DISMISS:
        room = request->dismiss->room;
        rc = room_reader_dismiss(reader, room, request->dismiss->participant, &err);
        break;
    case PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_STOP:
        room = request->stop->room;
        rc = room_reader_stop(reader, room, &err);
        break;
    default:
        room = unconst("");
        rc = error_set(&err, STATUS_INVALID,
                       "the frame is empty: it has hello, join, say, typing, leave, invite, "
                       "dismiss or stop");
        break;
    }
    return rc == STATUS_OK ? false : room_frames_refuse(out, &err, room, 0);
}

/* --- what a reader is told --- */

static Parley__V1__RoomKind room_kind_of(enum room_kind kind)
{
    static const Parley__V1__RoomKind kinds[] = {
        [ROOM_PERSON] = PARLEY__V1__ROOM_KIND__ROOM_KIND_PERSON,
        [ROOM_AGENT] = PARLEY__V1__ROOM_KIND__ROOM_KIND_AGENT,
    };

    return kinds[kind];
}

static void write_room_member(Parley__V1__RoomMember *out, const struct room_frame *frame,
                              const struct room_member *m)
{
    parley__v1__room_member__init(out);
    out->room = unconst(frame->room_name);
    out->participant = unconst(room_person_id(m->person));
    out->name = unconst(room_person_name(m->person));
    out->presence = room_person_presence(m->person) == ROOM_HERE
                        ? PARLEY__V1__ROOM_PRESENCE__ROOM_PRESENCE_HERE
                        : PARLEY__V1__ROOM_PRESENCE__ROOM_PRESENCE_AWAY;
    out->typing = m->is_typing;
    out->kind = room_kind_of(room_person_kind(m->person));
}

static void write_room_snapshot(struct room_response *out, const struct room_frame *frame)
{
    const struct room *room = frame->room;
    Parley__V1__RoomSnapshot *s = &out->snapshot;

    parley__v1__room_snapshot__init(s);
    s->room = unconst(frame->room_name);
    s->members = out->member_pointers;
    for (struct link *l = list_first(&room->members); l != NULL; l = list_next(&room->members, l)) {
        write_room_member(&out->members[s->n_members], frame,
                          container_of(l, struct room_member, link));
        out->member_pointers[s->n_members] = &out->members[s->n_members];
        s->n_members++;
    }
    s->first_seq = room_first_seq(room);
    s->next_seq = room_next_seq(room);
    s->next_client_seq = frame->member->client_seq + 1;
}

static void write_room_entry(Parley__V1__RoomEntry *out, const struct room_frame *frame)
{
    static const Parley__V1__RoomEntryKind kinds[] = {
        [ROOM_JOINED] = PARLEY__V1__ROOM_ENTRY_KIND__ROOM_ENTRY_KIND_JOINED,
        [ROOM_SAID] = PARLEY__V1__ROOM_ENTRY_KIND__ROOM_ENTRY_KIND_SAID,
        [ROOM_LEFT] = PARLEY__V1__ROOM_ENTRY_KIND__ROOM_ENTRY_KIND_LEFT,
        [ROOM_FAILED] = PARLEY__V1__ROOM_ENTRY_KIND__ROOM_ENTRY_KIND_FAILED,
    };
    const struct room_entry *e = frame->entry;

    parley__v1__room_entry__init(out);
    out->room = unconst(frame->room_name);
    out->seq = e->seq;
    out->unix_ms = (int64_t)e->unix_ms;
    out->kind = kinds[e->kind];
    out->participant = unconst(e->from);
    out->name = unconst(e->name);
    out->text = unconst(e->text);
    out->n_quick_replies = e->n_quick_replies;
    out->quick_replies = (char **)e->quick_replies;
    out->reply_to = e->reply_to;
    out->client_seq = e->client_seq;
    out->from_kind = room_kind_of(e->from_kind);
    if (e->conversation[0] == '\0')
        return;
    out->conversation = unconst(e->conversation);
    out->generation = e->generation;
    out->turn = e->turn;
    out->finish_reason = unconst(e->finish_reason);
}

static void write_room_ack(Parley__V1__RoomAck *out, const struct room_ack *ack)
{
    parley__v1__room_ack__init(out);
    out->room = unconst(ack->room_name);
    out->client_seq = ack->client_seq;
    out->seq = ack->seq;
}

static void write_room_piece(Parley__V1__RoomPiece *out, const struct room_frame *frame)
{
    const struct room_piece *piece = &frame->piece;

    parley__v1__room_piece__init(out);
    out->room = unconst(frame->room_name);
    out->participant = unconst(room_person_id(piece->member->person));
    out->conversation = unconst(piece->conversation);
    out->generation = piece->generation;
    out->turn = piece->turn;
    out->offset = piece->offset;
    out->text = unconst(piece->text);
}

bool room_frames_next(struct room_response *out, struct room_reader *reader)
{
    struct room_frame frame;

    if (!room_reader_next(reader, &frame))
        return false;
    room_response_init(out);
    switch (frame.kind) {
    case ROOM_FRAME_SNAPSHOT:
        write_room_snapshot(out, &frame);
        out->message.frame_case = PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_SNAPSHOT;
        out->message.snapshot = &out->snapshot;
        break;
    case ROOM_FRAME_ENTRY:
        write_room_entry(&out->entry, &frame);
        out->message.frame_case = PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_ENTRY;
        out->message.entry = &out->entry;
        break;
    case ROOM_FRAME_MEMBER:
        write_room_member(&out->member, &frame, frame.member);
        out->message.frame_case = PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_MEMBER;
        out->message.member = &out->member;
        break;
    case ROOM_FRAME_OUT:
        parley__v1__room_left__init(&out->left);
        out->left.room = unconst(frame.room_name);
        out->left.why = unconst(frame.why);
        out->message.frame_case = PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_LEFT;
        out->message.left = &out->left;
        break;
    case ROOM_FRAME_ACK:
        write_room_ack(&out->ack, frame.ack);
        out->message.frame_case = PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_ACK;
        out->message.ack = &out->ack;
        break;
    case ROOM_FRAME_PIECE:
        write_room_piece(&out->piece, &frame);
        out->message.frame_case = PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_PIECE;
        out->message.piece = &out->piece;
        break;
    }
    return true;
}
