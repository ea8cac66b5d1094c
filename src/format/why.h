/* Why bytes of a file, or a change of them, were refused: one phrase that names the structure, the
 * field and the address, for the log line of whoever knows the file and the dataset. */
#ifndef SPARSEFS_FORMAT_WHY_H
#define SPARSEFS_FORMAT_WHY_H

struct why {
    char text[240]; /* valid after an error that says that it is */
};

/* Writes the phrase and returns -EILSEQ. */
int why_damaged(struct why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for what is not damaged but cannot be read by this version, and the phrase begins with
 * that word, "unsupported": returns -EOPNOTSUPP. */
int why_unsupported(struct why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for what a caller asks and cannot have: returns error. */
int why_refused(struct why *why, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
