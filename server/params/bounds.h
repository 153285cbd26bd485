/* How much the sets of parameters take, which their checkpoints are checked against, too. */
#ifndef SERVER_PARAMS_BOUNDS_H
#define SERVER_PARAMS_BOUNDS_H

enum {
    PARAMS_MAX_SETS = 64,
    PARAMS_MAX_CONTRIBUTORS = 4096, /* remembered; beyond that, the least recently seen one without
                                       a waiting update is evicted */
    PARAMS_MAX_CLIENT = 128,        /* bytes of a client's id */
};

#endif
