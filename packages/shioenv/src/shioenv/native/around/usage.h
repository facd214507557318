/* What a run uses while it lasts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What the processes inside use at this moment; pages that several share count for each. `busy`: one of them
 * wants a processor or a disk. */
struct usage { uint64_t bytes, cpu_ms, threads; bool busy; };
struct usage usage_now(void);

/* The last resort against memory that belongs to no process (files in memory, sockets). */
bool host_is_short_of_memory(void);
