/* The supervisor's interface to the fork server in a system's bash. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "../inside/server.h"

#define PAGE 4096
/* Size of the memory that shells share, in whole pages, so that all writable bytes can be cleared. */
#define SHARED_BYTES ((sizeof(struct shared) + PAGE - 1) / PAGE * PAGE)

extern int server_socket, shared_fd;
extern int notices;      /* descriptor of the notifications about calls of inputs */
extern int mounts_copy;  /* the copy of the layer's mounts that inputs share until an input may have changed it */

/* Start the fork server and return its process id. It waits for the layers, which contain its own entry of /proc. */
pid_t start_server(const int pair[2]);
void give_layers(int library_layer, int layer);

/* The difference between the clock of the newest shell and the host's in nanoseconds; 0: none. */
int64_t clock_of_shell(void);

/* Make the fork server join a namespace; a pid namespace applies to its children. */
void move_server(int kind, int fd, const char *what);

/* Wait for its next message; false if it is stopped. */
bool await_server(void);

/* Receive its next message; if there is none, the reply has an error. */
struct server_reply hear_server(void);

/* Clear the memory that shells share, after all processes of a run have ended. The next run must not find text, variables
 * or other data of this one there. */
void empty_shared_memory(void);
