// What to do about damage, in words and commands. The findings are the store's
// (store/check/repair_plan.c); here they become sentences, and a command only where it is known to
// work: a restore from a snapshot whose whole state was found sound, the removal of a snapshot that
// nothing else needs, the export of a generation that is whole.
#include "repair_advice.h"
#include "cli_format.h"
#include "cli_recovery.h"
#include "reef_pool_check.h"
#include "reef_push_journal.h"
#include "reef_usage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void *grown(void *array, size_t count, size_t *capacity, size_t bytes) {
    if (count < *capacity) return array;
    size_t larger = 2 * *capacity + 16;
    void *room = reef_cli_alloc(larger, bytes);
    if (count > 0) memcpy(room, array, count * bytes);
    free(array);
    *capacity = larger;
    return room;
}

void reef_verify_plan_add(reef_verify_plan *plan, const reef_repair *repair) {
    plan->repairs = grown(plan->repairs, plan->count, &plan->capacity, sizeof(*repair));
    plan->repairs[plan->count++] = *repair;
}

void reef_verify_plan_add_whole(reef_verify_plan *plan, uint32_t generation) {
    plan->whole =
        grown(plan->whole, plan->whole_count, &plan->whole_capacity, sizeof(*plan->whole));
    plan->whole[plan->whole_count++] = generation;
}

// A record of a kind's memory, which other kinds do not need.
static bool is_of_kind(const reef_repair *r) {
    return !r->snapshot[0] && (r->key.db == REEF_DB_MEMORY || r->key.db == REEF_DB_VISITS);
}

void reef_verify_plan_add_kinds(reef_verify_plan *plan, const reef_cli_call *cli) {
    bool any = false;
    for (size_t i = 0; i < plan->count; i++) any |= is_of_kind(&plan->repairs[i]);
    // If more is damaged than kinds, they cannot be recovered.
    plan->kinds_are_known =
        any && reef_cli_recover(cli, true, &plan->kinds, &plan->kind_count, NULL) == REEF_OK;
}

// Does the present state need the record?
static bool is_needed_now(const reef_verify_plan *plan, const reef_repair *r) {
    bool is_list =
        r->key.db == REEF_DB_VISITS && r->key.layer == 0 && strcmp(r->name, REEF_VISIT_LIST) == 0;
    uint32_t kind = r->key.db == REEF_DB_VISITS ? r->key.layer : r->key.generation;
    for (size_t i = 0; i < plan->kind_count; i++)
        if (is_list ? plan->kinds[i].lost.kind < r->key.generation
                    : plan->kinds[i].lost.kind == kind)
            return true;
    return false;
}

void reef_verify_plan_release(reef_verify_plan *plan) {
    free(plan->kinds);
    free(plan->repairs);
    free(plan->whole);
    *plan = (reef_verify_plan){0};
}

// ---- words --------------------------------------------------------------------------------------

static char *part_text(const reef_repair *r) {
    // Most records are named by layer and block.
    char where[64];
    snprintf(where, sizeof(where), "layer %" PRIu32 ", block %" PRIu32, r->key.layer, r->key.block);
    // One text for each table of the store, in words of the user's documents.
    switch (r->key.db) {
    case REEF_DB_TENSORS:
        return reef_cli_format("tensor %s", r->name);
    case REEF_DB_EXPERTS:
        return reef_cli_format("rows of experts, %s", where);
    case REEF_DB_FLAGS:
        return reef_cli_format("flags of frozen experts, %s", where);
    case REEF_DB_MEMORY:
        return reef_cli_format("context memory %s, block %" PRIu32, r->name, r->key.block);
    case REEF_DB_VISITS:
        if (r->key.layer == 0 && strcmp(r->name, REEF_VISIT_LIST) == 0)
            return reef_cli_format("the list of what older kinds went on to learn");
        return reef_cli_format("what kind %" PRIu32 " went on to learn, %s, block %" PRIu32,
                               r->key.layer, r->name, r->key.block);
    case REEF_DB_MOMENTS:
        // Moments of tensors have names, those of experts have blocks.
        return r->name[0] ? reef_cli_format("training state %s", r->name)
                          : reef_cli_format("training state of experts, %s", where);
    case REEF_DB_USAGE:
        // Totals are read by training, windows only by people.
        return reef_cli_format(r->key.level == REEF_USAGE_TOTALS ? "totals of usage, %s"
                                                                 : "usage over time, %s",
                               where);
    case REEF_DB_GENERATIONS:
        return reef_cli_format("its records as a whole");
    case REEF_DB_SNAPSHOTS:
        return reef_cli_format("snapshot %s", r->name);
    case REEF_DB_RESERVOIR:
        return reef_cli_format("sample of the past, slot %" PRIu32, r->key.block);
    case REEF_DB_TIMELINE:
        return reef_cli_format("timeline, event %" PRIu64, r->key.sequence);
    // A point of the curve is named by its position.
    case REEF_DB_SERIES:
        return reef_cli_format("curve of %s from %" PRIu64 " on", r->name, r->key.sequence);
    default:
        // Other records have a name, or none that would help.
        return reef_cli_format("%s of the pool", r->name[0] ? r->name : "record");
    }
}

