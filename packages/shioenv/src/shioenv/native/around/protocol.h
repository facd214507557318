/* What Python and the supervisor agree on; sandbox/namespaces/wire.py is its other half. */
#pragma once

#include <stdint.h>

/* The network namespace at the other end of the cable, while the network is being made: what
 * IFLA_NET_NS_FD of the prepared messages says. */
enum { FD_GATEWAY = 100 };

#define STDIN_MAX (1u << 20) /* bytes that an input can be given to read */

/* Python -> supervisor: configuration records, then requests, each with its start directory, input and standard
 * input after it. */
struct record { uint32_t kind; uint32_t length; };
enum {
    CONFIG_END, CONFIG_ENVIRONMENT, CONFIG_HOSTNAME, CONFIG_DOMAINNAME, CONFIG_UPTIME, CONFIG_DISK,
    CONFIG_NETLINK, CONFIG_GATEWAY, CONFIG_SECCOMP, CONFIG_RLIMITS, CONFIG_SHELL, CONFIG_PRELOAD, CONFIG_DIRECTORY,
    CONFIG_DEVICE, CONFIG_PROCESSORS, CONFIG_COVER,
    CONFIG_WEB_DATE, CONFIG_PLAIN, CONFIG_USAGE, CONFIG_CLOCK, CONFIG_PARENT, CONFIG_PROCESSES, CONFIG_SOCKETS,
};

/* What CONFIG_RLIMITS is a row of, for setrlimit(2). */
struct resource_limit { uint64_t resource, soft, hard; };

/* What CONFIG_PROCESSES is a row of. */
struct declared_process { uint32_t pid, uid, gid; char name[16]; };

/* What CONFIG_SOCKETS is a row of: addresses as the family has them, in the order of the network; one without a peer's port
 * listens, and says its banner to whoever connects. */
enum { MOST_SOCKETS = 16 };
struct declared_socket { uint32_t family, port, peer_port; uint8_t address[16], peer[16]; char banner[64]; };

struct request {
    uint32_t flags;           /* REQUEST_* */
    uint32_t wall_ms;         /* the shell and everything it started end after this long */
    uint32_t background_ms;   /* what outlives the shell may run on this long */
    uint32_t output_max;      /* bytes kept of each channel */
    uint64_t drain_max;       /* bytes read in all before everything is killed */
    uint64_t memory_max;      /* bytes resident in all */
    uint32_t scan_ms;         /* processor time that finding out what changed may take */
    uint32_t idle_ms;         /* a shell that waits for its next line so long ends */
    uint32_t cwd_length, input_length, stdin_length;
};
enum {
    REQUEST_FRESH = 1, REQUEST_SEPARATE = 2, REQUEST_KEEP = 4, REQUEST_TERMINAL = 8,
    REQUEST_RENEW = 16,       /* it has read what a run did to the network, which is made anew after it */
    REQUEST_ROWS = 32,        /* what stands for standard input is rows, as inside/rows.h says */
    REQUEST_SHELL = 256,      /* starts a shell that stays, in the machine as it is; answered once it waits for its first line */
    REQUEST_LINE = 512,       /* its next line */
    REQUEST_END = 1024,       /* ends it, and makes the machine pristine. Until then other runs are beside it, and change nothing back */
    REQUEST_LOOK = 4096,      /* what changed since it was started, and nothing is run */
    REQUEST_HAND = 8192,      /* not answered but by one byte, with the other end of the terminal of a shell that stays, or those of what entered */
    REQUEST_BLIND = 16384,    /* of a line: nobody looks at what changed, nor at the shell's state, before the next one that is not so */
    REQUEST_ENTER = 32768,    /* starts an input in the machine, which is the peer's from then on; answered once the input has ended, and what
                               * it started goes on. Then REQUEST_HAND gives the other ends of its input (a socket), output and errors */
    REQUEST_APART = 2048,     /* beside a shell that stays: on the pristine system's files */
    REQUEST_EAGER = 64, REQUEST_LAZY = 128,  /* in which order the shell's processes begin (inside/order.c) */
};

struct reply {
    int32_t error;            /* 0, or an errno: the run did not happen */
    uint32_t stage;           /* STAGE_* */
    int32_t status;           /* as wait(2) reports it */
    uint32_t flags;           /* REPLY_* */
    int64_t started_ns, ended_ns;  /* real time */
    uint32_t processes;       /* and threads, the shell among them, that were started until the shell ended; 0: not counted */
    uint32_t output_length, errors_length, state_length, changes_length;
};
enum {
    REPLY_TIMED_OUT = 1, REPLY_OUTPUT_TRUNCATED = 2, REPLY_OUTPUT_KILLED = 4, REPLY_MEMORY = 8,
    REPLY_BACKGROUND = 16, REPLY_FILES = 32, REPLY_NETWORK = 64, REPLY_IPC = 128, REPLY_HOSTNAME = 256,
    REPLY_CHANGES_TRUNCATED = 512, REPLY_INIT = 1024, REPLY_TRAFFIC = 2048, REPLY_CPU = 4096,
    REPLY_PROCESSES = 8192, REPLY_DISK = 16384, REPLY_INODES = 32768, REPLY_MOUNTS = 65536,
    REPLY_WAITED = 131072,    /* every process slept in nine looks of ten, or in all of the last half of its time */
    REPLY_SOCKETS = 262144,   /* some outlive every process */
    REPLY_STAYS = 1048576,    /* the shell waits for its next line, or, on a terminal, lives */
    REPLY_FROZEN = 4194304,   /* the next line's changes are those from here on */
    REPLY_BUSY = 2097152,     /* on a terminal: it is not the shell that reads there */
    REPLY_SCAN = 524288,      /* what changed is known in part: finding it out took too long */
};
enum {
    STAGE_SCAN = 16,          /* the run is over, but what it changed could not be read */
    STAGE_OVER,               /* the shell had ended before its line came */
};
/* A path that a run touched: 'B' (before) or 'A' (after), its path, what follows here, where it links to, and a
 * byte that tells whether a SHA-256 comes after it. The path and the link have their length before them, 32 bits. */
struct __attribute__((packed)) change {
    uint32_t mode, uid, gid, links;
    uint64_t size;
    int64_t seconds;          /* of its last change */
    uint32_t nanoseconds;
    uint64_t inode;
    uint32_t major, minor;    /* of a device */
};

/* Where one of these is left, the peer opens another sandbox; where only REPLY_NETWORK is, it looks at the network and
 * says so with REQUEST_RENEW. REPLY_TRAFFIC alone (packets, or settings of the network that nobody hears of) is the
 * supervisor's to undo. */
enum { NEEDS_NEW_SANDBOX = REPLY_IPC | REPLY_HOSTNAME | REPLY_INIT | REPLY_MOUNTS | REPLY_SOCKETS };
