/* The fork server's loop, shared by the library inside bash and by the supervisor's own fallback. */
#ifndef SHIOENV_SERVER_H
#define SHIOENV_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "protocol.h"

extern struct shared *shared;

/* A message with descriptors at its side; false where it could not be sent. */
bool send_with(int socket, const void *body, size_t length, const int *fds, unsigned n);
/* The length of the message, or what recvmsg(2) says; `fds` has room for 3, unused ones become -1. */
ssize_t receive_with(int socket, void *body, size_t length, int fds[3]);

/* Serves requests. Returns only in a child that is inside the sandbox and shall run
 * shared->input; descriptors 0 to 2 are the input's, all others are closed. */
void serve(void);

/* Replaces the calling process by a fresh `bash --norc --noprofile -c INPUT`. */
void exec_fresh(char *const environment[]) __attribute__((noreturn));

#endif
