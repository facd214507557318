/* The machine's own processes: what an input finds beside itself. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* In what is kept for all supervisors: what /proc says of each process, in memory; from ./processes to `to`. */
void fill_processes(const char *to);

/* As fork(2), but the child has this number in the input's pid namespace, which it is a process of. */
pid_t fork_inside(pid_t number);

/* The declared limits, as far as the host lets this process have them. Shells inherit them. */
void take_declared_limits(void);

/* Starts them all but the first one, which is init, and the one whose children the shells are. */
void start_processes(void);

/* Has /proc say of each what is declared. All are there by then. */
void cover_processes(const char *proc);

/* Watches for processes that a run leaves or ends: after all were started. `server` is the shells' parent. */
void watch_processes(pid_t server);
enum { LEFT_SURVIVORS = 1, LOST_PROCESSES = 2 };
unsigned processes_left(void);
/* One that a run left and that still runs, as a descriptor that can be read once it has ended; -1: there is none. */
int open_survivor(void);
/* Ends what a run left, and nothing else where that can be. */
void end_survivors(void);

/* The same, of a shell that stays: its children count as well. 0: there is no such shell. */
void watch_shell(pid_t shell);

/* Remembers the processes that are there, so that newcomers can be found and ended. `has_own_clock`: the run that begins starts its
 * processes in a time namespace of its own (RUN_BESIDE), so whatever is in another one is no newcomer, nor what it starts. */
void note_company(bool has_own_clock);
int open_newcomer(void);  /* as `open_survivor` */
void end_newcomers(void);

/* Whether any process is there that is neither the machine's own nor the shell that stays. */
bool has_company(void);
