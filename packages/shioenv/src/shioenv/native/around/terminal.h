/* Pseudo-terminals that replace a run's pipes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Open a pseudo-terminal of the sandbox with 80 columns and 24 rows: ends[0] is for the supervisor, ends[1] for the shell. With
 * `nobody_types`, reading from it yields end of file, as for /dev/null. */
bool open_terminal(int ends[2], bool nobody_types);
void offer_ends_of_file(int master, size_t n);

/* Reset the timestamps that change when terminals are used. */
void settle_terminals(void);
