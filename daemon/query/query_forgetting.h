// How well older states and the present one answer for what each generation was trained on: the
// matrix that forgetting is read from, measured on a sample of the pool's reservoir.
#ifndef REEF_QUERY_FORGETTING_H
#define REEF_QUERY_FORGETTING_H

#include "query_thread.h"

/**
 * The matrix as far as it is known. A request spends a bounded time on it, so `complete` may be
 * false, and the next one continues. A complete matrix is kept, and measured again when the pool
 * has changed: at most a twentieth of the time, or a fifth after a seal.
 */
reef_status reef_query_forgetting(reef_query_thread *queries, reef_query *query, reef_error *err);
/**
 * The model of a row ends its read; one that nobody has asked on for a while is closed. Accepts
 * NULL.
 */
void reef_forgetting_unpin(reef_forgetting *forgetting);
void reef_forgetting_free(reef_forgetting *forgetting); // accepts NULL

#endif
