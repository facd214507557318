/* Effects of a run other than changed files. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Record the state of the sandbox before its first run, once its links are up. */
void watch_for_traces(void);

/* Do the same for a new network, and release the previous one. */
void watch_network(void);

/* Return the REPLY_* flags for the effects of a run other than changed files, including those that require new namespaces.
 * `noticed` holds its flags from `attend_notice`. */
uint32_t traces_left(unsigned noticed, bool had_terminal);

/* The same for a line of a persistent shell, after which the machine continues: network, hostname, and noticed calls. */
uint32_t traces_of_line(unsigned noticed);
