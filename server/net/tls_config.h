/* The paths of the files of TLS: tls.h keeps them, tls_files.h reads the files. */
#ifndef SERVER_NET_TLS_CONFIG_H
#define SERVER_NET_TLS_CONFIG_H

/* Paths of PEM files. The texts live as long as the struct tls that is opened with them. */
struct tls_config {
    const char *certificate; /* the chain of certificates, the daemon's first */
    const char *private_key;
    const char *client_ca; /* who may sign clients' certificates; NULL: clients need none */
};

#endif
