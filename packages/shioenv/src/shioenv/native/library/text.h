/* Parse texts of the kernel, and write the texts that programs see. */
#pragma once

#include "facts.h"

enum { SHOWN = 60 << 10 };  /* capacity of a pipe in bytes */

/* The content that programs see of a file, truncated to the capacity. */
struct output { size_t length; char text[SHOWN]; };

bool begins(const char *text, const char *wanted);
/* Find a text in another; return its start, or NULL. */
const char *find(const char *in, const char *wanted);
/* Parse the number at the start of a text, and advance past it. */
uint64_t number(const char **text);
/* Return the decimal digits of a number, stored in `digits`. */
enum { DIGITS = 24 };
const char *decimal(uint64_t value, char digits[DIGITS]);
/* Return one of the texts after the code (answers_end), by its index. */
const char *text_behind(int others);

void show(struct output *shown, const char *text);
void show_until(struct output *shown, const char *from, const char *end);
void show_number(struct output *shown, uint64_t value);