// Others belong to the pool as a whole.
static bool is_of_generation(const reef_repair *r) {
    switch (r->key.db) {
    case REEF_DB_TENSORS:
    case REEF_DB_EXPERTS:
    case REEF_DB_FLAGS:
    case REEF_DB_MOMENTS:
    case REEF_DB_USAGE:
    case REEF_DB_GENERATIONS:
    case REEF_DB_MEMORY:
    case REEF_DB_VISITS:
        return true;
    default:
        return false;
    }
}

static char *belongs_text(const reef_repair *r) {
    char *part = part_text(r), *text = NULL;
    if (r->snapshot[0])
        text = reef_cli_format("snapshot %s, its copy of generation %" PRIu32 ": %s", r->snapshot,
                               r->generation, part);
    else if (is_of_generation(r))
        text = reef_cli_format("%s generation %" PRIu32 ": %s", r->sealed ? "sealed" : "open",
                               r->generation, part);
    if (text == NULL) return part;
    free(part);
    return text;
}

// Known for a while and written again by the next training.
static bool is_scrub(const reef_repair *r) {
    return r->key.db == REEF_DB_META && strcmp(r->name, "scrub") == 0;
}

// What kernels it was trained with last.
static bool is_kernels(const reef_repair *r) {
    return r->key.db == REEF_DB_META && strcmp(r->name, "kernels") == 0;
}

// Bytes that wait in the journal.
static bool is_pushed(const reef_repair *r) {
    return strncmp(r->name, REEF_PUSH_PREFIX, strlen(REEF_PUSH_PREFIX)) == 0 && r->key.sequence > 0;
}

// Of a kind, which other kinds do not need.
static char *lost_kind_text(const reef_repair *r) {
    if (r->key.db == REEF_DB_MEMORY)
        return reef_cli_format("what kind %" PRIu32 " had learned; other kinds do not need it",
                               r->generation);
    if (strcmp(r->name, REEF_VISIT_LIST) == 0)
        return reef_cli_format("what kinds before %" PRIu32 " went on to learn from then on",
                               r->generation);
    return reef_cli_format("what kind %" PRIu32 " learned from then on; other kinds do not need it",
                           r->key.layer);
}

