/* A shell that stays: it runs a line, says what it is now, and waits for the next one, while what it started goes on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "protocol.h"

/* Whether a machine is a shell's, or has been entered: from then on to `end_shell`. */
bool is_live(void);

void start_shell(const struct request *request);
void run_line(const struct request *request);

/* Tells what changed, and nothing is run. */
void look_at_shell(const struct request *request);

/* Starts an input in the machine, without a shell that stays. What the input leaves behind goes on. */
void enter_machine(const struct request *request);

/* Gives the peer the other end of the shell's terminal, or those of what entered last. */
void hand_ends(void);

/* Runs an input in a shell of its own in the same machine. */
void run_beside(const struct request *request, const uint8_t *standard_input);
void end_shell(const struct request *request);

/* Looks after the machine until the peer says something. */
void await_request(void);
