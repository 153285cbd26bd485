/* The CPU time of a server on this host: the process that listens at its address, found in /proc.
 */
#ifndef CLIENT_CLI_BENCH_SERVER_CPU_H
#define CLIENT_CLI_BENCH_SERVER_CPU_H

/* The process that listens at HOST:PORT or unix:PATH, HOST a loopback address or localhost. 0: the
 * address is NULL, there is none, or it is not ours to look at. */
int server_process(const char *address);
/* Seconds of all its threads so far. NaN: it is gone, or process is 0. */
double server_cpu_s(int process);

#endif
