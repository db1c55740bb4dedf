// See recognition.h. Chosen on 77 kinds of text of 84 kB in one stream (docs/LEARNING.md).
#include "recognition.h"
#include "candidates.h"
#include "kind_memories.h"
#include "reef_json_build.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 2048
#define HELD_MAX 32 // pieces, then they are the current kind's
_Static_assert(PIECE_BYTES <= REEF_FAMILIARITY_BYTES_MAX, "a piece is looked at as a whole");

// Units of familiarity, which is in 1/256 of a bit.
#define SPREAD_MIN 55.0         // of a level; real text varies more
#define SPREAD_YOUNG 369.0      // of the level after one piece
#define UNKNOWN_LEVEL (-2214.0) // of a kind of which no piece was counted yet
#define UNKNOWN_SPREAD 738.0
#define DROP_MIN 369.0 // below the level, where nobody's text is

// A level is taken over the last quarter of a kind's pieces, at most sixteen: a young kind's own
// text grows familiar quickly.
#define LEVEL_YOUNG 2.0
#define LEVEL_SHARE 4
#define LEVEL_RATE 16
#define LEVEL_WARMUP 4 // pieces that a kind learns before anything of it is doubted
#define LEVEL_CLIP 4.0 // mean deviations: what is further off moves the level no more

// Deviations from a level, in units of its spread.
#define ASKED 1.5          // from here on others are asked
#define STRANGE 2.0        // and here it counts as not known
#define STRANGE_MAX 8.0    // times that; more proves no more
#define FAMILIAR_AGAIN 2.0 // what a piece in range takes away from what was proved
#define LEAD 8.0           // by which a kind has to know all that is held better
#define BETTER 256.0       // units of familiarity that count like a spread
#define LEAD_PIECE 0.5     // less, each piece: who is current stays

#define NEW_PIECES_MIN 2 // of a new kind, or a share of what the current one has learned
#define NEW_PIECES_MAX 16
#define NEW_SHARE 0.2
#define NEW_MEAN 1.5 // times STRANGE, the mean of so many

typedef struct reef_recognition {
    reef_candidates candidates;
    bool is_empty;            // the current kind: its memory has learned less than a piece
    double current[HELD_MAX]; // deviations of the current kind
    double current_score[HELD_MAX];
    double deviations[REEF_CANDIDATES_MAX][HELD_MAX];
    double scores[REEF_CANDIDATES_MAX][HELD_MAX];
} reef_recognition;

bool reef_recognises_by_contexts(const reef_trainer *trainer) {
    return trainer->network.config.boundaries == REEF_BOUNDARIES_CONTEXTS &&
           reef_kinds_learn(trainer);
}

size_t reef_piece_batches(const reef_config *config) {
    size_t batch = reef_batch_bytes(config);
    return (PIECE_BYTES + batch - 1) / batch;
}

// ---- levels -------------------------------------------------------------------------------------

static reef_status reserve(reef_trainer *trainer, reef_error *err) {
    size_t count = trainer->network.generation_count;
    if (trainer->recognition == NULL)
        trainer->recognition = calloc(1, sizeof(*trainer->recognition));
    if (count > trainer->level_count) {
        reef_familiarity_level *levels = realloc(trainer->levels, count * sizeof(*levels));
        if (levels != NULL) {
            memset(levels + trainer->level_count, 0,
                   (count - trainer->level_count) * sizeof(*levels));
            trainer->levels = levels;
            trainer->level_count = count;
        }
    }
    return trainer->recognition != NULL && trainer->level_count >= count
               ? REEF_OK
               : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the levels of %zu kinds", count);
}

// From its level, in units of its spread: below 0 where it knows less than of its own text.
static double deviation_of(const reef_familiarity_level *level, double familiarity) {
    if (level->pieces == 0) return (familiarity - UNKNOWN_LEVEL) / UNKNOWN_SPREAD;
    double spread = 1.25 * level->deviation; // of a normal distribution
    if (spread < SPREAD_MIN) spread = SPREAD_MIN;
    double young = SPREAD_YOUNG * SPREAD_YOUNG / (double)level->pieces;
    return (familiarity - level->mean) / sqrt(spread * spread + young);
}

static void add_to_level(reef_familiarity_level *level, double familiarity) {
    level->pieces++;
    if (level->pieces == 1) {
        level->mean = familiarity;
        level->deviation = SPREAD_YOUNG / 2;
        return;
    }
    double rate = 1.0 / fmin(LEVEL_YOUNG + (double)level->pieces / LEVEL_SHARE, LEVEL_RATE);
    double off = familiarity - level->mean;
    double most = LEVEL_CLIP * (level->deviation > SPREAD_MIN ? level->deviation : SPREAD_MIN);
    if (level->pieces > LEVEL_RATE / 2 && fabs(off) > most) off = off < 0.0 ? -most : most;
    level->mean += off * rate;
    level->deviation += (fabs(off) - level->deviation) * rate;
}

