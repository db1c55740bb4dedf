// Statuses, their texts and exit codes, and the one function that fills an error.
//
// All three lists come from REEF_STATUS_LIST, so they cannot drift apart. Nothing here allocates or
// prints: an error can be reported when memory and disk are both used up.
#include "reef_error.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

static const char *const status_texts[] = {
#define REEF_STATUS_TEXT(name, text, code) [name] = text,
    REEF_STATUS_LIST(REEF_STATUS_TEXT)
#undef REEF_STATUS_TEXT
};

static const int status_exit_codes[] = {
#define REEF_STATUS_CODE(name, text, code) [name] = code,
    REEF_STATUS_LIST(REEF_STATUS_CODE)
#undef REEF_STATUS_CODE
};

#define STATUS_COUNT (sizeof(status_texts) / sizeof(status_texts[0]))

// Parentheses keep the analyser's macro of the same name (reef_error.h) from expanding here.
reef_status(reef_fail)(reef_error *err, reef_status status, const char *format, ...) {
    assert(status != REEF_OK);
    if (err == NULL) return status;
    err->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(err->message, sizeof(err->message), format, arguments); // cuts what is too long
    va_end(arguments);
    return status;
}

const char *reef_status_text(reef_status status) {
    return (size_t)status < STATUS_COUNT ? status_texts[status] : "unknown status";
}

int reef_status_exit_code(reef_status status) {
    return (size_t)status < STATUS_COUNT ? status_exit_codes[status] : 70; // EX_SOFTWARE
}
