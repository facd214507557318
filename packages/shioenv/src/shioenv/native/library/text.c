#include "text.h"

#ifdef __x86_64__

bool begins(const char *text, const char *wanted)
{
    while (*wanted && *text == *wanted) text++, wanted++;
    return !*wanted;
}

const char *find(const char *in, const char *wanted)
{
    while (*in && !begins(in, wanted)) in++;
    return *in ? in : NULL;
}

uint64_t number(const char **text)
{
    uint64_t value = 0;
    while (**text >= '0' && **text <= '9') value = 10 * value + (uint64_t)(*(*text)++ - '0');
    return value;
}

const char *decimal(uint64_t value, char digits[DIGITS])
{
    char *at = digits + DIGITS - 1;
    *at = 0;
    do *--at = (char)('0' + value % 10);
    while (value /= 10);
    return at;
}

const char *text_behind(int others)
{
    const char *at = answers_end;
    while (others) others -= !*at++;
    return at;
}

void show(struct output *shown, const char *text)
{
    while (*text && shown->length < SHOWN) shown->text[shown->length++] = *text++;
}

void show_until(struct output *shown, const char *from, const char *end)
{
    while (from < end && shown->length < SHOWN) shown->text[shown->length++] = *from++;
}

void show_number(struct output *shown, uint64_t value)
{
    char digits[DIGITS];
    show(shown, decimal(value, digits));
}
#endif
