// One world and a table: what is typed, how it ends, and what is answered. Whatever needs no world
// of its own stands here.
#include "cli_format.h"
#include "tools_world.h"

#include <string.h>

/**
 * `typed` are words of `reef`; POOL, ENGLISH, CODE, EMPTY, MISSING and NOPOOL are the world's, and
 * a '~' in a word is a blank. `says` stands in what is printed; behind a '!' it does not; behind a
 * '.' it is a path into the JSON answer and what stands there, ".layers.0.used=3".
 */
typedef struct answer {
    const char *typed;
    int code;
    const char *says;
} answer;

static const answer ANSWERS[] = {
    // How the pool is named.
    {"status POOL", 0, ".generation=1"},
    {"status --pool POOL", 0, ".generation=1"},
    {"status MISSING", 66, "MISSING"},
    {"status NOPOOL", 64, "has no data.mdb"},
    {"status", 64, "no pool given"},
    {"status POOL more", 64, "unexpected argument 'more'"},
    {"stats POOL", 64, "did you mean status?"},
    {"status POOL --jsn", 64, "did you mean --json?"},
    {"run POOL", 64, "'run' is gone: reefd --pool POOL --source FILE"},
    {"experts POOL --text x", 64, "'experts --text' is gone: nothing does it now"},
    // States.
    {"eval POOL ENGLISH --as-of kept", 0, ".as_of=\"kept\""},
    {"eval POOL ENGLISH --as-of ke", 0, ".as_of=\"kept\""},
    {"eval POOL ENGLISH --as-of today", 0, ".as_of=\"now\""},
    {"eval POOL ENGLISH --as-of gestern", 66, "or a moment such as 2024-05-01"},
    {"eval POOL ENGLISH --as-of 2026-13-45", 66, "there is no state '2026-13-45'"},
    {"eval POOL ENGLISH --as-of 1~minute~ago", 66, "yesterday or 3h"},
    {"eval POOL ENGLISH --as-of 9", 66, "no generation 9: the pool has 0 to 1"},
    // A line of text is whole where no terminal is too narrow for it, and a share has its number.
    {"score POOL ENGLISH --top 1", 0, "!\xe2\x80\xa6"},
    {"eval POOL ENGLISH", 0, " (0)"},
    // Experts.
    {"experts POOL --top 3", 0, "3 of 32 experts"},
    {"experts POOL --state sealed", 0, ".total=16"},
    {"experts POOL --generation 2", 66, "the pool has 0 to 1"},
    {"experts POOL --layer 1", 64, "no experts that are retrieved"},
    {"experts POOL --layer 2", 66, "there is no layer 2"},
    {"usage POOL --layer 2", 66, "there is no layer 2"},
    {"freeze POOL --layer 2", 66, "there is no layer 2"},
    {"experts POOL --sort size", 64, "must be uses, last or id"},
    {"experts POOL --state dead", 64, "open, sealed or frozen"},
    {"freeze POOL --first 5 --last 4", 64, "--last"},
    {"freeze POOL --usage-above 2", 64, "--usage-above"},
    {"thaw POOL", 0, ".changed=0"},
    {"grow POOL", 64, "--side"},
    // Usage over time.
    {"usage POOL --since 2099-01-01", 0, ".layers.0.selections=0"},
    {"usage POOL --since soon", 64, "--since is 'soon', which is not a time"},
    {"usage POOL --until 2024-02-30", 64, "--until"},
    {"usage POOL --since 2h --until=3h", 64, "is not before"},
    {"usage POOL --layer 1", 64, "layer 1 is of kind dense"},
    {"usage POOL --layer x", 64, "--layer"},
    {"usage MISSING --since 2h", 66, "MISSING"},
    // Snapshots.
    {"snapshot list POOL", 0, ".snapshots.0.name=\"kept\""},
    {"snapshot remove POOL ke --dry-run", 0, ".removed.0.name=\"kept\""},
    {"snapshot remove POOL nothing", 66, "nothing"},
    {"snapshot prune POOL", 64, "which snapshots should stay?"},
    {"snapshot create POOL kept", 64, "kept exists; choose"},
    {"snapshot create POOL a/b", 64, "a/b"},
    {"snapshot diff POOL kept", 64, "'snapshot diff' is gone"},
    // Other pools and files: what is not there is said first.
    {"import POOL MISSING", 66, "MISSING"},
    {"expand POOL MISSING --out EMPTY --force", 66, "MISSING"},
    {"eval POOL MISSING", 66, "MISSING"},
    // Kinds.
    {"kind list POOL 9", 66, "there is no kind 9"},
    {"kind merge POOL 0 1", 64, "'kind merge' is gone"},
    {"kind name POOL 0", 64, "give a name, or --remove"},
};

static char *resolve(const world *w, const char *word) {
    const char *const names[][2] = {{"POOL", w->pool},       {"ENGLISH", w->english},
                                    {"CODE", w->code},       {"EMPTY", w->empty},
                                    {"MISSING", w->missing}, {"NOPOOL", w->not_a_pool}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(word, names[i][0]) == 0) return formatted("%s", names[i][1]);
    char *text = formatted("%s", word);
    for (char *c = text; *c; c++)
        if (*c == '~') *c = ' ';
    return text;
}

static void check(const answer *a, const world *w, const program *p) {
    if (p->code != a->code) fail_msg("reef %s: exit %d: %s", a->typed, p->code, p->err);
    if (a->code != 0 && (p->out[0] != '\0' || line_count(p->err) != 1))
        fail_msg("reef %s: not one line: %s%s", a->typed, p->out, p->err);
    if (a->says[0] == '.') {
        char *path = formatted("%s", a->says + 1), *wanted = strchr(path, '=');
        *wanted++ = '\0';
        const json_t *found = json_at(json_of_text(p->out), path);
        char *text = found != NULL ? keep(json_dumps(found, JSON_ENCODE_ANY)) : p->out;
        if (strcmp(text, wanted) != 0) fail_msg("reef %s: %s is %s", a->typed, path, text);
        return;
    }
    bool absent = a->says[0] == '!';
    char *wanted = resolve(w, a->says + absent);
    bool found = strstr(p->out, wanted) != NULL || strstr(p->err, wanted) != NULL;
    if (found == absent) fail_msg("reef %s: '%s' in %s%s", a->typed, a->says, p->out, p->err);
}

WORLD_TEST(each_is_answered) {
    for (size_t i = 0; i < sizeof(ANSWERS) / sizeof(ANSWERS[0]); i++) {
        const char *argv[ARGUMENTS_MAX] = {REEF_BINARY};
        size_t count = 1;
        char *typed = formatted("%s", ANSWERS[i].typed), *rest = NULL;
        for (char *word = strtok_r(typed, " ", &rest); word != NULL;
             word = strtok_r(NULL, " ", &rest))
            argv[count++] = resolve(w, word);
        if (ANSWERS[i].says[0] == '.') argv[count] = "--json";
        program p;
        program_run(&p, argv, NULL);
        check(&ANSWERS[i], w, &p);
    }
}

RUN_TESTS_IN(world_make, world_remove)
