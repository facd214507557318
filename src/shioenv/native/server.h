/* The fork server's loop, shared by the library inside bash and by the supervisor's own fallback. */
#ifndef SHIOENV_SERVER_H
#define SHIOENV_SERVER_H

#include "protocol.h"

extern struct shared *shared;

/* Serves requests. Returns only in a child that is inside the sandbox and shall run
 * shared->input; descriptors 0 to 2 are the input's, all others are closed. */
void serve(void);

/* Replaces the calling process by a fresh `bash --norc --noprofile -c INPUT`. */
void exec_fresh(char *const environment[]) __attribute__((noreturn));

#endif
