#include "server/config/options.h"

#include <assert.h>
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "server/config/config.h"
#include "server/config/setters.h"

enum { DAY_MS = 24 * 3600 * 1000 };
#define TEN_YEARS_MS ((uint64_t)3650 * DAY_MS)

#define NUMBER(member, its_units, its_max) \
    .offset = offsetof(struct config, member), .units = its_units, .max = its_max
#define LIST_OF(member) .count_offset = offsetof(struct config, member)

_Static_assert(sizeof(uint64_t) == sizeof(size_t), "numbers are read as size_t");

/* clang-format off */
const struct config_option config_options[] = {
    {.flag = "--model", .value = "NAME=PATH", .is_reloadable = true, .key = "models", .set = set_model, LIST_OF(n_models),
     .group = "Models",
     .example = "\n  - name: smollm2\n    path: /var/lib/parley/SmolLM2-135M-Instruct.Q4_1.gguf",
     .help = "a language model or a policy, .gguf or a folder of safetensors; the first is the default; may be given several times",
     .more = "Of a model that is split into files NAME-00001-of-00003.gguf and so on, the first is given, and the others lie beside it. PATH may also be a folder as transformers saves it, with config.json, tokenizer.json (byte-level BPE) and model.safetensors, or model.safetensors.index.json and the files that it names, in F32, F16 or BF16; its version is a hash of all these files. The file may be replaced, changed or removed while it is served, and is read again only when the model is loaded again, or when a device has failed: it must be as it was then."},
    {.flag = "--model-dir", .value = "DIR", .key = "model_dir", .set = set_model_dir,
     .example = "/var/lib/parley",
     .help = "models in DIR/NAME.gguf may be loaded while it serves",
     .more = "Of one that is split, NAME is what stands before -00001-of-00003.gguf; a folder DIR/NAME of safetensors is one, too. They are loaded by parley.v1.Models.Load or KServe's RepositoryModelLoad, and unloaded again, as those of --model may. An unload lets what is in flight finish, at most for --drain-timeout, then closes the model's conversations."},
    {.flag = "--plugin", .value = "[NAME=]FILE.so", .key = "plugins", .set = set_plugin, LIST_OF(n_plugins),
     .usual = "none", .example = "['/usr/lib/parley/word_count.so', 'repeat=/usr/lib/parley/echo.so']",
     .help = "an agent of one's own, a shared object as parley_agent.h says; may be given several times",
     .more = "It is served beside the models, under NAME, or FILE without its folder and .so. Its code runs inside parleyd, so root or parleyd's user must own the file, and not everybody may write to it or replace it. One of another ABI, or without something that it must have, ends the start by one line; --check says it too. The last 32 turns of a conversation with it can be taken back, or all."},
    {.flag = "--listen", .value = "ADDRESS", .key = "listen", .set = set_listen, LIST_OF(n_listen),
     .group = "Addresses",
     .usual = "127.0.0.1:8001", .example = "['127.0.0.1:8001', 'unix:/run/parley.sock']",
     .help = "gRPC: HOST:PORT, [IPV6]:PORT or unix:PATH; port 0 picks one; may be given several times",
     .more = "Of the open files that the hard limit (\"ulimit -H -n\") allows, connections to these addresses use at most three quarters, those to --http half; what comes beyond that is closed, and logged."},
    {.flag = "--keys", .value = "FILE", .key = "keys", .set = set_keys,
     .usual = "everybody may call", .example = "/etc/parley/keys",
     .help = "only callers with one of its keys are served; read again on SIGHUP",
     .more = "A key is sent as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\", in gRPC's metadata or HTTP's headers. The section KEYS says what the file has."},
    {.flag = "--tls-cert", .value = "FILE", .key = "tls_cert", .set = set_tls_cert,
     .usual = "no TLS", .example = "/etc/parley/cert.pem",
     .help = "PEM: the certificate of both ports, ours first, which then speak TLS only; read again on SIGHUP",
     .more = "The ports then speak TLS 1.2 and 1.3 only; unix sockets stay plain. SIGHUP reads the files of TLS again, for connections that come from then on."},
    {.flag = "--tls-key", .value = "FILE", .key = "tls_key", .set = set_tls_key,
     .usual = "none", .example = "/etc/parley/key.pem",
     .help = "PEM: its private key, which others than its owner and group must not be able to read"},
    {.flag = "--tls-client-ca", .value = "FILE", .key = "tls_client_ca", .set = set_tls_client_ca,
     .usual = "clients need no certificate", .example = "/etc/parley/clients.pem",
     .help = "PEM: clients need a certificate of one of these authorities",
     .more = "Others get no answer, of health neither. Keys are asked for all the same."},
    {.flag = "--http", .value = "ADDRESS|off", .key = "http", .set = set_http,
     .usual = "127.0.0.1:8000, where it can be had, unless --listen is given: then off",
     .example = "127.0.0.1:8000",
     .help = "HOST:PORT for the HTTP APIs; port 0 picks one",
     .more = "It answers /v1/chat/completions, /v1/completions, /v1/responses, /v1/responses/ID, /v1/embeddings, /v1/score, /v1/models, /tokenize, /detokenize, /tokenizer_info, /health and /metrics, of Anthropic /v1/messages and /v1/messages/count_tokens, and of Ollama /api/chat, /api/generate, /api/tags, /api/show, /api/ps, /api/version and /api/pull. A request with an Idempotency-Key is answered once: sent again within 24 hours it joins its reply, or gets the stored one (of the newest 100,000 keys and 1 GiB), a stream behind its Last-Event-ID."},
    {.flag = "--http-admin", .value = "ADDRESS|off", .key = "http_admin", .set = set_http_admin,
     .usual = "off: --http has it", .example = "127.0.0.1:9090",
     .help = "HOST:PORT for /metrics, which --http then has no more; port 0 picks one",
     .more = "It also answers /health, and nothing else, with the same keys and TLS as --http. Administration over gRPC stays with --listen, for keys with the role admin."},
    {.flag = "--http-timeout", .value = "TIME", .is_reloadable = true, .key = "http_timeout",
     NUMBER(http_timeout_ms, config_times, DAY_MS), .initial = "20s",
     .help = "for an HTTP request to come, and its answer to be taken"},
    {.flag = "--http-origin", .value = "ORIGIN", .is_reloadable = true, .key = "http_origin", .set = set_http_origin,
     .also_flag = "--cors-origin", .also_key = "cors_origin", LIST_OF(n_http_origins),
     .usual = "those of this machine alone", .example = "['https://app.example']",
     .help = "pages of it may use HTTP, as https://example.org; * for any; ollama for those that Ollama allows; may be given several times. --cors-origin is the same",
     .more = "An ORIGIN is as a browser says it (https://app.example, or null), a HOST with any port (http://localhost:*), or a scheme with any host (app://*). ollama stands for http and https of localhost, 127.0.0.1 and 0.0.0.0 with any port, and for app, file, tauri, vscode-webview, vscode-file and the browsers' extensions. Its pages are answered with CORS's headers. Without it pages of loopback origins may where --http is a loopback address, whose requests must then have a loopback Host (localhost, 127.0.0.0/8, [::1]) or that of an ORIGIN; elsewhere pages of the same origin. Others have 403. Programs that are no browsers send no Origin and are not concerned."},
    {.flag = "--backend", .value = "cpu|cuda|ref", .key = "backend", .set = set_backend,
     .group = "What computes",
     .usual = "cpu", .example = "cpu",
     .help = "what computes",
     .more = "cpu is fast; cuda is an NVIDIA GPU, of compute capability 7.5 or more with a driver of version 580 or later, by the module libparley-cuda.so in ../lib beside the program (a tarball made by './run dist --cuda-arch N' has it), or where PARLEY_CUDA_MODULE says; ref is the plain definition that the others are checked against."},
    {.flag = "--fast-math", .value = "on|off", .key = "fast_math", .is_switch = true,
     .set = set_fast_math, .usual = "off", .example = "off",
     .help = "on a GPU, multiply many rows by cuBLAS where it is faster: a reply may then depend on what else is computed beside it",
     .more = "Of --backend cuda alone, and refused elsewhere, where it would change nothing: products of a language model with many rows (prompts, large batches) go by NVIDIA's cuBLAS, where the table of row counts says that this is faster; the weight is made f16 for it on the way. A row's bits then depend on how many rows there are: a reply, also with a seed, may be another beside other conversations, in other chunks, or when a part of its prompt is found in the cache. Without cuBLAS (libcublasLt.so.13 or .12, found beside the module, where the loader looks or in /usr/local/cuda, or the file that PARLEY_CUBLAS names) all products are Parley's own, as without the option. The log's line of a model that was loaded says which (products=), and so does 'parley status'. After a device has failed and was opened again the model goes on without cuBLAS."},
    {.flag = "--threads", .value = "N", .key = "threads",
     NUMBER(options.n_threads, config_counts, 1024),
     .usual = "the physical cores", .example = "8",
     .help = "of the CPU backend",
     .more = "By default no more than the quota of the process's control group, or of one above it, amounts to (a container's, or systemd's CPUQuota=)."},
    {.flag = "--memory", .value = "SIZE", .key = "memory",
     NUMBER(memory_bytes, config_sizes, SIZE_MAX / 2),
     .usual = "no bound, and nothing is unloaded by itself", .example = "64G",
     .help = "for the weights, keys and values of all models: idle ones make room",
     .more = "A model is counted by the size of its files and --kv-bytes (default: an eighth of SIZE) until it has been loaded once, then by what it takes. At the start models are loaded in their order as far as there is room. A request that opens a conversation, by Conversations.Open or HTTP, and names a model that is known but not loaded waits until it is; idle models are unloaded for it, least recently used first. A model is idle when no request of it is in flight, no conversation or session of it is open, and it neither learns nor has observers: what is open has a state that an unload would lose, so close conversations, or give them a --ttl. Where idle models do not give enough room, the request is RESOURCE_EXHAUSTED (429) and may come again; where the model alone is larger than SIZE, FAILED_PRECONDITION. A model that was unloaded by a call stays unloaded until a call loads it. The default model is the first one, loaded or not. Requests of KServe and Act do not wait: they are UNAVAILABLE and to be sent again, while their model is loaded."},
    {.flag = "--kv-bytes", .value = "SIZE", .key = "kv_bytes",
     NUMBER(options.kv_bytes, config_sizes, SIZE_MAX / 2),
     .usual = "an eighth of the memory, at most 4G", .example = "2G",
     .help = "ceiling of a model's keys and values, as 512M or 2G; half of it is taken ahead of need",
     .more = "Idle conversations lose theirs when it is reached, and compute them again. The memory is that of the control group where it has a limit; of a GPU's memory it is half of what the weights leave. On the CPU half of it is taken from the system by a thread of its own: steps need not wait for memory then."},
    {.flag = "--kv-host-bytes", .value = "SIZE|off", .key = "kv_host_bytes",
     .set = set_kv_host_bytes,
     .usual = "as many, and off where the host computes", .example = "4G",
     .help = "of the host's memory behind a device's, for those of idle conversations"},
    {.flag = "--kv", .value = "f16|q8|f32", .key = "kv", .set = set_kv,
     .usual = "f16", .example = "f16",
     .help = "how they are kept: q8 takes 0.52 of f16's memory",
     .more = "q8 is int8 with one scale for each head and position, so longer contexts and more conversations in the same --kv-bytes, for a small loss of quality; f32 is for comparisons; attention rounds what it reads of any of them to 16 bits."},
    {.flag = "--prefix-cache", .value = "on|off", .key = "prefix_cache", .set = set_prefix_cache,
     .usual = "on", .example = "on",
     .help = "conversations that begin alike share what one computed",
     .more = "Keys and values that one conversation computed serve others that begin with the same tokens, also after it was closed. Replies are the same either way."},
    {.flag = "--speculate", .value = "on|off|auto", .key = "speculate", .set = set_speculate,
     .usual = "auto", .example = "auto",
     .help = "compute guesses at a reply's next tokens beside the one that is due; auto: where they pay. Replies are the same",
     .more = "Guesses come from what the conversation said before: where they are right, several tokens come at once. auto guesses where the conversation's own guesses have been right often enough to be worth their time on this machine, beside so many other conversations, and not while anybody's prompt is read; on wherever there is room."},
    {.flag = "--chat-template", .value = "[MODEL=]FILE|NAME", .key = "chat_templates", .set = set_chat_template,
     LIST_OF(options.n_chat_templates),
     .usual = "the one in the model's file", .example = "['base=chatml', '/etc/parley/helper.jinja']",
     .help = "how messages become a prompt, in place of the file's template; for one model or all; may be given several times",
     .more = "FILE is a template in Jinja, as tokenizer_config.json has it. NAME is alpaca, chatml, gemma, llama2, llama3, mistral, phi3, vicuna or zephyr. A model without a template takes raw prompts only, by completions. The model's version is another with it, so a conversation of before says continued_inexactly."},
    {.flag = "--pooling", .value = "mean|last", .key = "pooling", .set = set_pooling,
     .usual = "what the model's file says, else mean", .example = "mean",
     .help = "how the states of a text's tokens become its embedding",
     .more = "last takes the state of the last token, which models made for embeddings are trained for; mean takes the mean over all tokens, the safer choice for a chat model. A file says it in ARCHITECTURE.pooling_type."},
    {.flag = "--max-itl-ms", .value = "N", .key = "max_itl_ms",
     NUMBER(options.max_itl_us, config_ms_in_us, (size_t)3600000 * 1000),
     .usual = "200", .example = "200",
     .help = "milliseconds of a step while replies are being written: prompts that arrive are read in smaller parts",
     .more = "A prompt that arrives alone stretches a step by no more than the replies' own time; where those alone take as long as the bound, a quarter is added. Only one that is read to its end within the bound is read in one step, once in 32."},
    {.flag = "--max-conversations", .value = "N", .is_reloadable = true, .key = "max_conversations",
     NUMBER(max_conversations, config_counts, 1000000000),
     .group = "Limits",
     .usual = "1000000", .example = "1000000",
     .help = "that live at once"},
    {.flag = "--max-queue", .value = "N", .key = "max_queue",
     NUMBER(options.max_waiting, config_counts, 10000000),
     .example = "256",
     .help = "asks of a model that may wait; one more is refused"},
    {.flag = "--max-message-bytes", .value = "SIZE", .key = "max_message_bytes",
     NUMBER(max_message_bytes, config_sizes, (size_t)1 << 30),
     .usual = "4M", .example = "4M",
     .help = "of a request"},
    {.flag = "--max-peer-connections", .value = "N", .key = "max_peer_connections",
     NUMBER(max_peer_connections, config_counts, 1000000),
     .usual = "no bound of its own", .example = "256",
     .help = "of one address, over all ports; one more is closed",
     .more = "A proxy's clients have one address: behind one leave it out. Connections of unix sockets are not counted. One that has no request is closed after 2 minutes on --http."},
    {.flag = "--ttl", .value = "TIME", .is_reloadable = true, .key = "ttl", NUMBER(ttl_ms, config_times, TEN_YEARS_MS),
     .usual = "24h", .example = "24h",
     .help = "a conversation is closed after so much idle time, unless it was opened with its own"},
    {.flag = "--sequence-idle", .value = "TIME", .key = "sequence_idle",
     NUMBER(sequence_idle_ms, config_times, TEN_YEARS_MS),
     .usual = "60s", .example = "60s",
     .help = "a sequence of KServe's clients is closed after so long without a request",
     .more = "A sequence is requests with one sequence_id. The time counts from its last answer; the next request of that id is told so."},
    {.flag = "--max-sessions", .value = "N", .is_reloadable = true, .key = "max_sessions",
     NUMBER(max_sessions, config_counts, 1000000000),
     .usual = "65536", .example = "65536",
     .help = "runs of environments that live at once"},
    {.flag = "--session-ttl", .value = "TIME", .key = "session_ttl",
     NUMBER(session_ttl_ms, config_times, TEN_YEARS_MS),
     .usual = "10m", .example = "10m",
     .help = "a run that asked for nothing for so long ends"},
    {.flag = "--params-bytes", .value = "SIZE", .key = "params_bytes",
     NUMBER(params_bytes, config_sizes, (size_t)1 << 46),
     .usual = "half of the memory", .example = "8G",
     .help = "ceiling of all sets of parameters together",
     .more = "Uploads under way are included."},
    {.flag = "--attach", .value = "on|off|auto", .key = "attach", .set = set_attach,
     .group = "Agents of other programs",
     .usual = "auto", .example = "auto",
     .help = "whether programs may attach as workers that compute agents; auto: with a key that may, or on this machine",
     .more = "See AGENTS. With --keys a worker needs a key of a principal with the role attach, whatever this says. Without keys auto lets workers in where every --listen address is a unix socket or of the loopback interface; on lets in whoever can reach the server."},
    {.flag = "--attach-timeout", .value = "TIME", .key = "attach_timeout",
     NUMBER(attach_timeout_ms, config_times, DAY_MS), .initial = "60s",
     .help = "a worker that does not answer a step for so long is given up"},
    {.flag = "--data", .value = "DIR", .key = "data", .set = set_data,
     .group = "Operation",
     .usual = "conversations live as long as the process", .example = "/var/lib/parley/data",
     .help = "keep conversations in DIR: they outlive the process, also kill -9 and a power cut",
     .more = "DIR is made if it is missing; one parleyd at a time may have it. Kept are the conversations of parley.v1.Conversations, with their turns, forks, rewinds, options and metadata, and those that HTTP's X-Conversation-Id names, under that name; not other requests of HTTP, Idempotency-Keys, KServe's sequences and Act's sessions. Sets of parameters are kept by checkpoints, see --checkpoint-rounds. A turn is durable before the client is told that it was accepted, and its reply before it is told that it is done; both wait for the disk, many turns for the same write. After a restart a conversation is read when it is first asked for, by its id or by the request_id that opened it. A turn that was accepted and not ended is computed again when the conversation's next turn is asked for: the same number and messages get the same bytes, and resume_from goes on behind what the client has. Where the model, the engine, --kv or --backend is another than then, or with --fast-math, it ends with finish reason error and an empty reply instead; the conversation goes on, and says continued_inexactly. If the disk is full or fails, turns and changes are UNAVAILABLE, reason JOURNAL_FAILING, what was told stays true, and the same request may come again. List tells all of them; of one that is not in memory nothing is known of its context and pages. Watch tells of those in memory."},
    {.flag = "--unload-idle", .value = "TIME", .is_reloadable = true, .key = "unload_idle",
     .set = set_unload_idle, .initial = "10m",
     .help = "with --data: a kept conversation that was idle for so long leaves memory; 0: never",
     .more = "It stays open, List tells it, and it is read again when it is next asked for; its keys and values are then computed again, as far as no other conversation has them. To Watch it comes as opened."},
    {.flag = "--checkpoint-rounds", .value = "N", .is_reloadable = true, .key = "checkpoint_rounds",
     NUMBER(checkpoint_rounds, config_counts, 1000000000), .initial = "16",
     .help = "with --data: rounds from one checkpoint of a set of parameters to the next",
     .more = "A checkpoint has the values, the optimiser's moments and which steps of its clients were counted; it replaces the one before as a whole, and is written beside the rounds that go on. There is one when a set is created, before the caller is told, and one of each set when parleyd is asked to stop. A set goes on from its last checkpoint after a restart. Rounds that came behind it are lost with a process that is killed: a gradient of such a version is ABORTED, reason PARAMS_RESTORED, with the version to pull and go on from. Pushed gradients that waited are lost."},
    {.flag = "--drain-timeout", .value = "TIME", .is_reloadable = true, .key = "drain_timeout", .set = set_drain_timeout,
     .initial = "30s",
     .help = "for turns in flight when asked to stop"},
    {.flag = "--linger", .value = "TIME", .is_reloadable = true, .key = "linger", .set = set_linger, .initial = "10s",
     .help = "a turn with a number or a key goes on without its client",
     .more = "A turn that can be asked for again (one with a number, or with an Idempotency-Key) goes on for so long when its client's connection is lost, its call is cancelled or its call's deadline passes, so that a retry finds the whole reply. It ends at once by parley.v1.Conversations.Cancel, by the deadline field of its request, and by a drain. 0: at once always."},
    {.flag = "--log-level", .value = "debug|info|warn|error", .is_reloadable = true, .key = "log_level",
     .set = set_log_level, .initial = "info",
     .help = "the least important lines that are logged"},
    {.flag = "--config", .value = "FILE", .key = "config", .is_not_in_file = true,
     .set = set_file_path,
     .help = "YAML that sets these options",
     .more = "See FILES. An option overrides the variable of the same name, and that the file; of --model, --listen and --http-origin the whole list."},
    {.flag = "--print-config", .set = set_print_config,
     .help = "print an example of such a file, with all options"},
    {.flag = "--check", .set = set_check,
     .help = "only check the options, the keys, the certificates, the model files and the addresses",
     .more = "The files of keys and TLS are read, each model is opened and each address bound, as at a start, and given back; one that a running parleyd has is in use, and said to be. Exit status: 0 all is well, 1 a file, a model or an address cannot be had, 2 an option is wrong."},
    {.flag = "--check-data", .set = set_check_data,
     .help = "only check what --data has",
     .more = "No parleyd may have DIR meanwhile. The database's pages and indexes are read, and whether each reply has its turn and each fork its parent. Exit status: 0 all is well, and the line says how many conversations and turns there are; 1 something is not."},
    {.flag = "--version", .set = set_version, .help = "print the version"},
    {.flag = "--help", .set = set_help, .help = "print this"},
};
/* clang-format on */

const size_t config_n_options = sizeof(config_options) / sizeof(config_options[0]);
_Static_assert(sizeof(config_options) / sizeof(config_options[0]) <= CONFIG_MAX_OPTIONS,
               "struct config has room for each option");

enum status config_option_set(const struct config_option *o, struct config *c, const char *value,
                              struct error *err)
{
    if (o->set != NULL)
        return o->set(c, value, err);
    return config_size((size_t *)((char *)c + o->offset), value, o->units, o->max, err);
}

void config_option_clear_list(const struct config_option *o, struct config *c)
{
    if (o->count_offset != 0)
        *(size_t *)((char *)c + o->count_offset) = 0;
}

void config_option_variable(char out[CONFIG_VARIABLE_MAX], const struct config_option *o)
{
    int len = snprintf(out, CONFIG_VARIABLE_MAX, "PARLEY_%s", o->key);

    assert(len < CONFIG_VARIABLE_MAX);
    for (char *at = out; *at != '\0'; at++)
        *at = (char)toupper((unsigned char)*at);
}
