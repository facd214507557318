/* The two user namespaces, what the inner one owns, and process 1. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

extern int ns_user, ns_pid, ns_time;
extern pid_t init_pid;
extern bool init_alive;

/* Enters a new user namespace, and waits until the peer has mapped its ids. */
void enter_unmapped_namespace(void);

/* The same; then becomes its id 0, in no other group. */
void enter_user_namespace(void);
void join_user_namespace(int kept);
void make_inner_namespaces(uid_t owner);
void start_web(void);
bool web_is_alive(void);

/* Has the network forget addresses that it answers for without an interface (neighbour proxies): the kernel would keep
 * those when the network is gone, and show them in one that is made at the same place of its memory. */
void forget_proxies(void);

/* Makes the network as it was in the beginning, in new namespaces that this process and init join: the
 * inner one's descriptor. */
int renew_network(void);

/* Has a process that was forked for it leave all that the supervisor holds: the inputs' network, the files, its rights. */
void leave_for_processes(void);

/* One turn of init's loop: at first it moves into the new root, then it kills everything inside. */
void ask_init(void);

/* A namespace of a process, by its name in /proc. */
int open_ns(pid_t pid, const char *name);
