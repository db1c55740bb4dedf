// Entries of the journal as they lie in the pool; see journal.c. Private to the store.
#ifndef REEF_JOURNAL_H
#define REEF_JOURNAL_H

#include "reef_push_journal.h"
#include "store_internal.h"

#define REEF_JOURNAL_HEAD_BYTES 36 // of an entry, before its id
#define REEF_JOURNAL_SHIFT_SEQUENCE UINT64_MAX
// of the names of what snapshots keep; no live source has one that begins so
#define REEF_JOURNAL_IDS_PREFIX "ids:"

/** One entry. Pointers into the map, until the transaction ends. */
typedef struct reef_journal_entry {
    uint64_t sequence;    // 1, 2, ... of its source, without a gap
    uint64_t begin;       // position of its first byte in the journal
    uint64_t length;      // of its bytes, 1 or more
    uint64_t unix_ms;     // when it was accepted
    uint64_t content;     // XXH3-64 of its bytes
    const char *id;       // not zero-terminated
    uint32_t id_bytes;    // 0: none
    const uint8_t *bytes; // NULL: trained and trimmed
} reef_journal_entry;

static inline uint64_t reef_journal_end(const reef_journal_entry *entry) {
    return entry->begin + entry->length;
}

/** Sequences of the entries that a source has; `last` < `first` if it has none. */
typedef struct reef_journal_span {
    uint64_t first, last;
    uint64_t whole; // the first that has its bytes; last + 1: none
    uint64_t shift; // position in the journal less position in the source
} reef_journal_span;

// Of a position in the journal. Where the source was gone back it can lie before the source's first
// byte: 0 then.
static inline uint64_t reef_journal_in_source(const reef_journal_span *all, uint64_t at) {
    return at > all->shift ? at - all->shift : 0;
}

static inline bool reef_journal_is_empty(const reef_journal_span *all) {
    return all->last < all->first;
}

REEF_MUST_CHECK reef_status reef_journal_find(reef_txn *txn,
                                              const char *source,
                                              reef_journal_span *out,
                                              reef_error *err);
/**
 * One entry without its checksum, to search positions among entries of up to a mebibyte.
 */
REEF_MUST_CHECK reef_status reef_journal_peek(reef_txn *txn,
                                              const char *source,
                                              uint64_t sequence,
                                              reef_journal_entry *entry,
                                              reef_error *err);
/** The same with its checksum. */
REEF_MUST_CHECK reef_status reef_journal_entry_view(reef_txn *txn,
                                                    const char *source,
                                                    uint64_t sequence,
                                                    reef_journal_entry *entry,
                                                    reef_error *err);
/** Write an entry. Pointers into the map, its own too, do not outlive that. */
REEF_MUST_CHECK reef_status reef_journal_store(reef_txn *txn,
                                               const char *source,
                                               const reef_journal_entry *entry,
                                               reef_error *err);

/** Take a payload apart. False if the payload is not an entry. */
bool reef_journal_entry_parse(reef_journal_entry *entry,
                              uint64_t sequence,
                              const void *payload,
                              size_t bytes);
/** What comes before the id, as it is written. */
void reef_journal_head_put(uint8_t out[REEF_JOURNAL_HEAD_BYTES], const reef_journal_entry *entry);
uint64_t reef_journal_content(const uint8_t *bytes, size_t count);

/**
 * Keep the ids of a source for the snapshot with this copy of the open generation; nothing where it
 * has no entry.
 */
REEF_MUST_CHECK reef_status reef_journal_ids_keep(reef_txn *txn,
                                                  const char *source,
                                                  uint32_t copy,
                                                  reef_error *err);
/** Whether a payload is what a snapshot keeps so. */
bool reef_journal_ids_are_sound(const void *payload, size_t bytes);
/** The sequence from which on ids are known. */
static inline uint64_t reef_journal_known(const reef_journal_span *all) {
    uint64_t known = all->last > REEF_JOURNAL_IDS_MAX ? all->last - REEF_JOURNAL_IDS_MAX + 1 : 1;
    return known > all->first ? known : all->first; // it may hold fewer entries
}

/** The last entry, and where the whole ones begin, of a journal that is not empty. */
REEF_MUST_CHECK reef_status reef_journal_ends(reef_txn *txn,
                                              const char *source,
                                              const reef_journal_span *all,
                                              reef_journal_entry *last,
                                              uint64_t *begin,
                                              reef_error *err);

#endif
