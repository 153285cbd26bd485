/* A script says who speaks in a world: code of the user's own, in place of the order of positions.
 * Each slot has a script of its own, which goes through one episode after another. An episode is a
 * row of parleys. In a parley the script asks members to speak, one at a time, and says what each
 * member observes. One thread at a time uses a slot's script; threads use theirs side by side. */
#ifndef WORLDS_WORLD_SCRIPT_H
#define WORLDS_WORLD_SCRIPT_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "worlds/message/act.h"

enum script_then {
    SCRIPT_ASK,          /* a member speaks, and the script is told what it said */
    SCRIPT_ENDS_PARLEY,  /* the same episode goes on with another parley */
    SCRIPT_ENDS_EPISODE, /* so does the parley end */
    SCRIPT_ENDS_WORLD,   /* so does the episode; no member of the slot speaks again */
};

/* A member observes an act: what another has said last in this episode, or the script's own. */
struct script_hearing {
    uint32_t listener, speaker; /* positions; of the speaker's last act if own is NULL */
    const struct act *own;
};

struct script_step {
    const struct script_hearing *hearings; /* [n_hearings], before what is next */
    size_t n_hearings;
    enum script_then then;
    uint32_t asked; /* SCRIPT_ASK: the position of the member that speaks */
};

struct world_script {
    /* Opens the script of a slot. */
    enum status (*open)(void **out, void *arg, struct error *err);
    /* Takes what the member that was asked has said, whose id is its name in the world; said NULL:
     * a parley begins, after SCRIPT_ENDS_EPISODE with a new episode. Writes what is next, in the
     * arena, which lives as long as the episode. `spoke` has bit p for each position that has
     * spoken in this episode: only these may be a hearing's speaker. */
    enum status (*next)(void *slot, const struct act *said, uint32_t spoke, struct arena *arena,
                        struct script_step *out, struct error *err);
    /* Ends the episode where it is; the next call of next begins another. */
    void (*reset)(void *slot);
    void (*close)(void *slot);
    void *arg;
};

#endif