static char *lost_text(const reef_verify_plan *plan, const reef_repair *r) {
    // A record of a snapshot is lost to the snapshot alone.
    if (r->snapshot[0])
        return reef_cli_format("snapshot %s; the pool as it is now does not need it", r->snapshot);
    if (is_of_kind(r) && plan->kinds_are_known) return lost_kind_text(r);
    switch (r->key.db) {
    case REEF_DB_TENSORS:
    case REEF_DB_EXPERTS:
    case REEF_DB_FLAGS:
    case REEF_DB_GENERATIONS:
    case REEF_DB_MEMORY:
    case REEF_DB_VISITS:
        // A sealed generation belongs to every later state.
        return r->sealed
                   ? reef_cli_format("every state that has generation %" PRIu32, r->generation)
                   : reef_cli_format("the present state of the open generation");
    case REEF_DB_MOMENTS:
    // Not lost for evaluation: the model answers as before.
    case REEF_DB_RESERVOIR:
        return reef_cli_format("what training needs to continue; the model itself is not touched");
    case REEF_DB_USAGE:
        // Totals decide which experts are recycled.
        return r->key.level == REEF_USAGE_TOTALS
                   ? reef_cli_format("how often these experts were used in all; training reads it")
                   : reef_cli_format("who was used when, in that window; nothing computes with it");
    case REEF_DB_SNAPSHOTS:
        return reef_cli_format("the way back to that state");
    case REEF_DB_TIMELINE:
    case REEF_DB_SERIES:
        return reef_cli_format("a piece of the history; nothing computes with it");
    case REEF_DB_JOURNAL:
        // The journal has two kinds of records: pushed data, and positions of sources.
        return is_pushed(r)
                   ? reef_cli_format("what was pushed and not trained yet, from here on")
                   : reef_cli_format("where a live source is read on, or which queue is next");
    default:
        // The rest are records of one kind each.
        if (is_scrub(r)) return reef_cli_format("when the sealed records were last read again");
        if (is_kernels(r))
            return reef_cli_format("whether it was trained on another kind of processor");
        return reef_cli_format("what says how the whole pool is to be read");
    }
}

static char *kept_text(const reef_repair *r) {
    // Where a copy of the lost bytes is, from the safest to the least certain.
    if (r->intact && r->key.db == REEF_DB_GENERATIONS)
        return reef_cli_format("this record is intact; others are not what it was sealed with");
    // Only the checksum is lost, so the content can be trusted after inspection.
    if (r->intact)
        return reef_cli_format("its bytes are intact; its entry in sums is damaged or lost");
    // The same bytes under another key: blocks are shared between states.
    if (r->identical && r->twin[0])
        return reef_cli_format("the same bytes are in snapshot %s (its generation %" PRIu32 ")",
                               r->twin, r->identical_generation);
    if (r->identical)
        return reef_cli_format("the same bytes are in the pool's own generation %" PRIu32,
                               r->identical_generation);
    // An older version is better than none, and the text says how old.
    if (r->stale)
        return reef_cli_format("the bytes of commit %" PRIu64 "; those of commit %" PRIu64
                               " are nowhere in the pool",
                               r->commit, r->commit_lost);
    return reef_cli_format("nowhere in this pool");
}

// The state that a command restores, or other advice without such a command.
static char *remedy_text(const reef_verify_plan *plan, const reef_repair *r) {
    // What other kinds learned since a snapshot is worth more than what one kind lost.
    if (is_of_kind(r) && plan->kinds_are_known && is_needed_now(plan, r))
        return reef_cli_format("damaged kinds go on as they were before; all others stay as they "
                               "are%s%s",
                               r->restore[0] ? ". All of it is in snapshot " : "", r->restore);
    if (is_of_kind(r) && plan->kinds_are_known)
        return reef_cli_format("none is needed to train on; earlier states that had it answer "
                               "with what is whole");
    // A snapshot from which a whole pool can be made is the best remedy.
    // If the snapshot has moments, the training is repeated bit by bit.
    if (r->restore[0])
        return reef_cli_format("a new pool as of snapshot %s (commit %" PRIu64
                               "); training continues from byte %" PRIu64
                               " of the stream, to the same bits",
                               r->restore, r->restore_commit, r->restore_stream_bytes);
    if (r->snapshot[0]) return reef_cli_format("removes the snapshot, and what is damaged in it");
    if (r->key.db == REEF_DB_SNAPSHOTS)
        return reef_cli_format("removes the snapshot, and what it held; "
                               "the pool as it is now does not need it");
    // Records that nothing computes with need no remedy to continue.
    switch (r->key.db) {
    case REEF_DB_TIMELINE:
        return reef_cli_format("none is needed to train on; reef timeline cannot be read");
    case REEF_DB_SERIES:
        return reef_cli_format("none is needed to train on; reef plot loss cannot be drawn");
    case REEF_DB_USAGE:
        // A window is left out by the next compaction.
        if (r->key.level != REEF_USAGE_TOTALS)
            return reef_cli_format("none is needed to train on; reef usage cannot show that time");
        break;
    case REEF_DB_JOURNAL:
        if (is_pushed(r))
            return reef_cli_format(
                "the model is not touched: push it again, into a source of another name");
        break;
    default:
        break;
    }
    // Written again by itself.
    if (is_scrub(r)) return reef_cli_format("none is needed: the next daemon writes it again");
    if (is_kernels(r)) return reef_cli_format("none is needed: the next commit writes it again");
    // A sealed generation that is lost here may exist in a copy or an exported file.
    if (r->sealed)
        return reef_cli_format(
            "no snapshot is whole without it: go back to a copy of the pool (reef "
            "export pool), or to a file of generation %" PRIu32 " (reef import)",
            r->generation);
    return reef_cli_format("no snapshot helps: go back to a copy of the pool (reef export pool)");
}

