/* What both ways to run inputs in a microVM share: process 1, its channel to the host, its file systems. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define LONGEST (1u << 20)  /* bytes of a frame's body: both sides send long messages in pieces */

extern char frame[LONGEST];  /* the body of the last frame, a NUL behind it */

/* The next frame's kind, or 0 where the connection ended. The time is set and a ping answered before it is returned. */
char receive_frame(size_t *length);
void send_frame(char kind, const void *body, size_t length);
/* Waits until the host is there again. */
void reconnect(void);

/* Ends the machine where `result` is below 0. */
void need(long result, const char *what);
/* Writes a line on the console. */
void say(const char *what);
/* Writes to a file of the kernel's. */
void put(const char *path, const char *text);

/* Makes the disk the root of everything, and runs inputs there for ever (bare.c). The name of this program, as `ps` shows
 * it, is in `argv`. */
void mount_bare(void);
void serve_bare(int argc, char **argv) __attribute__((noreturn));