// ---- one piece ----------------------------------------------------------------------------------

static const uint8_t *piece_at(const reef_trainer *trainer, size_t number) {
    size_t batches = reef_piece_batches(&trainer->network.config);
    return trainer->pending + number * batches * reef_batch_bytes(&trainer->network.config);
}

static reef_status look_whether_empty(reef_trainer *trainer, reef_error *err) {
    const reef_memory *memory = NULL;
    reef_status status = reef_kinds_memory(trainer, trainer->current_kind, &memory, err);
    trainer->recognition->is_empty =
        memory == NULL || reef_memory_learned_bytes(memory) < PIECE_BYTES;
    return status;
}

static reef_status familiarity_of(
    reef_trainer *trainer, uint32_t kind, size_t number, double *out, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const reef_memory *memory = NULL;
    reef_status status = reef_kinds_memory(trainer, kind, &memory, err);
    if (status == REEF_OK)
        *out = reef_memory_familiarity(memory, piece_at(trainer, number),
                                       reef_piece_batches(config) * reef_batch_bytes(config));
    return status;
}

// What a candidate knows of one piece.
static reef_status ask(reef_trainer *trainer, size_t i, size_t number, reef_error *err) {
    reef_recognition *r = trainer->recognition;
    uint32_t kind = r->candidates.kinds[i];
    double score = 0.0;
    reef_status status = familiarity_of(trainer, kind, number, &score, err);
    r->scores[i][number] = score;
    r->deviations[i][number] = deviation_of(&trainer->levels[kind], score);
    return status;
}

// All about a new piece, and new ones about those before it as well.
static reef_status ask_candidates(reef_trainer *trainer, size_t number, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_candidates *c = &trainer->recognition->candidates;
    size_t bytes = reef_piece_batches(config) * reef_batch_bytes(config), before = c->count;
    const uint8_t *piece = piece_at(trainer, number);
    if (number == 0) before = 0;
    reef_status status = number == 0 ? reef_candidates_choose(c, trainer, piece, bytes, err)
                                     : reef_candidates_add(c, trainer, piece, bytes, err);
    for (size_t i = 0; status == REEF_OK && i < c->count; i++)
        for (size_t n = i < before ? number : 0; status == REEF_OK && n <= number; n++)
            status = ask(trainer, i, n, err);
    return status;
}

// Does another kind know the first piece by far better, and as its own? A kind that learned text of
// many others finds nothing strange, and would keep all of them.
static reef_status look_for_better(reef_trainer *trainer, bool *out, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_recognition *r = trainer->recognition;
    size_t bytes = reef_piece_batches(config) * reef_batch_bytes(config);
    uint32_t kind = 0;
    double score = 0.0;
    reef_status status = reef_candidates_first(&r->candidates, trainer, piece_at(trainer, 0), bytes,
                                               &kind, out, err);
    if (status == REEF_OK && *out) status = familiarity_of(trainer, kind, 0, &score, err);
    *out = *out && score > r->current_score[0] + BETTER &&
           deviation_of(&trainer->levels[kind], score) >= -STRANGE;
    return status;
}

// ---- decisions ----------------------------------------------------------------------------------

static double below(double deviation) {
    return deviation < 0.0 ? deviation : 0.0;
}

// Does a candidate know a piece as its own, and more of it than the current kind?
static bool knows(const reef_recognition *r, size_t i, size_t number) {
    return r->deviations[i][number] >= -STRANGE && r->scores[i][number] >= r->current_score[number];
}

// How much better a candidate knows a piece than the current kind.
static double lead_of(const reef_recognition *r, size_t i, size_t number) {
    double lead = below(r->deviations[i][number]) - below(r->current[number]) - LEAD_PIECE;
    double better = (r->scores[i][number] - r->current_score[number]) / BETTER - LEAD_PIECE;
    if (better > lead) lead = better;
    if (lead > 0.0 && !knows(r, i, number)) lead = 0.0;
    return lead < -3.0 ? -3.0 : lead > 6.0 ? 6.0 : lead;
}

