/* Functions of process 1 shared by both ways to run inputs in a microVM: the channel to the host, and the file systems. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define LONGEST (1u << 20)  /* bytes of a frame's body: both sides send long messages in pieces */

extern char frame[LONGEST];  /* the body of the last frame, followed by a NUL */

/* Return the next frame's kind, or 0 if the connection ended. Frames T and P are handled before they are returned. */
char receive_frame(size_t *length);
void send_frame(char kind, const void *body, size_t length);
/* Wait until the host connects again. */
void reconnect(void);

/* End the machine if `result` is below 0. */
void need(long result, const char *what);
/* Write a line on the console. */
void say(const char *what);
/* Write to a file of /proc or /sys. */
void put(const char *path, const char *text);

/* Make the disk the root file system; then run inputs there without end (bare.c). `argv` holds the program's name that `ps`
 * shows. */
void mount_bare(void);
void serve_bare(int argc, char **argv) __attribute__((noreturn));
