/* What the peer says before the first run. */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

#include "../inside/server.h"
#include "protocol.h"

struct bytes { uint8_t *bytes; uint32_t length; };

extern struct configuration {
    char *environment[256];
    int n_environment;
    char hostname[65], domainname[65], shell_mode[8], directory[CWD_MAX];
    long long uptime, idle;  /* seconds since boot; hundredths of one without work */
    bool declared_clock;  /* programs make their time from the time since boot: each run starts at the uptime */
    char disk[128];     /* tmpfs options */
    char web_date[64];  /* the only time the gateway's web server knows */
    char device[64];    /* what `df` calls the file system of / */
    bool plain;         /* inputs run on a plain copy of the system in place of an overlay */
    struct bytes netlink, gateway;  /* rtnetlink messages */
    struct bytes preload;           /* the library for bash */
    struct sock_fprog seccomp;
    struct { char *name; struct bytes content; } covers[8];  /* of /proc, made for this sandbox */
    int n_covers;
    /* Written to the shared memory anew before each run: the last one may have left anything there. */
    uint32_t processors;
    uint64_t cpu_ms, processes;  /* that a run may use */
    uint32_t n_rlimits;
    struct resource_limit rlimits[16];
    uint32_t parent;  /* number of the process whose children the shells are */
    uint32_t n_processes;
    struct declared_process processes_declared[64];
    uint32_t n_sockets;
    struct declared_socket sockets[MOST_SOCKETS];
} config;

void read_configuration(void);
