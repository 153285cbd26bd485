/* vLLM's prompt_logprobs: the log-probabilities of a prompt's tokens, in a list of their own. */
#ifndef SERVER_API_OPENAI_PROMPT_LOGPROBS_H
#define SERVER_API_OPENAI_PROMPT_LOGPROBS_H

struct choice;
struct generation;
struct json_writer;

/* Writes ,"prompt_logprobs":[…] of a choice whose turn is complete, if the request wants it. */
void prompt_logprobs_write(const struct generation *g, const struct choice *c,
                           struct json_writer *w);

#endif
