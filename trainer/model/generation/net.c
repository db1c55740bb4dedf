// The list of generations that make up a net.
#include "generation.h"

#include <stdlib.h>

reef_status reef_net_reserve(reef_net *net, size_t count, reef_error *err) {
    if (count <= net->gen_capacity) return REEF_OK;
    reef_gen **gens = realloc(net->gens, count * sizeof *gens);
    if (gens == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu generations", count);
    net->gens = gens;
    net->gen_capacity = count;
    return REEF_OK;
}

reef_status reef_net_append(reef_net *net, reef_gen *gen, reef_error *err) {
    reef_status status = reef_net_reserve(net, net->gen_count + 1, err);
    if (status == REEF_OK)
        net->gens[net->gen_count++] = gen;
    else
        reef_gen_free(gen);
    return status;
}

void reef_net_release(reef_net *net) {
    for (size_t g = 0; g < net->gen_count; g++) reef_gen_free(net->gens[g]);
    free(net->gens);
    *net = (reef_net){0};
}

uint64_t reef_net_parameter_count(const reef_net *net) {
    uint64_t count = 0;
    for (size_t g = 0; g < net->gen_count; g++) {
        count += net->gens[g]->value_count;
        for (uint32_t l = 0; l < net->config.layers; l++)
            count +=
                (uint64_t)net->gens[g]->peers[l].expert_count * net->gens[g]->peers[l].row_values;
    }
    return count;
}
