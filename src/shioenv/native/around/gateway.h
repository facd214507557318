/* The web server at the other end of the input's cable. */
#pragma once

/* Answers HTTP/1.1 on `listener` with the files beneath `root`, one connection at a time, for ever. Every
 * answer depends on the request and the files alone: the date it gives is `date`. */
void serve_web(int listener, int root, const char *date) __attribute__((noreturn));
