/* The declared processes of the machine, which inputs see beside their own. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Pack the /proc files of all processes, which are below ./processes, into a file. Return it. */
int pack_processes(const char *to);

/* Copy packed files to `to`, a directory in memory that all supervisors of a sandbox share. */
void fill_processes(int packed, const char *to);

/* Like fork(2), but the child is in the input's pid namespace, with this process id there. */
pid_t fork_inside(pid_t number);

/* Set the declared limits, as far as the host permits. Shells inherit them. */
void take_declared_limits(void);

/* Start all of them, except init and the shells' parent. */
void start_processes(void);

/* Cover the entry of each in /proc with its declared files. All must have been started. */
void cover_processes(const char *proc);

/* Start detecting processes that a run leaves behind or ends. Called after all were started; `server` is the shells' parent. */
void watch_processes(pid_t server);
enum { LEFT_SURVIVORS = 1, LOST_PROCESSES = 2 };
unsigned processes_left(void);
/* Return a descriptor of a remaining process of a run, readable once that process has ended; -1 if there is none. */
int open_survivor(void);
/* End the remaining processes of a run, and if possible no others. */
void end_survivors(void);

/* Do the same for a persistent shell (0: none), whose children count as well. */
void watch_shell(pid_t shell);

/* Record the current processes, so that newer ones can be found and ended. `has_own_clock`: the next run has a separate time
 * namespace (RUN_BESIDE), so processes in other time namespaces, and their children, do not belong to it. */
void note_company(bool has_own_clock);
int open_newcomer(void);  /* like `open_survivor` */
void end_newcomers(void);

/* Whether there is a process that is neither declared nor the persistent shell. */
bool has_company(void);
