/* The configuration that the peer sends before the first run. */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

#include "../inside/server.h"
#include "protocol.h"

struct bytes { uint8_t *bytes; uint32_t length; };

enum { MOST_PROCESSES = 64 };  /* declared ones */

extern struct configuration {
    char *environment[256];
    int n_environment;
    char hostname[65], domainname[65], shell_mode[8], directory[CWD_MAX];
    long long uptime, idle;  /* seconds since boot; idle time in hundredths of a second */
    bool declared_clock;  /* programs derive their clock from the time since boot, so each run starts at the declared uptime */
    char disk[128];     /* tmpfs options */
    char web_date[64];  /* the date in all answers of the gateway's web server */
    char device[64];    /* the device of / as shown by `df` */
    bool plain;         /* inputs run on a plain copy of the system instead of an overlay */
    struct bytes netlink, gateway;  /* rtnetlink messages */
    struct bytes preload;           /* the library for bash */
    struct sock_fprog seccomp;
    struct { char *name; struct bytes content; } covers[8];  /* files that cover those in /proc, generated for this sandbox */
    int n_covers;
    /* Written to the shared memory again before each run, because the previous run may have overwritten it. */
    uint32_t processors;
    uint64_t cpu_ms, processes;  /* limits of a run */
    uint32_t n_rlimits;
    struct resource_limit rlimits[16];
    uint32_t parent;  /* process id of the shells' parent */
    uint32_t n_processes;
    struct declared_process processes_declared[MOST_PROCESSES];
    uint32_t n_sockets;
    struct declared_socket sockets[MOST_SOCKETS];
} config;

void read_configuration(void);
