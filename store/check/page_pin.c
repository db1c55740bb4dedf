// A read transaction and the meta page of its commit: the pages of that commit stay as they are.
#include "page_reader.h"
#include "store_internal.h"

// Commits between the start of a read and reading its meta page; a writer cannot win so often in a
// row.
#define PIN_ATTEMPTS_MAX 1000

reef_status reef_pages_pin(reef_pages *pages, reef_store *store, reef_txn **txn, reef_error *err) {
    for (int i = 0; i < PIN_ATTEMPTS_MAX; i++) {
        bool found = false;
        reef_txn_abort(*txn);
        reef_status status = reef_txn_begin(txn, store, REEF_TXN_READ, err);
        // Mostly the newest. But LMDB lets nobody begin on a commit whose meta page is not yet on
        // the disk, which takes long, though all can read it there.
        if (status == REEF_OK)
            status = reef_pages_meta_of(pages, mdb_txn_id((*txn)->lmdb), &found, err);
        if (status != REEF_OK || found) return status;
    }
    return reef_fail(err, REEF_ERR_BUSY, "commits of pool %s do not pause", pages->path);
}