// Is what is held, from some piece on, of a kind that was there before?
static bool has_come_back(const reef_recognition *r, size_t held, reef_kind_decision *out) {
    double best = LEAD;
    for (size_t i = 0; i < r->candidates.count; i++) {
        double lead = 0.0, least = 0.0, sum = 0.0;
        size_t from = 0;
        for (size_t n = 0; n < held; n++) {
            lead += lead_of(r, i, n);
            if (lead >= least) continue;
            least = lead;
            from = n + 1;
        }
        for (size_t n = from; n < held; n++) sum += r->deviations[i][n];
        if (from == held || sum <= -STRANGE * (double)(held - from) || lead - least <= best)
            continue;
        best = lead - least;
        *out = (reef_kind_decision){REEF_VERDICT_SWITCH, from, r->candidates.kinds[i]};
    }
    return best > LEAD;
}

// A new kind, an oddity, or not clear yet.
static reef_kind_decision judge_strange(const reef_trainer *trainer, size_t held) {
    const reef_recognition *r = trainer->recognition;
    const reef_familiarity_level *level = &trainer->levels[trainer->current_kind];
    double proved = 0.0, share = NEW_SHARE * (double)level->pieces;
    double needed = fmin(fmax(share, NEW_PIECES_MIN), NEW_PIECES_MAX) * NEW_MEAN;
    size_t from = 0;
    for (size_t n = 0; n < held; n++) {
        bool strange = r->current[n] < -STRANGE && r->current_score[n] < level->mean - DROP_MIN;
        if (strange && proved <= 0.0) from = n;
        proved += strange ? fmin(-r->current[n] / STRANGE, STRANGE_MAX) : -FAMILIAR_AGAIN;
        if (proved < 0.0) proved = 0.0;
    }
    // Where one begins to know it again there will soon be more to tell by.
    bool known = false, better = false;
    for (size_t i = 0; i < r->candidates.count; i++) {
        known |= knows(r, i, held - 1);
        better |= lead_of(r, i, held - 1) > 0.0;
    }
    if (level->pieces >= LEVEL_WARMUP && proved >= needed && held - from >= NEW_PIECES_MIN &&
        !known)
        return (reef_kind_decision){.verdict = REEF_VERDICT_NEW, .from = from};
    bool clear = (proved <= 0.0 && !better) || held == HELD_MAX;
    return (reef_kind_decision){.verdict = clear ? REEF_VERDICT_CURRENT : REEF_VERDICT_HOLD};
}

// Where in the piece it changes: the batches up to there are those that the current kind knows
// better than `other` does, or than half way to what it knows of the piece behind.
static reef_status change_in_piece(reef_trainer *trainer,
                                   size_t number,
                                   size_t held,
                                   const reef_memory *other,
                                   size_t *out,
                                   reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const reef_recognition *r = trainer->recognition;
    size_t size = reef_batch_bytes(config), batches = reef_piece_batches(config);
    size_t behind = number + 1 < held ? number + 1 : number;
    double middle = 0.5 * (trainer->levels[trainer->current_kind].mean + r->current_score[behind]);
    double sum = 0.0, most = 0.0;
    const reef_memory *memory = NULL;
    reef_status status = reef_kinds_memory(trainer, trainer->current_kind, &memory, err);
    *out = 0;
    for (size_t b = 0; status == REEF_OK && b < batches; b++) {
        const uint8_t *bytes = piece_at(trainer, number) + b * size;
        double known = reef_memory_familiarity(memory, bytes, size);
        sum += known - (other == NULL ? middle : reef_memory_familiarity(other, bytes, size));
        if (sum <= most) continue;
        most = sum;
        *out = b + 1;
    }
    return status;
}

// From pieces to batches.
static reef_status find_change(reef_trainer *trainer,
                               size_t held,
                               reef_kind_decision *decision,
                               reef_error *err) {
    const reef_memory *other = NULL;
    reef_status status = REEF_OK;
    size_t piece = decision->from, within = 0;
    if (decision->verdict == REEF_VERDICT_SWITCH)
        status = reef_kinds_memory(trainer, decision->kind, &other, err);
    if (status == REEF_OK) status = change_in_piece(trainer, piece, held, other, &within, err);
    decision->from = piece * reef_piece_batches(&trainer->network.config) + within;
    return status;
}

