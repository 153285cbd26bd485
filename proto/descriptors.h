/* The descriptors of all .proto files that the daemon speaks, as their compiler wrote them. The
 * build puts them into the program (descriptors.py). */
#ifndef PROTO_DESCRIPTORS_H
#define PROTO_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

struct descriptor_file {
    const char *name;     /* "parley/v1/act.proto" */
    const uint8_t *bytes; /* [size_bytes] a FileDescriptorProto */
    size_t size_bytes;
    const uint16_t *imports; /* [n_imports] indices in descriptor_files: all it needs, but itself */
    size_t n_imports;
};

extern const struct descriptor_file descriptor_files[]; /* [descriptor_n_files] */
extern const size_t descriptor_n_files;

enum descriptor_kind {
    DESCRIPTOR_NAME, /* a service, a field, an enum, a value of one, another method */
    DESCRIPTOR_MESSAGE,
    DESCRIPTOR_MAP_ENTRY, /* the message of a map's entries */
    DESCRIPTOR_READER,    /* a method without side effects: its idempotency_level says so */
};

/* A name that a file defines. */
struct descriptor_symbol {
    const char *name; /* "parley.v1.Act.Step" */
    uint16_t file;
    enum descriptor_kind kind;
};

extern const struct descriptor_symbol descriptor_symbols[]; /* [descriptor_n_symbols] by name */
extern const size_t descriptor_n_symbols;

extern const char *const descriptor_services[]; /* [descriptor_n_services] by name */
extern const size_t descriptor_n_services;

/* NULL where there is none. */
const struct descriptor_file *descriptor_find_file(const char *name);
const struct descriptor_symbol *descriptor_find_symbol(const char *name);

#endif
