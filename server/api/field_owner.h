/* The HTTP APIs, as owners of fields of requests. */
#ifndef SERVER_API_FIELD_OWNER_H
#define SERVER_API_FIELD_OWNER_H

/* Whose fields they are. */
enum field_owner {
    FIELDS_OF_CHAT = 1 << 0,
    FIELDS_OF_COMPLETIONS = 1 << 1,
    FIELDS_OF_RESPONSES = 1 << 2,
    FIELDS_OF_MESSAGES = 1 << 3,
    FIELDS_OF_OLLAMA_CHAT = 1 << 4,
    FIELDS_OF_OLLAMA_GENERATE = 1 << 5,
    FIELDS_OF_TOKENS = 1 << 6,
    FIELDS_OF_EMBEDDINGS = 1 << 7, /* and of scores and ranks */
    FIELDS_OF_OLLAMA_EMBED = 1 << 8,
};

#endif
