/* Noticed calls of inputs (filters.h): each waits for an answer from here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Receive one call and let it continue. Return its NOTICED_* flags. */
unsigned attend_notice(int listener);

/* The persistent shell (process id on the host; 0: none), and the call in which it waits (0: none). */
extern struct resident { pid_t shell; uint64_t call; } resident;

/* Let the persistent shell continue. */
void answer_line(int listener);

/* Make it enter these mounts and wait again; false if it does not receive them. */
bool answer_mounts(int listener, int mounts);
