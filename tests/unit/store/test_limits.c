// The most that a pool can hold, and one more.

#include "pool.h"
#include "test.h"

static reef_generation_record generation_of(uint32_t number, uint32_t side) {
    return (reef_generation_record){.generation = number,
                                    .parent = number == 0 ? 0 : number - 1,
                                    .side = side,
                                    .first_id = (uint64_t)number << 32,
                                    .dtype = REEF_F32};
}

POOL_TEST(a_pool_holds_all_generations_and_refuses_one_more) {
    uint32_t count;
    assert_true(REEF_GENERATION_COUNT_MAX >= 65000);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    for (uint32_t g = 0; g < REEF_GENERATION_COUNT_MAX; g++) {
        const reef_generation_record generation = generation_of(g, REEF_GENERATION_SIDE_MAX);
        must(reef_generation_put(txn, &generation, &why));
        must(reef_generation_seal(txn, g, g, g, &why));
    }
    const reef_generation_record more = generation_of(REEF_GENERATION_COUNT_MAX, 4);
    must_fail(reef_generation_put(txn, &more, &why), REEF_ERR_INVALID,
              "cannot write generation 65536: a pool has at most 65536");
    const reef_key key = {.db = REEF_DB_TENSORS, .generation = more.generation, .name = "w"};
    must_fail(reef_record_put(txn, &key, REEF_BYTES, "x", 1, &why), REEF_ERR_INVALID,
              "a pool has at most 65536 generations");
    pool_commit(txn, 1);
    pool_reopen(f);
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_generation_count(txn, &count, &why));
    assert_int_equal(count, REEF_GENERATION_COUNT_MAX);
    reef_generation_record last;
    must(reef_generation_read(txn, count - 1, &last, &why));
    assert_true(last.sealed);
    assert_true(last.first_id == (uint64_t)65535 << 32);
    reef_txn_abort(txn);
    assert_int_equal(pool_check(f->store).generations, REEF_GENERATION_COUNT_MAX);
}

POOL_TEST(a_generation_has_ids_of_32_bits_and_no_more) {
    uint8_t found = 0;
    assert_true((uint64_t)REEF_GENERATION_SIDE_MAX * REEF_GENERATION_SIDE_MAX == UINT64_C(1) << 32);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    reef_generation_record generation = generation_of(0, REEF_GENERATION_SIDE_MAX + 1);
    must_fail(reef_generation_put(txn, &generation, &why), REEF_ERR_INVALID,
              "side 65537 is not 1 to 65536");
    generation.side--;
    must(reef_generation_put(txn, &generation, &why));
    const reef_key last = {.db = REEF_DB_EXPERTS, .layer = 31, .block = UINT32_MAX}; // of one row
    pool_put(txn, &last, "z", 1);
    pool_commit(txn, 1);
    pool_reopen(f);
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_record_read(txn, &last, &found, 1, &why));
    assert_int_equal(found, 'z');
    reef_txn_abort(txn);
    pool_check(f->store);
}

RUN_TESTS
