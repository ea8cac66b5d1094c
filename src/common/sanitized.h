/* Whether gcc's or clang's address, thread or memory sanitizer is built in: IS_SANITIZED is 1 or 0.
 * An address space checker maps terabytes, and tells what it finds by calls that may be shut off.
 */
#ifndef SPARSEFS_COMMON_SANITIZED_H
#define SPARSEFS_COMMON_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define IS_SANITIZED 1
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED 0
#endif

#endif
