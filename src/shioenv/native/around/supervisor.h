/* What the parts of the supervisor share. */
#ifndef SHIOENV_SUPERVISOR_H
#define SHIOENV_SUPERVISOR_H

#include <errno.h>
#include <linux/filter.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "../inside/server.h"
#include "protocol.h"

/* ---- common.c: the peer, failures, small helpers ------------------------------------------------- */

extern int control;    /* the Python side */
extern int host_proc;  /* the host's /proc, reachable by descriptor alone */

bool read_all(int fd, void *bytes, size_t length);
void write_all(int fd, const void *bytes, size_t length);

/* Tells the peer which step failed ("E<errno> <step>\n") and ends; once inputs are served, just ends. */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
extern bool serving_inputs;

#define CHECK(call, ...) do { if ((call) < 0) die(__VA_ARGS__); } while (0)

void close_fd(int *fd);
void write_file(int directory, const char *path, const char *text);
void do_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data);
void join_namespace(int fd, int kind, const char *name);

/* ---- configuration.c ----------------------------------------------------------------------------- */

struct bytes { uint8_t *bytes; uint32_t length; };

extern struct configuration {
    char *environment[256];
    int n_environment;
    char hostname[65], domainname[65], shell_mode[8], directory[CWD_MAX];
    long long uptime;
    char disk[128];     /* tmpfs options */
    char web_date[64];  /* the only time the gateway's web server knows */
    char device[64];    /* what `df` calls the file system of / */
    char plain[CWD_MAX];  /* a plain copy of the system that inputs run on in place of an overlay, or "" */
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
} config;

void read_configuration(void);

/* ---- namespaces.c -------------------------------------------------------------------------------- */

extern int ns_user, ns_pid, ns_time;
extern pid_t init_pid;
extern bool init_alive;

void enter_user_namespace(void);
void make_inner_namespaces(void);
void start_web(void);
bool web_is_alive(void);

/* Makes the network as it was in the beginning, in new namespaces that this process and init join: the
 * inner one's descriptor. */
int renew_network(void);

/* One turn of init's loop: at first it moves into the new root, then it kills everything inside. */
void ask_init(void);

/* ---- notices.c ----------------------------------------------------------------------------------- */

/* From now on the calling process and its children make no call that the system-call filter refuses. */
void filter_calls(void);

/* From now on certain calls of its children wait until `attend_notice` was told of them. The descriptor
 * to listen to, or -1. */
int notice_calls(void);

/* Hears of one call and lets it go on: which NOTICED_* it is. */
unsigned attend_notice(int listener);
enum { NOTICED_MOUNTS = 1, NOTICED_IPC = 2, NOTICED_NAMES = 4, NOTICED_SOCKETS = 8, NOTICED_INIT = 16 };

/* ---- terminal.c ---------------------------------------------------------------------------------- */

/* A pseudo-terminal of the sandbox, of 80 columns and 24 rows: ends[0] is the supervisor's, ends[1] the
 * shell's. Who reads from it finds the end of the file, as in /dev/null. */
bool open_terminal(int ends[2]);
void offer_ends_of_file(int master, size_t n);

/* Sets back the times that using terminals moves. */
void settle_terminals(void);

/* ---- usage.c ------------------------------------------------------------------------------------- */

/* What the processes inside use at this moment; pages that several share count for each. `busy`: one of them
 * wants a processor or a disk. */
struct usage { uint64_t bytes, cpu_ms, threads; bool busy; };
struct usage usage_now(void);

/* The last resort against memory that belongs to no process (files in memory, sockets). */
bool host_is_short_of_memory(void);

/* ---- traces.c ------------------------------------------------------------------------------------ */

/* Remembers what the sandbox looks like before its first run, once its links are up. */
void watch_for_traces(void);

/* The same of a network that was made anew; what watched the last one holds it no more. */
void watch_network(void);

/* What a run left behind besides files, and what of it calls for new namespaces: REPLY_* flags. `noticed` is
 * what `attend_notice` told of it. */
uint32_t traces_left(unsigned noticed, bool had_terminal);

/* ---- mounts.c ------------------------------------------------------------------------------------ */

extern int lower_root, upper_root, merged_root;  /* of the inputs' layer */

struct disk_state { uint64_t files, blocks, mode, owner; struct timespec changed, modified; };
extern struct disk_state pristine_disk;
struct disk_state disk_state(void);

void own_mounts(void);
void make_device_nodes(uid_t uid, gid_t gid);
void make_outer_mounts(void);
int make_layer(bool with_library);
void renew_layer(void);

#endif
