// What a watched program did to pools' data files, one event after the other in one file: watch.c
// writes them, history.c reads them. An event is this header and `payload_bytes` bytes.
#ifndef EVENT_H
#define EVENT_H

#include <stdint.h>

typedef enum event_kind {
    EVENT_NAME = 1,  // a file that was not seen before; payload: its path
    EVENT_WRITE,     // payload: the bytes at `offset`
    EVENT_WRITE_NOW, // the same, durable when it returned (O_DSYNC)
    EVENT_SYNC,      // all writes so far are durable
    EVENT_TRUNCATE,  // to `offset` bytes
    EVENT_RENAME,    // payload: the new path
    EVENT_SYNC_DIR,  // payload: the directory's path; its names so far are durable
    // mdb_txn_commit returned: `offset` is the number of the commit, payload its root hash
    EVENT_COMMIT,
    EVENT_UNKNOWN // the file was changed in a way that is not watched
} event_kind;

typedef struct event_header {
    uint32_t kind;
    uint32_t payload_bytes;
    uint64_t file; // its inode
    uint64_t offset;
} event_header;

#endif
