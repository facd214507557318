/* The two user namespaces, the namespaces owned by the inner one, and process 1. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

extern int ns_user, ns_pid, ns_time;
extern pid_t init_pid;
extern bool init_alive;

/* Enter a new user namespace, and wait until the peer has mapped its ids. */
void enter_unmapped_namespace(void);

/* Do the same, then become its id 0 without supplementary groups. */
void enter_user_namespace(void);
void join_user_namespace(int kept);
void make_inner_namespaces(uid_t owner);
void start_web(void);
bool web_is_alive(void);

/* Remove neighbour proxies without an interface from the network. The kernel would keep them after the network's end, and
 * show them in a later network at the same address in kernel memory. */
void forget_proxies(void);

/* Create the pristine network in new namespaces, which this process and init join. Return the inner one's descriptor. */
int renew_network(void);

/* Make a forked process give up what it inherited from the supervisor: the inputs' network, files and capabilities. */
void leave_for_processes(void);

/* Run one iteration of init's loop. The first one moves into the new root; later ones kill all processes inside. */
void ask_init(void);

/* Open a namespace of a process, by its name in /proc. */
int open_ns(pid_t pid, const char *name);
