/* What the supervisor, the fork server inside bash and the Python side agree on. */
#ifndef SHIOENV_PROTOCOL_H
#define SHIOENV_PROTOCOL_H

#include <stdint.h>

#define INPUT_MAX (128u << 10) /* one argument of execve, its final NUL included (MAX_ARG_STRLEN) */
#define STATE_MAX (4u << 20)  /* longest shell-state dump, bytes */
#define CWD_MAX 4096u

/* The network namespace at the other end of the cable, while the network is being made: what
 * IFLA_NET_NS_FD of the prepared messages says. */
enum { FD_GATEWAY = 100 };

/* Descriptors the fork server finds open. */
enum { FD_CONTROL = 200, FD_SHARED, FD_LAST_PID, FD_MOUNTS, FD_USER, FD_PROC };

/* Memory shared by the supervisor, the server and the one running shell. Once an input runs, all of it
 * is hostile: the supervisor copies from it with bounds and believes none of it. */
struct shared {
    uint32_t input_length;
    uint32_t flags;           /* RUN_* */
    volatile uint32_t dumped; /* the state below is the shell's at its end */
    volatile uint32_t state_length;
    uint32_t processors;      /* that the declared machine has */
    char cwd[CWD_MAX];
    char input[INPUT_MAX];
    char state[STATE_MAX];
};

enum { RUN_FRESH = 1 };  /* exec a fresh bash instead of returning into the preloaded one */

/* What a child has to say before its input takes over. */
enum {
    STAGE_NONE,        /* it did everything */
    STAGE_NAMESPACES,  /* could not enter the sandbox: the run never happened */
    STAGE_DIRECTORY,   /* the start directory could not be entered */
    STAGE_COPIED,      /* it made a copy of the mounts, and waits: `status` is its process on the host */
};

/* supervisor -> server. To run, descriptors come along in this order: the output pipe or pipes and, where the
 * mounts were copied before, that copy. To join a namespace: that, and `flags` is its CLONE_NEW*. */
enum { SERVER_RUN = 1, SERVER_JOIN };
enum { RUN_SEPARATE = 1, RUN_IN_COPY = 2, RUN_ON_TERMINAL = 4 };
struct server_request { uint32_t op; uint32_t pid; uint32_t flags; };
/* server -> supervisor: one when the shell was reaped; before it those from the child itself, which alone
 * have a stage. */
struct server_reply { int32_t error; uint32_t stage; int32_t status; };

/* Python -> supervisor: configuration records, then requests. */
struct record { uint32_t kind; uint32_t length; };
enum {
    CONFIG_END, CONFIG_ENVIRONMENT, CONFIG_HOSTNAME, CONFIG_DOMAINNAME, CONFIG_UPTIME, CONFIG_DISK,
    CONFIG_NETLINK, CONFIG_GATEWAY, CONFIG_SECCOMP, CONFIG_RLIMITS, CONFIG_SHELL, CONFIG_PRELOAD, CONFIG_DIRECTORY,
    CONFIG_DEVICE, CONFIG_PROCESSORS, CONFIG_COVER,
    CONFIG_WEB_DATE, CONFIG_PLAIN, CONFIG_USAGE,
};

struct request {
    uint32_t flags;           /* REQUEST_* */
    uint32_t wall_ms;         /* the shell and everything it started end after this long */
    uint32_t background_ms;   /* what outlives the shell may run on this long */
    uint32_t output_max;      /* bytes kept of each channel */
    uint64_t drain_max;       /* bytes read in all before everything is killed */
    uint64_t memory_max;      /* bytes resident in all */
    uint32_t cwd_length, input_length;
};
enum { REQUEST_FRESH = 1, REQUEST_SEPARATE = 2, REQUEST_KEEP = 4, REQUEST_TERMINAL = 8 };

struct reply {
    int32_t error;            /* 0, or an errno: the run did not happen */
    uint32_t stage;
    int32_t status;           /* as wait(2) reports it */
    uint32_t flags;           /* REPLY_* */
    int64_t started_ns, ended_ns;  /* real time */
    uint32_t output_length, errors_length, state_length, changes_length;
};
enum {
    REPLY_TIMED_OUT = 1, REPLY_OUTPUT_TRUNCATED = 2, REPLY_OUTPUT_KILLED = 4, REPLY_MEMORY = 8,
    REPLY_BACKGROUND = 16, REPLY_FILES = 32, REPLY_NETWORK = 64, REPLY_IPC = 128, REPLY_HOSTNAME = 256,
    REPLY_CHANGES_TRUNCATED = 512, REPLY_INIT = 1024, REPLY_TRAFFIC = 2048, REPLY_CPU = 4096,
    REPLY_PROCESSES = 8192, REPLY_DISK = 16384, REPLY_INODES = 32768, REPLY_MOUNTS = 65536,
    REPLY_WAITED = 131072,    /* nine looks of ten found every process asleep, until the time was over */
    REPLY_SOCKETS = 262144,   /* some outlive every process */
};
/* Where one of these is left, the peer opens another sandbox. REPLY_TRAFFIC alone is the supervisor's to undo. */
enum { NEEDS_NEW_SANDBOX = REPLY_NETWORK | REPLY_IPC | REPLY_HOSTNAME | REPLY_INIT | REPLY_MOUNTS | REPLY_SOCKETS };

#endif
