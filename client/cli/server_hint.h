/* What a person can do where no server answers: it depends on where the server would be, and on how
 * parley was installed. */
#ifndef CLIENT_CLI_SERVER_HINT_H
#define CLIENT_CLI_SERVER_HINT_H

#include <stddef.h>

/* Writes a part of a sentence, such as "'/opt/parley/bin/parleyd FILE.gguf' starts a server"; ""
 * where the server would be on another machine. */
void server_hint(char *out, size_t size, const char *address);

#endif
