/* The resource usage of a run in progress. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The current usage of the processes inside; shared pages count for each process. `busy`: a process is running or waits for a
 * processor or disk. */
struct usage { uint64_t bytes, cpu_ms, threads; bool busy; };
struct usage usage_now(void);

/* Whether the host is low on memory: a last resort against memory of no process (files in memory, sockets). */
bool host_is_short_of_memory(void);