reef_status reef_recognise_piece(reef_trainer *trainer,
                                 size_t held,
                                 reef_kind_decision *out,
                                 reef_error *err) {
    assert(held < HELD_MAX);
    *out = (reef_kind_decision){.verdict = REEF_VERDICT_CURRENT};
    reef_status status = reserve(trainer, err);
    if (status != REEF_OK) return status;
    reef_recognition *r = trainer->recognition;
    const reef_familiarity_level *level = &trainer->levels[trainer->current_kind];
    double *score = &r->current_score[held];
    status = look_whether_empty(trainer, err);
    if (status == REEF_OK)
        status = familiarity_of(trainer, trainer->current_kind, held, score, err);
    if (status != REEF_OK) return status;
    r->current[held] = deviation_of(level, *score);
    if (held == 0) r->candidates.count = 0;
    bool asks = held > 0 || (r->current[0] < -ASKED && level->pieces >= LEVEL_WARMUP);
    if (!asks) status = look_for_better(trainer, &asks, err);
    if (status != REEF_OK || !asks) return status;
    status = ask_candidates(trainer, held, err);
    if (status != REEF_OK) return status;
    if (!has_come_back(r, held + 1, out)) *out = judge_strange(trainer, held + 1);
    bool changes = out->verdict == REEF_VERDICT_SWITCH || out->verdict == REEF_VERDICT_NEW;
    return changes ? find_change(trainer, held + 1, out, err) : REEF_OK;
}

void reef_recognition_count(reef_trainer *trainer, size_t number, uint32_t kind) {
    const reef_recognition *r = trainer->recognition;
    if (kind == trainer->current_kind) {
        bool odd = r->candidates.count > 0 && r->current[number] < -STRANGE;
        // To an empty memory nothing is familiar, which says nothing of the kind.
        if (!odd && !r->is_empty) add_to_level(&trainer->levels[kind], r->current_score[number]);
        return;
    }
    for (size_t i = 0; i < r->candidates.count; i++)
        if (r->candidates.kinds[i] == kind)
            add_to_level(&trainer->levels[kind], r->scores[i][number]);
}

reef_status reef_recognition_learn_text(
    reef_trainer *trainer, uint32_t kind, const uint8_t *bytes, size_t count, reef_error *err) {
    reef_status status = reserve(trainer, err);
    for (size_t at = 0; status == REEF_OK && at < count; at += PIECE_BYTES) {
        size_t size = count - at < PIECE_BYTES ? count - at : PIECE_BYTES;
        const reef_memory *memory = NULL;
        status = reef_kinds_memory(trainer, kind, &memory, err);
        if (status == REEF_OK && at >= count / 2 && size == PIECE_BYTES)
            add_to_level(&trainer->levels[kind], reef_memory_familiarity(memory, bytes + at, size));
        if (status == REEF_OK) status = reef_kinds_learn_text(trainer, kind, bytes + at, size, err);
    }
    return status;
}

// ---- the state ----------------------------------------------------------------------------------

void reef_recognition_set_state(const reef_trainer *trainer, json_t **state) {
    if (!reef_recognises_by_contexts(trainer)) return;
    json_t *list = json_array();
    for (size_t g = 0; g < trainer->level_count; g++) {
        const reef_familiarity_level *level = &trainer->levels[g];
        if (level->pieces == 0) continue;
        reef_json_append(&list, json_pack("[I, I, f, f]", (json_int_t)g, (json_int_t)level->pieces,
                                          level->mean, level->deviation));
    }
    reef_json_set(state, "current_kind", json_integer(trainer->current_kind));
    reef_json_set(state, "levels", list);
}

reef_status reef_recognition_load(reef_trainer *trainer, const json_t *state, reef_error *err) {
    const json_t *list = json_object_get(state, "levels");
    const json_t *current = json_object_get(state, "current_kind");
    trainer->current_kind = reef_open_generation(trainer)->info.generation;
    if (!reef_recognises_by_contexts(trainer)) return REEF_OK;
    reef_status status = reserve(trainer, err);
    if (status != REEF_OK) return status;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t kind = json_integer_value(json_array_get(item, 0));
        if (kind < 0 || (size_t)kind >= trainer->level_count)
            return reef_fail(err, REEF_ERR_CORRUPT, "the trainer's state has a malformed level");
        trainer->levels[kind] = (reef_familiarity_level){
            .pieces = (uint64_t)json_integer_value(json_array_get(item, 1)),
            .mean = json_real_value(json_array_get(item, 2)),
            .deviation = json_real_value(json_array_get(item, 3))};
    }
    json_int_t kind = current != NULL ? json_integer_value(current) : trainer->current_kind;
    if (kind < 0 || (size_t)kind >= trainer->network.generation_count ||
        reef_generation_is_empty(&trainer->network.generations[kind]->info))
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the trainer's state is at kind %lld, which is none", (long long)kind);
    trainer->current_kind = (uint32_t)kind;
    return REEF_OK;
}

void reef_recognition_forget(reef_trainer *trainer) {
    if (trainer->recognition != NULL) reef_candidates_release(&trainer->recognition->candidates);
}

void reef_recognition_release(reef_trainer *trainer) {
    reef_recognition_forget(trainer);
    free(trainer->levels);
    free(trainer->recognition);
    trainer->levels = NULL;
    trainer->recognition = NULL;
    trainer->level_count = 0;
}
