/* The protocol between Python and the supervisor; sandbox/namespaces/wire.py is the Python side. */
#pragma once

#include <stdint.h>

/* The descriptor of the gateway's network namespace while the network is being created. The prepared messages contain it as
 * IFLA_NET_NS_FD. */
enum { FD_GATEWAY = 100 };

#define STDIN_MAX (1u << 20) /* maximum bytes of standard input */

/* Python -> supervisor: configuration records, then requests, each followed by its start directory, input and standard
 * input. */
struct record { uint32_t kind; uint32_t length; };
enum {
    CONFIG_END, CONFIG_ENVIRONMENT, CONFIG_HOSTNAME, CONFIG_DOMAINNAME, CONFIG_UPTIME, CONFIG_DISK,
    CONFIG_NETLINK, CONFIG_GATEWAY, CONFIG_SECCOMP, CONFIG_RLIMITS, CONFIG_SHELL, CONFIG_PRELOAD, CONFIG_DIRECTORY,
    CONFIG_DEVICE, CONFIG_PROCESSORS, CONFIG_COVER,
    CONFIG_WEB_DATE, CONFIG_PLAIN, CONFIG_USAGE, CONFIG_CLOCK, CONFIG_PARENT, CONFIG_PROCESSES, CONFIG_SOCKETS,
};

/* CONFIG_RLIMITS is an array of these, for setrlimit(2). */
struct resource_limit { uint64_t resource, soft, hard; };

/* CONFIG_PROCESSES is an array of these. */
struct declared_process { uint32_t pid, uid, gid; char name[16]; };

/* CONFIG_SOCKETS is an array of these. Addresses are in network byte order. A socket without a peer's port listens, and sends
 * its banner to clients. */
enum { MOST_SOCKETS = 16 };
struct declared_socket { uint32_t family, port, peer_port; uint8_t address[16], peer[16]; char banner[64]; };

struct request {
    uint32_t flags;           /* REQUEST_* */
    uint32_t wall_ms;         /* time after which the shell and its processes are ended */
    uint32_t background_ms;   /* time that background processes may continue after the shell */
    uint32_t output_max;      /* bytes kept per channel */
    uint64_t drain_max;       /* total bytes read before everything is killed */
    uint64_t memory_max;      /* total resident bytes */
    uint32_t scan_ms;         /* processor time for finding changes */
    uint32_t idle_ms;         /* waiting time after which a persistent shell ends */
    uint32_t cwd_length, input_length, stdin_length;
    uint32_t node;            /* with REQUEST_FORK */
};
enum {
    REQUEST_FRESH = 1, REQUEST_SEPARATE = 2, REQUEST_KEEP = 4, REQUEST_TERMINAL = 8,
    REQUEST_RENEW = 16,       /* it reads a run's changes of the network, which is then created anew */
    REQUEST_ROWS = 32,        /* the standard input holds rows (inside/rows.h) */
    REQUEST_SHELL = 256,      /* start a persistent shell in the machine as it is; answered once it waits for its first line */
    REQUEST_LINE = 512,       /* run its next line */
    REQUEST_END = 1024,       /* end it, and make the machine pristine. Until then other runs are beside it, and their changes stay */
    REQUEST_LOOK = 4096,      /* run nothing; report the changes since it was started */
    REQUEST_HAND = 8192,      /* answered by one byte only, with the other end of the persistent shell's terminal or of the entered input's streams */
    REQUEST_BLIND = 16384,    /* for a line: changes and shell state are not examined until the next line without this flag */
    REQUEST_ENTER = 32768,    /* run an input in the machine, which the peer owns from then on; answered once the input has ended, while its
                               * processes continue. Then REQUEST_HAND passes the other ends of its input (a socket), output and errors */
    REQUEST_APART = 2048,     /* beside a persistent shell: on the pristine system's files */
    REQUEST_MARK = 65536,     /* keep the persistent shell's state as a node; the reply's status is its number, or a negative NODE_*. If the
                               * layer was changed, the shell has ended afterwards */
    REQUEST_EXPORT = 524288,  /* with REQUEST_MARK: the node is a file, which REQUEST_HAND passes, and the shell continues */
    REQUEST_FORK = 131072,    /* continue in a copy of a node's shell, in the files as they were there, with a line if REQUEST_LINE is set. The
                               * machine's shell is ended first. With REQUEST_SHELL: the node is the file that comes with the request, and the
                               * machine is pristine; the reply's status is 0 or a negative NODE_* */
    REQUEST_LAST = 262144,    /* for a line: it is the last one of `bash -c` */
    REQUEST_EAGER = 64, REQUEST_LAZY = 128,  /* order in which the shell's processes start (inside/order.c) */
};

