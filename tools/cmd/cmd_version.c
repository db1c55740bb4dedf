// reef version: which program this is and which pools it reads.
#include "commands.h"

#include <inttypes.h>

const cli_manual version_manual = {
    .about =
        "The version of the program, the pool format it reads and writes, and the kernels in use.",
    .options = NULL,
    .example = "reef version --json",
};

reef_status cmd_version(cli_call *cli, reef_error *err) {
    if (cli->json)
        return cli_answer(cli,
                          json_pack("{s:s, s:I, s:s, s:s}", "version", REEF_VERSION_TEXT, "format",
                                    (json_int_t)REEF_FORMAT_VERSION, "kernels", reef_kernels_name(),
                                    "blas", reef_gemm_name()),
                          err);
    printf("reef %s, pool format %u, kernels %s, matrix products %s\n", REEF_VERSION_TEXT,
           REEF_FORMAT_VERSION, reef_kernels_name(), reef_gemm_name());
    return REEF_OK;
}
