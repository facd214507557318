/* What a run leaves behind besides files. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Remembers what the sandbox looks like before its first run, once its links are up. */
void watch_for_traces(void);

/* The same of a network that was made anew; what watched the last one holds it no more. */
void watch_network(void);

/* What a run left behind besides files, and what of it calls for new namespaces: REPLY_* flags. `noticed` is
 * what `attend_notice` told of it. */
uint32_t traces_left(unsigned noticed, bool had_terminal);

/* Of a line of a shell that stays, after which the machine goes on: what it did to the network, to the host's name, and what was
 * noticed of it. */
uint32_t traces_of_line(unsigned noticed);