struct reply {
    int32_t error;            /* 0, or an errno if the run failed */
    uint32_t stage;           /* STAGE_* */
    int32_t status;           /* as wait(2) reports it */
    uint32_t flags;           /* REPLY_* */
    int64_t started_ns, ended_ns;  /* real time */
    uint32_t processes;       /* processes and threads started before the shell ended, including the shell; 0: not counted */
    uint32_t output_length, errors_length, state_length, changes_length;
};
enum {
    REPLY_TIMED_OUT = 1, REPLY_OUTPUT_TRUNCATED = 2, REPLY_OUTPUT_KILLED = 4, REPLY_MEMORY = 8,
    REPLY_BACKGROUND = 16, REPLY_FILES = 32, REPLY_NETWORK = 64, REPLY_IPC = 128, REPLY_HOSTNAME = 256,
    REPLY_CHANGES_TRUNCATED = 512, REPLY_INIT = 1024, REPLY_TRAFFIC = 2048, REPLY_CPU = 4096,
    REPLY_PROCESSES = 8192, REPLY_DISK = 16384, REPLY_INODES = 32768, REPLY_MOUNTS = 65536,
    REPLY_WAITED = 131072,    /* every process slept in nine of ten samples, or in all samples of the last half of its time */
    REPLY_SOCKETS = 262144,   /* some sockets outlive all processes */
    REPLY_STAYS = 1048576,    /* the shell waits for its next line, or, on a terminal, lives */
    REPLY_FROZEN = 4194304,   /* changes of later lines are relative to the state now */
    REPLY_OUTLIVED = 8388608, /* of a line: a process that it started was there at its end */
    REPLY_BUSY = 2097152,     /* on a terminal: a process other than the shell is in the foreground */
    REPLY_SCAN = 524288,      /* the changes are incomplete, because finding them took too long */
};
/* Why a shell's state cannot be kept. */
enum {
    NODE_ENDED = 1,           /* the shell has ended */
    NODE_PROCESSES,           /* other processes are running */
    NODE_MACHINE,             /* network, mounts, IPC objects or the host's name were changed */
    NODE_DESCRIPTORS,         /* there are descriptors other than its standard streams */
    NODE_ATTRIBUTES,          /* attributes of its process were changed */
    NODE_FILES,               /* the layer cannot be frozen: files with several names, no room, or a removed working directory */
    NODE_MEMORY,              /* its memory cannot be copied */
};
enum {
    STAGE_SCAN = 16,          /* the run is over, but its changes could not be read */
    STAGE_OVER,               /* the shell had ended before its line arrived */
};
/* A path that a run changed: 'B' (before) or 'A' (after), the path, this struct, the target of a symbolic link, and a byte
 * for whether a SHA-256 follows. Path and target are each preceded by their length (32 bits). */
struct __attribute__((packed)) change {
    uint32_t mode, uid, gid, links;
    uint64_t size;
    int64_t seconds;          /* modification time */
    uint32_t nanoseconds;
    uint64_t inode;
    uint32_t major, minor;    /* of a device node */
};

/* After one of these, the peer opens another sandbox. After REPLY_NETWORK without them, it reads the network with a
 * REQUEST_RENEW. The supervisor itself undoes REPLY_TRAFFIC (packets, or settings of the network that cause no event). */
enum { NEEDS_NEW_SANDBOX = REPLY_IPC | REPLY_HOSTNAME | REPLY_INIT | REPLY_MOUNTS | REPLY_SOCKETS };
