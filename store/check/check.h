// What the parts of the integrity check share. Private to the store.
#ifndef REEF_CHECK_H
#define REEF_CHECK_H

#include "page_reader.h"
#include "reef_pool_check.h"
#include "store_internal.h"

#define REEF_DAMAGED_MAX 1000 // findings that are kept; counting continues

/** One finding about a record, kept for the remedy. */
typedef struct reef_damaged {
    reef_key key; // its name, if any, is `name`
    char name[REEF_NAME_BYTES_MAX + 1];
    char what[sizeof(((reef_error *)0)->message)];
} reef_damaged;

typedef struct reef_check {
    reef_txn *txn;
    const reef_check_options *options;
    reef_check_report *report;
    reef_error stopped;    // the first walk that could not continue
    reef_error ended;      // the next step could not begin: there is no transaction any more
    bool committed;        // `commit` is known
    reef_commit commit;    // of the present step, as is
    uint64_t last_commit;  // its number; UINT64_MAX when it cannot be read
    reef_damaged *damaged; // (REEF_DAMAGED_MAX)
    size_t damaged_count;
    char last_said[sizeof(((reef_error *)0)->message)];
} reef_check;

/** Report damage, of a record where `key` is not NULL. */
void reef_check_damage(reef_check *c, const reef_key *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/**
 * Something could not be read: that is damage, unless it is only memory that this process lacks.
 */
void reef_check_unreadable(reef_check *c, const reef_key *key, const reef_error *reason);
/** LMDB could not read on: the rest of this walk is unknown, other walks may still succeed. */
void reef_check_stop(reef_check *c, const reef_error *reason);

/**
 * Between two checks that are independent: if the step has lasted its time, end it and continue
 * with the last commit. Views and cursors end with it. False when the check is over (`ended`).
 */
bool reef_check_release_reader(reef_check *c, bool *renewed);

/**
 * Walk all trees of the file, page by page and without LMDB: the form of each page, the order of
 * keys, the counts of each tree, and that every page is used once or free once. Payloads are not
 * read. Fills pages, used, free and lost of the report; each finding names the page, its database
 * and the first record that it has.
 *
 * c      its options and report are used
 * pages  their meta pages are read; their commit is pinned (reef_pages_pin), or nobody writes
 *
 * Returns OK also when damage was found. NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_check_pages(reef_check *c, reef_pages *pages, reef_error *err);
/**
 * reef_check_pages alone, of a pool that nobody writes: all that can be checked of a pool that
 * LMDB cannot open.
 */
REEF_MUST_CHECK reef_status reef_check_pages_of(const char *path,
                                                const reef_check_options *options,
                                                reef_check_report *report,
                                                reef_error *err);
/**
 * Windows of usage against the totals: no expert may have been used more in windows than in all.
 */
void reef_check_usage(reef_check *c);
/** Entries of the journal against each other: no gap, no overlap, their bytes what they were. */
void reef_check_journal(reef_check *c);
/** Find out what helps, when all findings are known. */
void reef_check_remedy(reef_check *c);

/**
 * Is the content of this record known never to change: a sealed generation's, or a snapshot's copy?
 */
static inline bool reef_record_is_sealed(const reef_txn *txn, const reef_key *key) {
    return reef_db_in_generation(key->db) &&
           (key->generation < txn->sealed_count || key->generation >= REEF_SNAPSHOT_GENERATION);
}

// ---- a check in a child process: reading a damaged file may raise a signal ----------------------

/** Checks a pool: reef_store_check after opening it, or a test's stand-in. */
typedef reef_status (*reef_verify_work)(const char *path,
                                        const reef_check_options *options,
                                        reef_check_report *report,
                                        reef_error *err);

/** Run `work` in a child; what it reports arrives here, and a signal becomes REEF_ERR_CORRUPT. */
REEF_MUST_CHECK reef_status reef_verify_in_child(const char *path,
                                                 reef_verify_work work,
                                                 const reef_check_options *options,
                                                 reef_check_report *report,
                                                 reef_error *err);

#endif
