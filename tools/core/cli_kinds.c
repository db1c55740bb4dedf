// See cli_kinds.h.
#include "cli_kinds.h"

reef_status reef_cli_kinds_read(reef_cli_pool *pool, reef_kind_list *out, reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_kind_list){0};
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_kind_list_read(txn, out, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_cli_kinds_read_as_of(const reef_cli_call *cli,
                                      reef_cli_pool *pool,
                                      char name[REEF_NAME_BYTES_MAX + 1],
                                      reef_kind_list *out,
                                      reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_kind_list){0};
    reef_status status = reef_cli_as_of(cli, pool->store, name, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_kind_list_read_as_of(txn, name, out, err);
    reef_txn_abort(txn);
    return status;
}
