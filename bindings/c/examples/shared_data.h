/* What Alice and Bob share. */
struct data {
    char greeting[32];
    const char *word; /* A pointer into the segment: true in both. */
};
