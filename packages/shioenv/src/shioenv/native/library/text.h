/* Texts of the kernel's, and what is shown for them. */
#pragma once

#include "facts.h"

enum { SHOWN = 60 << 10 };  /* bytes that a pipe holds */

/* What is shown of a file: more than there is room for is left out. */
struct output { size_t length; char text[SHOWN]; };

bool begins(const char *text, const char *wanted);
/* Where one text begins in another, or NULL. */
const char *find(const char *in, const char *wanted);
/* The number that a text begins with, which is passed over. */
uint64_t number(const char **text);
/* The decimal digits of a number, which begin in `digits`. */
enum { DIGITS = 24 };
const char *decimal(uint64_t value, char digits[DIGITS]);
/* The text after so many others, behind the code (answers_end). */
const char *text_behind(int others);

void show(struct output *shown, const char *text);
void show_until(struct output *shown, const char *from, const char *end);
void show_number(struct output *shown, uint64_t value);
