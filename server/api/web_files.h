/* The page's files, as the build embeds them from share/web/. */
#ifndef SERVER_API_WEB_FILES_H
#define SERVER_API_WEB_FILES_H

#include <stddef.h>

#include "server/http/exchange.h"

struct web_file {
    const char *name; /* "page.html" */
    struct exchange_file file;
};

extern const struct web_file web_files[]; /* [web_n_files]; the first is the page itself */
extern const size_t web_n_files;

#endif
