/* The fork server inside a system's bash, as the supervisor uses it. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "../inside/server.h"

#define PAGE 4096
/* Of the memory that shells share, in whole pages: whatever of it can be written can be emptied. */
#define SHARED_BYTES ((sizeof(struct shared) + PAGE - 1) / PAGE * PAGE)

extern int server_socket, shared_fd;
extern int notices;      /* where the kernel tells of calls that inputs are about to make */
extern int mounts_copy;  /* the copy of the layer's mounts that inputs share until one may have changed it */

/* Starts the fork server, which waits for the layers: what /proc says of it is a part of them. Its number. */
pid_t start_server(const int pair[2]);
void give_layers(int library_layer, int layer);

/* Has the fork server join a namespace, for itself or, with pids, for its children. */
void move_server(int kind, int fd, const char *what);

/* Waits for its next word; false where somebody stopped it. */
bool await_server(void);

/* Its next word; an error of its own where there is none. */
struct server_reply hear_server(void);

/* Empties the memory that shells share, once no process of a run is left to write it: the next one finds nothing
 * there of the last one's text, variables, or whatever else that wrote. */
void empty_shared_memory(void);
