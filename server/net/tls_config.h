/* Which files TLS is made of: tls.h keeps their names, tls_files.h reads them. */
#ifndef SERVER_NET_TLS_CONFIG_H
#define SERVER_NET_TLS_CONFIG_H

/* Paths of PEM files. The texts live as long as the struct tls that is opened with them. */
struct tls_config {
    const char *certificate; /* the chain, ours first */
    const char *private_key;
    const char *client_ca; /* whom clients' certificates must be of; NULL: they need none */
};

#endif
