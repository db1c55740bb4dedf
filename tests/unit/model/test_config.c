// The configuration: its table, setting by name, checks across fields, and JSON that gives back the
// same bits.
#include "config_internal.h"
#include "pool.h"
#include "reef_trainer.h"

#include <math.h>
#include <unistd.h>

static void assert_set(reef_config *config, const char *name, const char *value) {
    must(reef_config_set(config, name, value, &why));
}

// The message has to be one line that mentions `words`.
static void assert_message(const reef_error *err, const char *words) {
    assert_null(strchr(err->message, '\n'));
    if (strstr(err->message, words) == NULL) fail_msg("expected '%s' in '%s'", words, err->message);
}

static void assert_set_fails(const char *name, const char *value, const char *words) {
    reef_config config, before;
    reef_config_default(&config);
    before = config;
    assert_int_equal(reef_config_set(&config, name, value, &why), REEF_ERR_INVALID);
    assert_message(&why, words);
    assert_memory_equal(&config, &before, sizeof(config));
}

// ---- defaults and table -------------------------------------------------------------------------

PLAIN_TEST(the_default_is_complete_and_passes_its_check) {
    reef_config config;
    reef_config_default(&config);
    must(reef_config_check(&config, &why));
    assert_string_equal(reef_config_word(&config, "model"), "lm");
    assert_string_equal(config.ffw, "p");
    assert_int_equal(config.seed, 1);
    assert_int_equal(config.d_model, 64);
    assert_int_equal(config.heads, 1);
    assert_int_equal(config.topk, 64);
    assert_true(config.batch_norm);
    assert_string_equal(reef_config_word(&config, "boundaries"), "contexts");
    assert_true(config.learning_rate == 4e-3f && config.epsilon == 1e-8f);
}

PLAIN_TEST(the_table_covers_every_byte_of_the_configuration_once) {
    uint8_t covered[sizeof(reef_config)] = {0};
    size_t count = 0, bytes = 0;
    const reef_config_field *fields = reef_config_fields(&count);
    assert_true(count <= 33); // what nobody turns is a constant
    for (size_t i = 0; i < count; i++) {
        for (size_t b = 0; b < fields[i].bytes; b++)
            assert_int_equal(covered[fields[i].offset + b]++, 0);
        bytes += fields[i].bytes;
    }
    // What is left is padding: less than the widest alignment for each field that may need it.
    assert_true(sizeof(reef_config) - bytes < 4 * sizeof(uint64_t));
    for (size_t b = 0, gap = 0; b < sizeof(reef_config); b++) {
        gap = covered[b] ? 0 : gap + 1;
        assert_true(gap < sizeof(uint64_t));
    }
}

PLAIN_TEST(every_default_is_its_own_standard_text) {
    reef_config standard, set;
    reef_config_default(&standard);
    memset(&set, 0, sizeof(set));
    size_t count = 0;
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++) {
        assert_set(&set, fields[i].name, fields[i].standard);
        assert_true(strlen(fields[i].help) > 0);
        assert_null(strchr(fields[i].help, '\n'));
    }
    assert_memory_equal(&standard, &set, sizeof(set));
}

// ---- set ----------------------------------------------------------------------------------------

PLAIN_TEST(fields_are_set_by_name_with_either_dash) {
    reef_config config;
    reef_config_default(&config);
    assert_set(&config, "d-model", "256");
    assert_int_equal(config.d_model, 256);
    assert_set(&config, "d_model", "64");
    assert_int_equal(config.d_model, 64);
    assert_set(&config, "net-share", "0.25");
    assert_true(config.net_share == 0.25f);
    assert_set(&config, "boundaries", "given");
    assert_string_equal(reef_config_word(&config, "boundaries"), "given");
    assert_set(&config, "batch-norm", "off");
    assert_false(config.batch_norm);
    assert_set(&config, "batch_norm", "true");
    assert_true(config.batch_norm);
    assert_set(&config, "ffw", "ppdp");
    assert_string_equal(config.ffw, "ppdp");
    assert_set(&config, "ffw", "pkdm");
    assert_string_equal(config.ffw, "pkdm");
    assert_set(&config, "ffw", "d");
    assert_string_equal(config.ffw, "d");
    assert_set(&config, "seed", "9007199254740991");
    assert_true(config.seed == 9007199254740991u);
    assert_set(&config, "learning_rate", "1e-4");
    assert_true(config.learning_rate == 1e-4f);
}

