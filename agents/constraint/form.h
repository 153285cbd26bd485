/* The forms of a constraint that the engine reads. Also C++. */
#ifndef AGENTS_CONSTRAINT_FORM_H
#define AGENTS_CONSTRAINT_FORM_H

enum constraint_form {
    CONSTRAINT_SCHEMA, /* JSON schema; members in declared order, spaces in one way */
    CONSTRAINT_REGEX,  /* matches the whole text */
    CONSTRAINT_EBNF,   /* the rule root */
    /* XGrammar's structural tags, in pieces: "J<bytes>:" and JSON, or "S<bytes>:" and a schema, for
     * whose grammar the piece stands. */
    CONSTRAINT_TAGS,
};

#endif
