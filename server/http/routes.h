/* What is answered under which path: the one table by which requests are dispatched. */
#ifndef SERVER_HTTP_ROUTES_H
#define SERVER_HTTP_ROUTES_H

#include <stdbool.h>

struct exchange;

enum method { METHOD_GET = 1, METHOD_POST = 2, METHOD_HEAD = 4, METHOD_OTHER = 8 };

struct route {
    const char *path;
    bool is_prefix;   /* what follows is an argument, and not empty */
    unsigned methods; /* of enum method */
    bool always;      /* also while the daemon loads or drains */
    void (*serve)(struct exchange *x);
};

/* NULL: there is none. */
const struct route *routes_find(const char *path);

/* What else there is, for the sentence that says there is none. */
extern const char routes_list[];

/* "GET, HEAD" */
const char *route_methods(const struct route *r);

void chat_serve(struct exchange *x);
void completions_serve(struct exchange *x);
void responses_serve(struct exchange *x);
void models_serve(struct exchange *x);
void model_serve(struct exchange *x);
void health_serve(struct exchange *x);
void metrics_serve(struct exchange *x);
void tokenize_serve(struct exchange *x);
void detokenize_serve(struct exchange *x);

#endif
