/* Noticed calls of inputs (filters.h): each waits until it is answered here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Hears of one call and lets it go on: which NOTICED_* it is. */
unsigned attend_notice(int listener);

/* The shell that stays, as the host numbers it (0: there is none), and the call in which it waits (0: it does not). */
extern struct resident { pid_t shell; uint64_t call; } resident;

/* Has the shell that stays go on. */
void answer_line(int listener);

/* Has it enter these mounts and wait again; false where it does not get them. */
bool answer_mounts(int listener, int mounts);
