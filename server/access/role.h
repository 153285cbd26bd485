/* What a principal may do beyond its own things. A principal has any number of roles, which the
 * file of keys (keys_file.h) names; access.h asks for them. */
#ifndef SERVER_ACCESS_ROLE_H
#define SERVER_ACCESS_ROLE_H

enum access_role {
    ACCESS_ROLE_ADMIN = 1,  /* metrics, loading of models, training of served ones */
    ACCESS_ROLE_ATTACH = 2, /* serving agents as their worker */
};

#endif
