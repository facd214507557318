/* The fork server: its protocol, and its loop, which the library inside bash and the supervisor's fallback share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define INPUT_MAX (128u << 10) /* one argument of execve, including its final NUL (MAX_ARG_STRLEN) */
#define STATE_MAX (4u << 20)  /* maximum bytes of a shell-state dump */
#define CWD_MAX 4096u
#define ROWS_MAX (1u << 20)   /* maximum bytes of rows */
#define HELD_MAX 64u
#define ALL_HELD_MS 500  /* total time for which processes of a run may be held */

/* An id of the outer user namespace that is not mapped in the inner one. */
enum { NOBODY_INSIDE = 65535 };

/* Descriptors that are open in the fork server. */
enum { FD_CONTROL = 200, FD_SHARED, FD_LAST_PID, FD_MOUNTS, FD_USER, FD_PROC };

/* Kernel state of a waiting shell that its memory does not hold (rows.c), and what another shell has to map to continue with that
 * memory. */
enum { NODE_SIGNALS = 64, NODE_LIMITS = 16, NODE_AREAS = 64 };
struct node_state {
    uint64_t actions[NODE_SIGNALS][4];   /* as rt_sigaction(2) has them */
    uint64_t limits[NODE_LIMITS][2];
    uint32_t mask;                       /* of new files */
    uint64_t heap_end;
    uint32_t n_areas;
    struct { uint64_t start, length; uint32_t mapped; } areas[NODE_AREAS];  /* to map or to unmap */
};

/* Memory shared by the supervisor, the server and the running shell. Once an input runs, all of it is untrusted: the
 * supervisor copies from it with bounds checks. */
struct shared {
    uint32_t input_length;
    uint32_t flags;           /* RUN_* */
    volatile uint32_t dumped; /* the state below is the shell's final state */
    volatile uint32_t state_length;
    volatile uint32_t taken;        /* the shell has read its input, which may now be overwritten */
    volatile uint32_t line_status;  /* the exit code of a persistent shell's last line */
    uint32_t processors;      /* number of processors of the declared machine */
    int64_t uptime;           /* seconds since boot at the run's start; 0: continue the sandbox's */
    int64_t clock;            /* with `uptime`: the difference to the host's clock in nanoseconds; 0: by the uptime */
    volatile int64_t held_until;         /* end of the time for holding processes (CLOCK_MONOTONIC, ns); 0: none was held yet */
    volatile uint32_t held[HELD_MAX];    /* processes held until all others wait (order.c) */
    volatile uint32_t call_answer;       /* LINE_* of rows.h: what a waiting shell does next */
    struct node_state node;
    char cwd[CWD_MAX];
    char input[INPUT_MAX];
    uint32_t background_ms;   /* time for a row's background processes before the next row */
    uint32_t typed_rows;      /* offset of the rows after the end of the first shell; 0: none */
    char rows[ROWS_MAX + 1];  /* a NUL after each, and another after the last */
    char state[STATE_MAX];
};
extern struct shared *shared;

enum {
    RUN_FRESH = 1,  /* execute a fresh bash instead of returning into the preloaded one */
    RUN_ROWS = 2,   /* the input `. /dev/stdin` runs the rows (rows.h) */
    RUN_EAGER = 4,  /* a process that starts another one continues once all others wait */
    RUN_LINES = 16, /* the input `. /dev/stdin` runs lines as they arrive, each in `input` (rows.h) */
    RUN_COPY = 32,  /* with RUN_LINES: the shell gets another one's memory before its first line */
    RUN_LAZY = 8,   /* a new process starts once all others wait, the youngest first */
};

/* The stage that a child reports before its input takes control. */
enum {
    STAGE_NONE,        /* complete */
    STAGE_NAMESPACES,  /* could not enter the sandbox; the input did not run */
    STAGE_DIRECTORY,   /* the start directory could not be entered */
    STAGE_STARTED,     /* it is inside, and is persistent: `status` is its process id on the host */
    STAGE_COPIED,      /* it made a copy of the mounts, and waits: `status` is its process id on the host */
};

/* supervisor -> server. SERVER_RUN has descriptors in this order: the output pipe or pipes; the copy of the mounts, if one
 * exists; the pipe with standard input, if any; a directory. SERVER_JOIN has a namespace, and `flags` is its CLONE_NEW*.
 * SERVER_WAIT has no descriptors; it requests a report of a persistent shell's end. SERVER_NUMBER, too: unless `pid` is 0, it sets
 * the last process id; the reply has the number of ids given since that of the shell. */
enum { SERVER_RUN = 1, SERVER_JOIN, SERVER_WAIT, SERVER_NUMBER };
enum {
    RUN_SEPARATE = 1, RUN_IN_COPY = 2, RUN_ON_TERMINAL = 4, RUN_WITH_STDIN = 8,
    RUN_STAYS = 16,    /* the server continues to serve while the shell lives */
    RUN_APART = 32,    /* in the same machine, but on the server's pristine files */
    RUN_BESIDE = 64,   /* its processes have a separate time namespace, which identifies them */
    RUN_WITH_START = 128,  /* a directory is passed, for use if the given path does not exist */
};
enum { DESCRIPTORS = 5 };  /* maximum per message */
struct server_request { uint32_t op; uint32_t pid; uint32_t flags; };  /* `pid` 0: the next id, and later ids do not depend on it */
/* server -> supervisor: one when it is ready to serve, one when the shell was reaped, and before that, those of the child
 * itself, which have a stage. */
struct server_reply { int32_t error; uint32_t stage; int32_t status; uint32_t processes; };  /* started before the shell ended */

/* Send a message with descriptors; false on failure. */
bool send_with(int socket, const void *body, size_t length, const int *fds, unsigned n);
/* Return the length of the message, or the result of recvmsg(2). Missing `fds` become -1. */
ssize_t receive_with(int socket, void *body, size_t length, int fds[DESCRIPTORS]);

/* The shell of a run: its first process, which gets the lowest process id. */
extern pid_t shell_pid;

/* Serve requests. Returns only in a child that is inside the sandbox and must run shared->input; descriptors 0 to 2 are those
 * of the input, all others are closed. `environment` is passed to `enter_directory`. */
void serve(char **environment);

/* Replace the calling process by a fresh `bash --norc --noprofile -c INPUT`; returns only on failure. */
void exec_bash(const char *input, char *const environment[]);

/* Do the same with shared->input. */
void exec_fresh(char *const environment[]) __attribute__((noreturn));