PLAIN_TEST(bounds_themselves_are_allowed_and_what_lies_beyond_is_not) {
    size_t count = 0;
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++) {
        bool integer = strcmp(fields[i].type, "integer") == 0;
        if (!integer && strcmp(fields[i].type, "number") != 0) continue;
        reef_config config;
        char text[64];
        snprintf(text, sizeof(text), "%.17g", fields[i].low);
        reef_config_default(&config);
        assert_set(&config, fields[i].name, text);
        snprintf(text, sizeof(text), "%.17g", fields[i].high);
        assert_set(&config, fields[i].name, text);
        snprintf(text, sizeof(text), "%.17g",
                 integer ? fields[i].high + 1 : fields[i].high * 1.001);
        assert_set_fails(fields[i].name, text, fields[i].name);
        snprintf(text, sizeof(text), "%.17g", fields[i].low - 1);
        assert_set_fails(fields[i].name, text, fields[i].name);
    }
}

PLAIN_TEST(values_that_are_no_such_thing_are_refused) {
    static const char *const INTEGERS[] = {"",    " 4",  "4 ",   "-1",   "+4",
                                           "4.0", "1e2", "0x10", "four", "99999999999999999999"};
    static const char *const NUMBERS[] = {"",       " 1", "1 ",  "nan",  "inf",
                                          "0x1p-3", "1e", "one", "1e999"};
    for (size_t i = 0; i < sizeof(INTEGERS) / sizeof(INTEGERS[0]); i++)
        assert_set_fails("layers", INTEGERS[i], "layers");
    for (size_t i = 0; i < sizeof(NUMBERS) / sizeof(NUMBERS[0]); i++)
        assert_set_fails("clip", NUMBERS[i], "clip");
    assert_set_fails("batch_norm", "maybe", "true or false");
    assert_set_fails("boundaries", "maybe", "must be contexts or given");
    assert_set_fails("ffw", "px", "m (mixture of experts) or d (dense)");
    assert_set_fails("ffw", "", "letters p (PEER), k (product-key memory)");
    assert_set_fails("subkeys", "own", "must be shared or head");
    assert_set_fails("moe_experts", "0", "1 to 1024");
    assert_set_fails("ffw", "ppppppppppppppppppppppppppppppppp", "at most 32");
    assert_set_fails("model", "image", "must be lm or layer");
    assert_set_fails("expert", "swiglu_of_many_letters", "must be gelu, relu or glu");
    assert_set_fails("expert", "", "must be gelu, relu or glu");
    assert_set_fails("expert", "GELU", "must be gelu, relu or glu");
    assert_set_fails("score", "gelu", "must be softmax, sigmoid or relu");
    assert_set_fails("seal_dtype", "f16", "must be f32 or int8");
    assert_set_fails("boundary_mark", "a\nb", "one line of printable ASCII");
    assert_set_fails("boundary_mark", "\xc3\xa9", "one line of printable ASCII");
    assert_set_fails("boundary_mark",
                     "0123456789012345678901234567890123456789012345678901234567890123",
                     "at most 63");
    assert_set_fails("layers", "33", "1 to 32");
}

PLAIN_TEST(amounts_of_bytes_may_have_a_unit) {
    reef_config config;
    reef_config_default(&config);
    assert_set(&config, "memory", "64M");
    assert_int_equal(config.memory, 64 << 20);
    assert_set(&config, "memory", "8388608");
    assert_int_equal(config.memory, 8388608);
    assert_set(&config, "memory", "0");
    assert_int_equal(config.memory, 0);
    assert_set_fails("memory", "64MB", "with a unit, such as 64M");
    assert_set_fails("memory", "M", "with a unit, such as 64M");
    assert_set_fails("memory", "1.5M", "with a unit, such as 64M");
    assert_set_fails("memory", "65G", "must be 0 to 68719476736");
    assert_set_fails("memory", "99999999999T", "must be an integer");
    assert_set_fails("layers", "4K", "must be an integer");
}

