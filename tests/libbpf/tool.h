// SPDX-License-Identifier: MIT OR Apache-2.0
// What all tools here share: libbpf's messages on standard error, and an end by Ctrl-C.
#pragma once
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static volatile sig_atomic_t exiting;

static void on_signal(int signal)
{
	exiting = signal;
}

// Somebody wants to know how it stands, by SIGUSR1.
static volatile sig_atomic_t asked;

static void on_question(int signal)
{
	asked = signal;
}

static int print_warnings(enum libbpf_print_level level, const char *format, va_list args)
{
	return level == LIBBPF_DEBUG ? 0 : vfprintf(stderr, format, args);
}

static void begin(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	libbpf_set_print(print_warnings);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	signal(SIGUSR1, on_question);
}

#define MUST(condition, what)                                                                    \
	do {                                                                                     \
		if (!(condition)) {                                                              \
			fprintf(stderr, "%s: %s\n", what, strerror(errno));                      \
			return 1;                                                                \
		}                                                                                \
	} while (0)
