/* One run: a shell that the fork server starts, watched until it and what it started are gone, and what it changed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol.h"
#include "scan.h"

#define SHELL_PID 1000
#define LOOK_NS 50000000ll /* between two looks at what a run uses */

struct channel { int fd; struct buffer kept; uint64_t seen; };

/* What of a run's standard input is not yet in its pipe. */
struct feed { int fd; const uint8_t *next; size_t left; };

/* What is watched: a run, or a line of a shell that stays. */
struct watched {
    const struct request *request;
    struct channel *channels;  /* two */
    struct feed feed;
    int start;                 /* with RUN_WITH_START: the directory */
    int slave;                 /* of a terminal: it is held until the shell has ended, since letting go of it would be hanging up */
    bool beside;               /* other processes than the run's are there, which it does not end */
    bool outlived;             /* a process that the shell started ran on when the shell had ended */
    bool stays;                /* the shell waits for a line once it has started, and again after each line */
    int shell;                 /* the process of a shell that stays; -1: the fork server tells of the shell's end by itself */
    uint64_t cpu_before_ms;    /* of the processor, that was used before the line */
    struct reply *reply;
};

int64_t now_ns(int clock);

/* Has the fork server start a shell as `pid` (0: the next number), whose output the channels are. */
void start_run(struct watched *run, uint32_t pid, uint32_t flags, const uint8_t *standard_input);

/* Watches a run to its end, or a shell that stays to the end of its line: input, output, time, memory, and what outlives the shell
 * or the line. What was noticed. `stays` is false afterwards where the shell has ended. */
unsigned watch(struct watched *run);

/* What the fork server, or a child on its way into the sandbox, says. True where it is the shell's end. */
bool hear(struct watched *run);

/* Asks the fork server how a shell that stays ended, or ends: its next word says it. */
void await_shell(struct watched *run);

/* Reads what there is to read, until it is too much. */
void read_channels(struct channel channels[2], const struct request *request);
bool is_flood(const struct channel channels[2], const struct request *request);

/* RUN_*: in which order the shell's processes begin. */
uint32_t order_of(const struct request *request);

/* The next answer tells of no change. */
void forget_changes(void);

/* Looks for what changed in the layer since it was pristine; the records are a part of the next answer. */
void find_changes(const struct request *request, struct reply *reply);

/* Whether the last look took so long that a layer is better frozen than looked through once more. One with files of several
 * names is not: overlays do not know across layers that they are one. */
bool is_better_frozen(void);
void answer(struct reply *reply, struct channel channels[2], uint32_t keep);

/* Ends what outlives a shell; whether there was anything. */
bool clear_survivors(struct reply *reply);

/* Whether what the machine itself runs is still there, after what was noticed. */
void check_machine(unsigned noticed, struct reply *reply);

/* Undoes what a run left, by its REPLY_*. `looked_at`: what it did to the network is known. */
void make_pristine(uint32_t flags, bool looked_at, bool usable);

/* Runs an input, answers, and makes everything pristine again. */
void run(const struct request *request, const uint8_t *standard_input);
