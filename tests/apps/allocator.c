// An allocator by LD_PRELOAD, in place of libc's: blocks of powers of two out of regions of its own. It counts, and at the end says on standard error how many
// blocks it gave and how often it was given back something that is none of them.
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GIVEN 0x57424e4556494721ULL
#define FREED 0x57424f4e45474f21ULL
#define REGION (4ULL << 20)

// In front of what is given.
struct block {
	uint64_t mark;
	// Of the whole block, and where that begins; a block that is free begins with the next one.
	uint32_t class;
	uint32_t offset;
};

static atomic_flag lock = ATOMIC_FLAG_INIT;
static void *free_blocks[64];
static char *region, *region_end;
static atomic_ulong given, wrong;

static void take(void)
{
	while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
		;
}

static void leave(void) { atomic_flag_clear_explicit(&lock, memory_order_release); }

static void *map(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

// A block of 2^class bytes; large ones are mapped each by itself and kept when they are free.
static char *block_of(unsigned class)
{
	size_t bytes = 1ULL << class;
	char *at;

	take();
	at = free_blocks[class];
	if (at) {
		free_blocks[class] = *(void **)at;
	} else if (bytes > REGION / 4) {
		at = map(bytes);
	} else {
		if ((size_t)(region_end - region) < bytes) {
			region = map(REGION);
			region_end = region ? region + REGION : NULL;
		}
		at = region;
		region += at ? bytes : 0;
	}
	leave();
	return at;
}

static void *get(size_t align, size_t bytes)
{
	unsigned class = 5;
	char *start, *at;
	struct block *block;

	if (align < 16)
		align = 16;
	if (bytes > 1ULL << 46 || align > 1ULL << 30) {
		errno = ENOMEM;
		return NULL;
	}
	while (1ULL << class < bytes + align + sizeof(*block))
		class++;
	start = block_of(class);
	if (!start) {
		errno = ENOMEM;
		return NULL;
	}
	at = (char *)(((uintptr_t)start + sizeof(*block) + align - 1) & ~(uintptr_t)(align - 1));
	block = (struct block *)at - 1;
	*block = (struct block){ GIVEN, class, (uint32_t)(at - start) };
	atomic_fetch_add(&given, 1);
	return at;
}

static struct block *own(void *at)
{
	struct block *block = (struct block *)at - 1;

	if ((uintptr_t)at % 16 == 0 && block->mark == GIVEN)
		return block;
	atomic_fetch_add(&wrong, 1);
	return NULL;
}

static size_t room(const struct block *block) { return (1ULL << block->class) - block->offset; }

void *malloc(size_t bytes) { return get(16, bytes); }

void free(void *at)
{
	struct block *block = at ? own(at) : NULL;
	char *start;

	if (!block)
		return;
	block->mark = FREED;
	start = (char *)at - block->offset;
	take();
	*(void **)start = free_blocks[block->class];
	free_blocks[block->class] = start;
	leave();
}

void *calloc(size_t count, size_t each)
{
	size_t bytes;
	void *at;

	if (__builtin_mul_overflow(count, each, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	// Not malloc: the compiler makes calloc of that and a memset.
	at = get(16, bytes);
	return at ? memset(at, 0, bytes) : NULL;
}

void *realloc(void *at, size_t bytes)
{
	struct block *block = at ? own(at) : NULL;
	void *to;

	if (!block)
		return at ? NULL : malloc(bytes);
	if (bytes && bytes <= room(block))
		return at;
	to = bytes ? malloc(bytes) : NULL;
	if (to)
		memcpy(to, at, room(block) < bytes ? room(block) : bytes);
	if (to || !bytes)
		free(at);
	return to;
}

void *memalign(size_t align, size_t bytes) { return get(align, bytes); }

void *aligned_alloc(size_t align, size_t bytes) { return get(align, bytes); }

void *valloc(size_t bytes) { return get(4096, bytes); }

int posix_memalign(void **to, size_t align, size_t bytes)
{
	void *at = get(align, bytes);

	if (!at)
		return ENOMEM;
	*to = at;
	return 0;
}

size_t malloc_usable_size(void *at)
{
	struct block *block = at ? own(at) : NULL;

	return block ? room(block) : 0;
}

// Each process says so itself: what is forked has its parent's counts, too.
__attribute__((destructor)) static void say(void)
{
	char text[160];
	int bytes = snprintf(text, sizeof(text), "allocator: %s: %s, %lu wrong\n", program_invocation_short_name,
			     atomic_load(&given) > 100 ? "more than 100 blocks" : "few blocks", atomic_load(&wrong));

	if (bytes > 0 && write(2, text, (size_t)bytes) < 0)
		return;
}
