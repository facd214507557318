/* One run: the fork server starts a shell, which is monitored until all its processes have ended; then its changes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol.h"
#include "scan.h"

#define SHELL_PID 1000
#define LOOK_NS 50000000ll /* between two samples of a run's resource usage */

struct channel { int fd; struct buffer kept; uint64_t seen; };

/* The part of a run's standard input that is not yet in its pipe. */
struct feed { int fd; const uint8_t *next; size_t left; };

/* A monitored run, or a line of a persistent shell. */
struct watched {
    const struct request *request;
    struct channel *channels;  /* two */
    struct feed feed;
    int start;                 /* with RUN_WITH_START: the directory */
    int slave;                 /* of a terminal: kept open until the shell has ended, because closing it would hang up */
    bool beside;               /* there are processes of others, which this run must not end */
    bool stays;                /* the shell waits for a line after its start and after each line */
    int shell;                 /* the persistent shell; -1: the fork server reports the shell's end without a request */
    uint64_t cpu_before_ms;    /* processor time used before the line */
    struct reply *reply;
};

int64_t now_ns(int clock);

/* Make the fork server start a shell with process id `pid` (0: the next one), with the channels as its output. */
void start_run(struct watched *run, uint32_t pid, uint32_t flags, const uint8_t *standard_input);

/* Monitor a run to its end, or a persistent shell to the end of its line: input, output, time, memory, and background
 * processes. Return the NOTICED_* flags. `stays` is false afterwards if the shell has ended. */
unsigned watch(struct watched *run);

/* Receive a message from the fork server, or from a child entering the sandbox. True if it reports the shell's end. */
bool hear(struct watched *run);

/* Ask the fork server to report the end of a persistent shell in its next message. */
void await_shell(struct watched *run);

/* Read all available output, up to the limit. */
void read_channels(struct channel channels[2], const struct request *request);
bool is_flood(const struct channel channels[2], const struct request *request);

/* Return the RUN_* flag for the order in which the shell's processes start. */
uint32_t order_of(const struct request *request);

/* Discard the change records, so that the next answer has none. */
void forget_changes(void);

/* Find the changes in the layer since it was pristine; the next answer contains the records. */
void find_changes(const struct request *request, struct reply *reply);

/* Whether the last scan took so long that freezing the layer is cheaper than scanning it again. False if the layer has files
 * with several names, because overlays do not track hard links across layers. */
bool is_better_frozen(void);
bool is_linked(void);
void answer(struct reply *reply, struct channel channels[2], uint32_t keep);

/* End the remaining processes of a shell. */
void clear_survivors(struct reply *reply);

/* Check whether all declared processes are still running, given the NOTICED_* flags. */
void check_machine(unsigned noticed, struct reply *reply);

/* Undo the effects of a run, given its REPLY_* flags. `looked_at`: its changes of the network were read. */
void make_pristine(uint32_t flags, bool looked_at, bool usable);

/* Run an input, answer, and make everything pristine again. */
void run(const struct request *request, const uint8_t *standard_input);