// ---- commands -----------------------------------------------------------------------------------

static const char PLAIN[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";

// Text that neither JSON nor a terminal takes as it is, in a form that any shell reads back.
// Command substitution drops newlines at the end, so a slash follows them: these are paths of
// directories.
static char *printed(const char *text) {
    static const char BEGIN[] = "\"$(printf '", END[] = "')\"";
    char *out = reef_cli_alloc(4 * strlen(text) + sizeof(BEGIN) + sizeof(END) + 1, 1);
    // Four bytes for each character are enough for "\ooo".
    char *at = stpcpy(out, BEGIN);
    for (const char *c = text; *c; c++) {
        // A leading dash would be taken for an option by printf.
        if (strchr(PLAIN, *c) != NULL && (c > text || *c != '-'))
            *at++ = *c;
        else
            at += sprintf(at, "\\%03o", (unsigned)(uint8_t)*c);
    }
    // The slash changes nothing in the meaning of the path.
    if (text[strlen(text) - 1] == '\n') *at++ = '/';
    strcpy(at, END);
    return out;
}

// A word as a shell reads it back.
static char *quoted(const char *text) {
    if (!reef_cli_is_printable(text)) return printed(text);
    // Plain names stay as they are, so that commands look as if typed.
    if (text[0] && strspn(text, PLAIN) == strlen(text)) return reef_cli_format("%s", text);
    char *out = reef_cli_alloc(4 * strlen(text) + 3, 1), *at = out;
    *at++ = '\'';
    for (; *text; text++) {
        // Inside single quotes everything is literal but the quote itself.
        if (*text != '\'') {
            *at++ = *text;
            continue;
        }
        // Ends the string, adds a quote, and begins again.
        memcpy(at, "'\\''", 4);
        at += 4;
    }
    *at = '\'';
    return out;
}

// The command that carries out the remedy; NULL if none does.
static char *command_text(const reef_verify_plan *plan, const reef_repair *r) {
    const char *pool = plan->pool;
    char *from = quoted(pool), *text = NULL;
    if (is_of_kind(r) && plan->kinds_are_known) {
        if (is_needed_now(plan, r)) text = reef_cli_format("reef kind recover %s", from);
    }
    // Restores beside the damaged pool: nothing is overwritten.
    else if (r->restore[0]) {
        // Quoted after the suffix is added, so that it is part of the word.
        char *path = reef_cli_format("%s.restored", pool), *to = quoted(path);
        text = reef_cli_format("reef snapshot restore %s %s %s", from, r->restore, to);
        free(path);
        free(to);
        // Removing the snapshot removes its damaged records.
    } else if (r->snapshot[0]) {
        text = reef_cli_format("reef snapshot remove %s %s", from, r->snapshot);
    } else if (r->key.db == REEF_DB_SNAPSHOTS) {
        // A name read from a damaged record may hold any bytes.
        char *name = quoted(r->name);
        text = reef_cli_format("reef snapshot remove %s %s", from, name);
        free(name);
    }
    free(from);
    return text;
}

// What its kind learned later may be damaged.
static bool is_damaged_later(const reef_verify_plan *plan, uint32_t generation) {
    for (size_t i = 0; i < plan->kind_count; i++)
        if (plan->kinds[i].lost.kind == generation) return true;
    return false;
}

static char *whole_command(const reef_verify_plan *plan, uint32_t generation) {
    char *from = quoted(plan->pool);
    char *text = reef_cli_format(
        "reef export generation %s %" PRIu32 " generation-%" PRIu32 ".safetensors%s", from,
        generation, generation, is_damaged_later(plan, generation) ? " --as-sealed" : "");
    free(from);
    return text;
}

// ---- out ----------------------------------------------------------------------------------------

// Takes the text over.
static void print_line(const char *label, char *text) {
    if (text != NULL) printf("   %-9s%s\n", label, text);
    free(text);
}

void reef_verify_plan_print(const reef_verify_plan *plan) {
    // Printed first, because a plan looks like a list of things done.
    if (plan->count > 0) printf("\nplan (nothing has been changed)\n");
    for (size_t i = 0; i < plan->count; i++) {
        const reef_repair *r = &plan->repairs[i];
        // Descriptions may hold names from the damaged record.
        char *what = reef_cli_printable((const uint8_t *)r->what, strlen(r->what), false);
        printf("%zu. %s\n", i + 1, what);
        free(what);
        // The same five lines for each damage; empty ones are left out.
        print_line("part of", belongs_text(r));
        print_line("lost", lost_text(plan, r));
        print_line("kept", kept_text(r));
        print_line("remedy", remedy_text(plan, r));
        print_line("command", command_text(plan, r));
    }
    // What is whole can be saved before anything is tried.
    if (plan->whole_count > 0)
        printf("\nstill whole; of a language model each can be kept as a file\n");
    for (size_t i = 0; i < plan->whole_count; i++)
        print_line("command", whole_command(plan, plan->whole[i]));
}

static void set_text(json_t *object, const char *name, char *text) {
    json_object_set_new(object, name, text != NULL ? json_string(text) : json_null());
    free(text);
}

static json_t *name_json(const char *name) {
    return name[0] ? json_string(name) : json_null();
}

json_t *reef_verify_plan_json(const reef_verify_plan *plan) {
    json_t *list = json_array();
    // The texts are those of the printed plan, the members beside them are for programs.
    for (size_t i = 0; i < plan->count; i++) {
        const reef_repair *r = &plan->repairs[i];
        json_t *one = json_object();
        set_text(one, "damage",
                 reef_cli_printable((const uint8_t *)r->what, strlen(r->what), false));
        set_text(one, "part_of", belongs_text(r));
        // Null for records of the pool as a whole.
        json_object_set_new(one, "generation",
                            is_of_generation(r) ? json_integer((json_int_t)r->generation)
                                                : json_null());
        json_object_set_new(one, "sealed", json_boolean(r->sealed));
        json_object_set_new(one, "snapshot", name_json(r->snapshot));
        json_object_set_new(one, "layer", json_integer((json_int_t)r->key.layer));
        json_object_set_new(one, "block", json_integer((json_int_t)r->key.block));
        set_text(one, "lost", lost_text(plan, r));
        set_text(one, "kept", kept_text(r));
        // The findings behind the texts, so that no program has to parse those.
        json_object_set_new(one, "identical", json_boolean(r->identical));
        json_object_set_new(one, "identical_in_snapshot", name_json(r->twin));
        json_object_set_new(one, "intact", json_boolean(r->intact));
        json_object_set_new(one, "stale", json_boolean(r->stale));
        json_object_set_new(one, "restore", name_json(r->restore));
        // Null if there is no snapshot to restore.
        json_object_set_new(one, "restore_commit",
                            r->restore[0] ? json_integer((json_int_t)r->restore_commit)
                                          : json_null());
        set_text(one, "remedy", remedy_text(plan, r));
        set_text(one, "command", command_text(plan, r));
        json_array_append_new(list, one);
    }
    return list;
}

json_t *reef_verify_plan_whole_json(const reef_verify_plan *plan) {
    json_t *list = json_array();
    for (size_t i = 0; i < plan->whole_count; i++) {
        char *command = whole_command(plan, plan->whole[i]);
        json_array_append_new(list, json_pack("{s:I, s:s}", "generation",
                                              (json_int_t)plan->whole[i], "command", command));
        free(command);
    }
    return list;
}
