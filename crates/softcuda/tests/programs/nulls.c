/* Makes the calls that are listed on standard input: a function's name and its arguments, numbers or `p` for a pointer to
 * zeroes. None may crash, hang or panic; each answers with an error code, or does nothing. A child makes the calls, and another
 * one goes on behind what ended it. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef long function(long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long);

enum { MOST = 40000 };
static char *lines[MOST];
static volatile int *at;
static char buffer[1 << 16] __attribute__((aligned(4096)));

static function *find(void *library, const char *name) { return (function *)dlsym(library, name); }

static long call(function *called, const long *a)
{
	return called(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
}

static void call_all(const char *library, int first, int count)
{
	void *handle = dlopen(library, RTLD_NOW), *context = NULL;
	function *current = find(handle, "cuCtxSetCurrent");
	long none[16] = { 0 }, into[16] = { (long)&context }, made[16] = { 0 };

	if (current) {
		call(find(handle, "cuInit"), none);
		call(find(handle, "cuCtxCreate_v2"), into);
		made[0] = (long)context;
	}
	for (int i = first; i < count; i++) {
		char line[400], *rest, *name;
		long a[16] = { 0 };

		strcpy(line, lines[i]);
		name = strtok_r(line, " ", &rest);
		for (int n = 0; n < 16; n++) {
			char *word = strtok_r(NULL, " ", &rest);
			if (!word)
				break;
			a[n] = *word == 'p' ? (long)buffer : strtol(word, NULL, 0);
		}
		memset(buffer, 0, sizeof buffer);
		if (current)
			call(current, made);
		*at = i;
		alarm(10);
		if ((unsigned)call(find(handle, name), a) == 999)
			printf("%s: answers 999\n", lines[i]);
	}
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	static char line[400];
	int count = 0, first = 0, status;

	at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	while (count < MOST && fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		lines[count++] = strdup(line);
	}
	while (first < count) {
		fflush(stdout);
		pid_t child = fork();
		if (child == 0)
			call_all(argv[1], first, count);
		waitpid(child, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			break;
		printf("%s: ended with %#x\n", lines[*at], status);
		first = *at + 1;
	}
	printf("%d calls\n", count);
	return argc != 2;
}