PLAIN_TEST(an_unknown_name_suggests_the_closest_one) {
    assert_set_fails("d-modle", "1", "did you mean d_model?");
    assert_set_fails("learning-rat", "1", "did you mean learning_rate?");
    assert_set_fails("headss", "1", "did you mean heads?");
    assert_set_fails("memor", "1", "did you mean memory?");
    assert_set_fails("zzzzzzzzzzzzzz", "1", "no setting is called 'zzzzzzzzzzzzzz'");
    assert_set_fails("", "1", "no setting is called ''");
    reef_config config;
    char name[400];
    memset(name, 'd', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(reef_config_set(&config, name, "1", &why), REEF_ERR_INVALID);
    assert_null(strstr(why.message, "did you mean"));
}

// ---- check --------------------------------------------------------------------------------------

typedef struct misfit {
    const char *settings[4][2]; // name, value
    const char *words;
} misfit;

PLAIN_TEST(sizes_that_do_not_fit_are_named_with_what_to_do) {
    static const misfit MISFITS[] = {
        {{{"d_key", "31"}}, "d_key 31 is odd"},
        {{{"topk", "65"}}, "topk 65 is more than the 64 sub-keys of side"},
        {{{"side", "32"}, {"topk", "33"}}, "topk 33 is more than the 32 sub-keys of side"},
        {{{"d_model", "131"}}, "d_model 131 is not a multiple of attention_heads 2"},
        {{{"ffw", "pp"}}, "ffw 'pp' has 2 letters for 1 layers"},
        {{{"ffw", "ppppp"}}, "ffw 'ppppp' has 5 letters for 1 layers"},
        {{{"experts_max", "4095"}}, "experts_max 4095 is less than the 4096 experts"},
        {{{"layers", "4"}, {"ffw", "pdpd"}, {"experts_max", "8191"}},
         "than the 8192 experts of the first"},
        {{{"layers", "4"}, {"ffw", "kdmd"}, {"experts_max", "4095"}},
         "less than the 4096 experts of the first"},
        {{{"ffw", "m"}, {"moe_experts", "1024"}, {"d_ffw", "1024"}, {"d_model", "128"}},
         "more values than a pool keeps of one mixture, 89478485"},
        {{{"model", "layer"}, {"side", "8"}, {"topk", "4"}, {"experts_max", "63"}},
         "experts_max 63 is less than the 64 experts of the first"},
        {{{"model", "layer"}, {"topk", "65"}}, "topk 65 is more than the 64 sub-keys"},
        {{{"batch", "1024"}, {"context", "4096"}, {"heads", "64"}}, "make the batch smaller"},
    };
    for (size_t i = 0; i < sizeof(MISFITS) / sizeof(MISFITS[0]); i++) {
        reef_config config;
        reef_config_default(&config);
        for (size_t s = 0; s < 4 && MISFITS[i].settings[s][0] != NULL; s++)
            assert_set(&config, MISFITS[i].settings[s][0], MISFITS[i].settings[s][1]);
        reef_config_reduce(&config);
        assert_int_equal(reef_config_check(&config, &why), REEF_ERR_INVALID);
        assert_message(&why, MISFITS[i].words);
    }
}

// As libreef and `reef init` choose: given values before and after the fit.
static void make(reef_config *config, const char *name, const char *value) {
    reef_config_default(config);
    for (int pass = 0; pass < 2; pass++) {
        if (name != NULL) assert_set(config, name, value);
        if (pass == 0) reef_config_fit(config);
    }
}

PLAIN_TEST(a_pool_of_bytes_is_made_with_a_context_memory) {
    reef_config config, standard;
    make(&config, NULL, NULL);
    assert_int_equal(config.memory, 1 << 30);
    assert_true(config.net_share == 0.5f);
    must(reef_config_check(&config, &why));
    // A pool is made with what every field says.
    reef_config_default(&standard);
    assert_memory_equal(&config, &standard, sizeof(config));
    make(&config, "memory", "8M");
    assert_int_equal(config.memory, 8 << 20);
    assert_true(config.net_share == 0.5f);
    make(&config, "net_share", "1");
    assert_int_equal(config.memory, 1 << 30);
    assert_true(config.net_share == 1.0f);
}

PLAIN_TEST(topk_is_at_most_the_side_unless_it_was_given) {
    static const struct {
        const char *name, *value;
        uint32_t topk;
    } CASES[] = {
        {"side", "32", 32}, {"side", "128", 64}, {"net_share", "1", 64}, {"memory", "0", 64}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        reef_config config;
        make(&config, CASES[i].name, CASES[i].value);
        assert_int_equal(config.topk, CASES[i].topk);
        assert_int_equal(reef_config_check(&config, NULL), REEF_OK);
    }
    // A topk that was given is refused, not lowered.
    reef_config config;
    make(&config, "topk", "65");
    assert_int_equal(config.topk, 65);
    assert_int_equal(reef_config_check(&config, &why), REEF_ERR_INVALID);
    assert_message(&why, "topk 65 is more than the 64 sub-keys of side");
}

PLAIN_TEST(other_pools_are_made_without_one) {
    static const char *const OTHERS[][2] = {{"memory", "0"}, {"model", "layer"}};
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        reef_config config;
        make(&config, OTHERS[i][0], OTHERS[i][1]);
        assert_int_equal(config.memory, 0);
        assert_true(config.net_share == 1.0f);
        assert_int_equal(config.boundaries, REEF_BOUNDARIES_GIVEN); // nobody finds any
    }
}

