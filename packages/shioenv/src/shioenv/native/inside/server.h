/* The fork server: what it and whoever starts it agree on, and its loop, shared by the library inside bash and by
 * the supervisor's own fallback. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define INPUT_MAX (128u << 10) /* one argument of execve, its final NUL included (MAX_ARG_STRLEN) */
#define STATE_MAX (4u << 20)  /* longest shell-state dump, bytes */
#define CWD_MAX 4096u
#define ROWS_MAX (1u << 20)   /* rows that are run one after the other, bytes */
#define HELD_MAX 64u
#define ALL_HELD_MS 500  /* for so long processes of a run may be held, all together */

/* An id of the outer user namespace that the inner one does not have. */
enum { NOBODY_INSIDE = 65535 };

/* Descriptors the fork server finds open. */
enum { FD_CONTROL = 200, FD_SHARED, FD_LAST_PID, FD_MOUNTS, FD_USER, FD_PROC };

/* Memory shared by the supervisor, the server and the one running shell. Once an input runs, all of it
 * is hostile: the supervisor copies from it with bounds and believes none of it. */
struct shared {
    uint32_t input_length;
    uint32_t flags;           /* RUN_* */
    volatile uint32_t dumped; /* the state below is the shell's at its end */
    volatile uint32_t state_length;
    volatile uint32_t taken;        /* the shell has its input, which may be written over */
    volatile uint32_t line_status;  /* the exit code of the last line of a shell that stays */
    uint32_t processors;      /* that the declared machine has */
    int64_t uptime;           /* seconds since boot that the run starts with; 0: those of its sandbox go on */
    volatile int64_t held_until;         /* when nobody is held any longer (CLOCK_MONOTONIC, ns); 0: nobody was yet */
    volatile uint32_t held[HELD_MAX];    /* processes that wait until everybody else does (order.c) */
    char cwd[CWD_MAX];
    char input[INPUT_MAX];
    uint32_t background_ms;   /* what a row leaves behind may run on so long before the next one */
    uint32_t typed_rows;      /* where the rows go on once the shell of the first ones has ended; 0: it does not */
    char rows[ROWS_MAX + 1];  /* a NUL behind each, and behind the last */
    char state[STATE_MAX];
};
extern struct shared *shared;

enum {
    RUN_FRESH = 1,  /* exec a fresh bash instead of returning into the preloaded one */
    RUN_ROWS = 2,   /* the input `. /dev/stdin` runs the rows (rows.h) */
    RUN_EAGER = 4,  /* who starts a process goes on once everybody else waits */
    RUN_LINES = 16, /* the input `. /dev/stdin` runs lines as they come, each in the place of the input (rows.h) */
    RUN_LAZY = 8,   /* who was started begins once everybody else waits, the youngest first */
};

/* What a child has to say before its input takes over. */
enum {
    STAGE_NONE,        /* it did everything */
    STAGE_NAMESPACES,  /* could not enter the sandbox: the run never happened */
    STAGE_DIRECTORY,   /* the start directory could not be entered */
    STAGE_STARTED,     /* it is inside, and stays: `status` is its process on the host */
    STAGE_COPIED,      /* it made a copy of the mounts, and waits: `status` is its process on the host */
};

/* supervisor -> server. To run, descriptors come along in this order: the output pipe or pipes; where the
 * mounts were copied before, that copy; where the input is to read something, a pipe with that; a directory. To join a namespace: that, and `flags` is its CLONE_NEW*.
 * To wait: nothing else; of the end of a shell that stays nothing is said before. */
enum { SERVER_RUN = 1, SERVER_JOIN, SERVER_WAIT };
enum {
    RUN_SEPARATE = 1, RUN_IN_COPY = 2, RUN_ON_TERMINAL = 4, RUN_WITH_STDIN = 8,
    RUN_STAYS = 16,    /* the server serves on while the shell lives */
    RUN_APART = 32,    /* on the pristine files that the server has, in the same machine otherwise */
    RUN_BESIDE = 64,   /* its processes have a time namespace of their own, by which they are known */
    RUN_WITH_START = 128,  /* a directory comes along, to start in where nothing has the name that is given */
};
enum { DESCRIPTORS = 5 };  /* of one message at most */
struct server_request { uint32_t op; uint32_t pid; uint32_t flags; };  /* `pid` 0: the next number, and nobody is numbered after it */
/* server -> supervisor: one when it is ready to serve; one when the shell was reaped; before it those from the child itself, which alone
 * have a stage. */
struct server_reply { int32_t error; uint32_t stage; int32_t status; uint32_t processes; };  /* that were started until the shell ended */

/* A message with descriptors at its side; false where it could not be sent. */
bool send_with(int socket, const void *body, size_t length, const int *fds, unsigned n);
/* The length of the message, or what recvmsg(2) says; the `fds` that did not come become -1. */
ssize_t receive_with(int socket, void *body, size_t length, int fds[DESCRIPTORS]);

/* The shell of a run: the first of its processes, which all others are numbered after. */
extern pid_t shell_pid;

/* Serves requests. Returns only in a child that is inside the sandbox and shall run
 * shared->input; descriptors 0 to 2 are the input's, all others are closed. `environment` is what
 * `enter_directory` gets. */
void serve(char **environment);

/* Replaces the calling process by a fresh `bash --norc --noprofile -c INPUT`; returns where that cannot be. */
void exec_bash(const char *input, char *const environment[]);

/* The same with shared->input. */
void exec_fresh(char *const environment[]) __attribute__((noreturn));
