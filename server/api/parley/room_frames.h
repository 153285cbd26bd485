/* Rooms' frames, for gRPC and for the WebSocket: requests become calls of server/room, and what a
 * reader is to be told becomes messages. All functions are called on the loop. */
#ifndef SERVER_API_PARLEY_ROOM_FRAMES_H
#define SERVER_API_PARLEY_ROOM_FRAMES_H

#include "parley/v1/rooms.pb-c.h"
#include "server/room/rooms.h"

struct principal;

/* A message to send, with what it points to. It is valid until the next call about rooms. */
struct room_response {
    Parley__V1__RoomsAttachResponse message;
    union {
        Parley__V1__RoomWelcome welcome;
        Parley__V1__RoomSnapshot snapshot;
        Parley__V1__RoomEntry entry;
        Parley__V1__RoomAck ack;
        Parley__V1__RoomMember member;
        Parley__V1__RoomLeft left;
        Parley__V1__RoomError error;
        Parley__V1__RoomPiece piece;
    };
    Parley__V1__RoomMember members[ROOM_MAX_MEMBERS];
    Parley__V1__RoomMember *member_pointers[ROOM_MAX_MEMBERS];
    struct error err; /* the text of error */
};

/* Does what a request asks. Returns whether it has an answer, in *out, which borrows from the
 * request. who is the connection's principal. */
bool room_frames_take(struct room_response *out, struct room_reader *reader,
                      const struct principal *who, const Parley__V1__RoomsAttachRequest *request);
/* Makes an error frame of err. */
void room_frames_fail(struct room_response *out, const struct error *err);
/* Makes the message that the reader is to be sent next. Returns false if there is none. */
bool room_frames_next(struct room_response *out, struct room_reader *reader);

#endif