PLAIN_TEST(check_finds_values_that_were_never_set_by_name) {
    reef_config config;
    reef_config_default(&config);
    config.heads = 0;
    assert_int_equal(reef_config_check(&config, &why), REEF_ERR_INVALID);
    assert_message(&why, "heads is 0");
    reef_config_default(&config);
    config.learning_rate = NAN;
    assert_int_equal(reef_config_check(&config, &why), REEF_ERR_INVALID);
    assert_message(&why, "learning_rate");
    reef_config_default(&config);
    memset(config.ffw, 'p', sizeof(config.ffw));
    assert_int_equal(reef_config_check(&config, &why), REEF_ERR_INVALID);
    assert_message(&why, "ffw");
    reef_config_default(&config);
    config.seal_dtype = (reef_seal_dtype)7; // none of its words
    assert_int_equal(reef_config_check(&config, &why), REEF_ERR_INVALID);
    assert_message(&why, "seal_dtype is '', but must be f32 or int8");
    reef_config_default(&config);
    strcpy(config.ffw, "q");
    assert_int_equal(reef_config_check(&config, &why), REEF_ERR_INVALID);
    assert_message(&why, "ffw is 'q'");
}

PLAIN_TEST(one_letter_per_layer_is_a_valid_ffw) {
    reef_config config;
    reef_config_default(&config);
    assert_set(&config, "layers", "4");
    assert_set(&config, "ffw", "ddpd");
    must(reef_config_check(&config, &why));
}

// ---- JSON ---------------------------------------------------------------------------------------

static void assert_text_gives_back_the_same_bits(const reef_config *config) {
    reef_config parsed;
    char *json = reef_config_format(config);
    assert_non_null(json);
    memset(&parsed, 0xff, sizeof(parsed));
    if (reef_config_parse(&parsed, json, strlen(json), &why) != REEF_OK)
        fail_msg("%s: %s", why.message, json);
    assert_memory_equal(config, &parsed, sizeof(parsed));
    free(json);
}

PLAIN_TEST(text_gives_back_the_same_bits) {
    reef_config config;
    reef_config_default(&config);
    config.layers = 4;
    assert_text_gives_back_the_same_bits(&config);
    config.seed = 9007199254740991;
    config.batch_norm = false;
    assert_set(&config, "boundaries", "given");
    strcpy(config.ffw, "pdpd");
    assert_set(&config, "expert", "glu");
    assert_set(&config, "score", "sigmoid");
    assert_set(&config, "seal_dtype", "int8");
    // Neighbours of awkward numbers: every float has to survive its decimal text.
    float value = 0.1f;
    for (size_t i = 0; i < 200; i++) {
        config.learning_rate = value = nextafterf(value, 1);
        config.expert_rate = nextafterf(16777216.0f / (float)(i + 17000), 0);
        config.epsilon = nextafterf(1e-8f / (float)(i + 1), 1);
        config.net_share = 1.0f - 1.0f / (float)(i + 200);
        assert_text_gives_back_the_same_bits(&config);
    }
}

