/* What the unit tests share: a temporary directory around every test program, random numbers that
 * can be repeated, and libhdf5 as the maker of inputs. Include this before anything of cmocka. */
#ifndef TESTS_UNIT_SUPPORT_H
#define TESTS_UNIT_SUPPORT_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#ifdef assert_uint_in_range /* from cmocka 2.0 on, which says that the other is old */
#undef assert_in_range
#define assert_in_range(value, least, most) assert_uint_in_range(value, least, most)
#endif

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* Runs tests() in a child process whose working directory is a new temporary directory, which is
 * removed afterwards, however the child ends. Returns the exit code for main. */
int in_temporary_directory(int (*tests)(void));

/* A command that SPARSEFS_AFTER_TEST gives, if it does, is run in the directory after each test, which
 * fails if that does. */
int end_test(void **state);

#define TEST_MAIN(...)                                                                             \
    static int all_tests(void)                                                                     \
    {                                                                                              \
        struct CMUnitTest tests[] = {__VA_ARGS__};                                                 \
        for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)                                \
            tests[i].teardown_func = end_test;                                                     \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }                                                                                              \
    int main(void)                                                                                 \
    {                                                                                              \
        return in_temporary_directory(all_tests);                                                  \
    }

/* Random numbers. The seed is printed and can be given by the environment variable TEST_SEED. Every
 * thread has its own sequence: a thread that needs one calls random_seed first. */
void random_seed(uint64_t seed);
uint64_t random_next(void);
uint64_t random_below(uint64_t limit);                /* limit > 0 */
uint64_t random_between(uint64_t low, uint64_t high); /* both included */
void random_fill(void *bytes, size_t n);

/* malloc that fails the test instead of returning NULL; for 0 bytes it gives a block, too. The
 * block is exactly as long as asked, so that the address sanitizer guards its end. */
void *allocate(size_t n);

/* Bytes that malloc has given and not got back; 0 of allocators that do not say (sanitizers). */
size_t memory_in_use(void);

/* pthread_create that ends the program where there is no thread to be had: a test that failed there
 * would leave the others behind, which wait, or go on, for ever. */
void start_thread(pthread_t *thread, void *(*work)(void *), void *argument);

/* Waits until a thread, by its number (gettid(2)), waits in the kernel for something. */
void wait_until_it_sleeps(pid_t thread);

/* Where a program wraps openat(2), it wraps io_open_at, too (-Wl,--wrap=io_open_at): then that opens by openat(2),
 * not by openat2(2), for which libc has no function. */
int __wrap_io_open_at(int folder, const char *name, int flags);

/* Keeps the library's messages away from stderr and counts the lines of errors. */
void log_quietly(void);
unsigned log_errors(void);

#endif