PLAIN_TEST(text_is_readable) {
    reef_config config;
    reef_config_default(&config);
    char *json = reef_config_format(&config);
    assert_non_null(json);
    assert_non_null(strstr(json, "\"learning_rate\": 0.004,"));
    assert_non_null(strstr(json, "\"d_model\": 64,"));
    assert_non_null(strstr(json, "\"batch_norm\": true,"));
    free(json);
}

// The default's text with one part replaced.
static char *edited(const char *part, const char *replacement) {
    reef_config config;
    reef_config_default(&config);
    char *json = reef_config_format(&config), *at = strstr(json, part);
    assert_non_null(at);
    size_t bytes = strlen(json) + strlen(replacement) + 1;
    char *text = room(bytes);
    snprintf(text, bytes, "%.*s%s%s", (int)(at - json), json, replacement, at + strlen(part));
    free(json);
    return text;
}

static void assert_edit_fails(const char *part, const char *replacement, const char *words) {
    reef_config config, before;
    char *json = edited(part, replacement);
    reef_config_default(&config);
    before = config;
    assert_int_equal(reef_config_parse(&config, json, strlen(json), &why), REEF_ERR_INVALID);
    assert_message(&why, words);
    assert_memory_equal(&config, &before, sizeof(config));
}

PLAIN_TEST(text_with_a_missing_unknown_or_wrong_key_is_refused_by_name) {
    assert_edit_fails("\"d_model\": 64, ", "", "does not set d_model");
    assert_edit_fails("\"expert\": \"gelu\", ", "", "does not set expert");
    assert_edit_fails("\"expert\": \"gelu\"", "\"expert\": \"swish\"", "gelu, relu or glu");
    assert_edit_fails("\"d_model\"", "\"d_modell\"", "did you mean d_model?");
    assert_edit_fails("\"d_model\"", "\"d-model\"", "did you mean d_model?");
    assert_edit_fails("\"d_model\": 64", "\"d_model\": 64, \"d_model\": 128", "not JSON");
    assert_edit_fails("\"d_model\": 64", "\"d_model\": \"128\"", "d_model");
    assert_edit_fails("\"d_model\": 64", "\"d_model\": 64.5", "d_model");
    assert_edit_fails("\"d_model\": 64", "\"d_model\": -128", "d_model is -128");
    assert_edit_fails("\"d_model\": 64", "\"d_model\": 8589934720", "d_model is 8589934720");
    assert_edit_fails("\"boundaries\": \"contexts\"", "\"contexts\": 1", "contexts");
    assert_edit_fails("\"model\": \"lm\"", "\"model\": 7", "model");
    assert_edit_fails("\"clip\": 1.0", "\"clip\": null", "clip");
    assert_edit_fails("\"d_key\": 32", "\"d_key\": 31", "d_key 31 is odd");
    assert_edit_fails("{", "", "not JSON");
    assert_edit_fails("{", "[{", "not JSON");
}

PLAIN_TEST(whole_numbers_may_be_written_without_a_point) {
    reef_config config;
    char *json = edited("\"clip\": 1.0", "\"clip\": 2");
    must(reef_config_parse(&config, json, strlen(json), &why));
    assert_true(config.clip == 2);
}

PLAIN_TEST(text_that_is_no_object_is_refused) {
    static const char *const TEXTS[] = {"", "[]", "7", "\"lm\"", "{}", "{", "nonsense"};
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        reef_config config;
        assert_int_equal(reef_config_parse(&config, TEXTS[i], strlen(TEXTS[i]), &why),
                         REEF_ERR_INVALID);
        assert_null(strchr(why.message, '\n'));
    }
}

// ---- in a pool ----------------------------------------------------------------------------------

POOL_TEST(a_pool_gives_back_the_configuration_that_was_put) {
    reef_config config, read;
    reef_config_default(&config);
    assert_set(&config, "d_model", "64");
    char *json = reef_config_format(&config);
    reef_key key = {.db = REEF_DB_META, .name = REEF_CONFIG_RECORD};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    assert_int_equal(reef_config_read(txn, &read, &why), REEF_ERR_NOT_FOUND);
    must(reef_record_put(txn, &key, REEF_JSON, json, strlen(json), &why));
    must(reef_config_read(txn, &read, &why));
    assert_memory_equal(&config, &read, sizeof(read));
    reef_txn_abort(txn);
    free(json);
}

RUN_TESTS
