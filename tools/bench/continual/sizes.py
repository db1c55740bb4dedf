"""How large a model is and what a byte costs it: parameters, those that one byte uses, FLOPs.

Formulas over the configuration that `reef init --json` prints. Those of a model's first generation are the ones of
`reef train --flops` (docs/PAPER.md, "What a FLOP is here"), and test_continual_bench compares them. A later generation
has a router and experts of its own, corrections and a gate. Corrections are merged into the matrices that they correct
before anything is evaluated, so a byte on which a generation fires costs its router and its experts more.

A FLOP here is of a forward pass: what a byte costs when it is predicted.
"""

import math

ATTENTION_ROWS = 64  # queries whose products with keys are computed together, up to the end of their block
GATE_PARAMETERS = 4 * 65536  # one weight for each hashed context of one to four bytes


def letter(config, layer):
    return config["ffw"] if len(config["ffw"]) == 1 else config["ffw"][layer]


def retrieving(config):
    return [layer for layer in range(config["layers"]) if letter(config, layer) in "pk"]


def row_vectors(config, layer):
    """Vectors of an expert: those that meet the token, and the one that is added up."""
    if letter(config, layer) == "k":
        return 1
    return 3 if config["expert"] == "glu" else 2


def router_parameters(config, side):
    width = config["heads"] * config["d_key"]
    key = config["d_key"] // 2 * (config["heads"] if config["subkeys"] == "head" else 1)
    return width * config["d_model"] + (2 * width if config["batch_norm"] else 0) + 2 * side * key


def moe_taken(config):
    """Experts of a mixture that a token has on average."""
    experts, context = config["moe_experts"], config["context"]
    capacity = min(max(math.ceil(config["moe_capacity"] * context / experts), 1), context)
    return capacity * experts / context


def layer_parameters(config, layer, side):
    """In all, and of one token."""
    D, F = config["d_model"], config["d_ffw"]
    if letter(config, layer) == "d":
        return 2 * D * F, 2 * D * F
    if letter(config, layer) == "m":
        experts = config["moe_experts"]
        return experts * (D + 2 * D * F), experts * D + moe_taken(config) * 2 * D * F
    row = row_vectors(config, layer) * D
    router = router_parameters(config, side)
    return router + side * side * row, router + config["heads"] * config["topk"] * row


def first_generation(config):
    """(parameters, of them active in a token) of a model with one generation."""
    D, V, tables = config["d_model"], config["vocab"], 1 + config["previous_bytes"]
    total = tables * V * D + config["context"] * D
    active = tables * D + D
    for layer in range(config["layers"]):
        of_all, of_token = layer_parameters(config, layer, config["side"])
        total += 4 * D * D + 4 * D + of_all
        active += 4 * D * D + 4 * D + of_token
    head = D * V + 2 * D
    return total + head, active + head


def correction_parameters(config, rows, columns):
    rank = config["adapters"]
    whole = config["adapt_whole"] and rank * (rows + columns) >= rows * columns
    return rows * columns if whole else rank * (rows + columns)


def has_gates(config):
    memories = config["boundaries"] == "contexts" and config["net_share"] == 0
    return config["strategy"] == "generations" and config["gate"] != "off" and not memories


def later_generation(config, side):
    """(parameters, of them active in a token on which it fires); a gate is asked about every token."""
    D, V, F = config["d_model"], config["vocab"], config["d_ffw"]
    total = (1 + config["previous_bytes"]) * V * D + D * V
    total += config["context"] * D if config["adapt_position"] else 0
    active = 0
    for layer in range(config["layers"]):
        if config["adapters"]:
            total += correction_parameters(config, D, 3 * D) + correction_parameters(config, D, D)
            if config["adapt_ffw"] and letter(config, layer) == "d":
                total += correction_parameters(config, D, F) + correction_parameters(config, F, D)
        if layer in retrieving(config):
            of_all, of_token = layer_parameters(config, layer, side)
            older = D if config["weigh_older"] else 0
            total += of_all + older
            active += of_token + older
    return total + (GATE_PARAMETERS if has_gates(config) else 0), active


def pool_parameters(config, generations):
    """Of a pool that had opened so many generations."""
    return first_generation(config)[0] + (generations - 1) * later_generation(config, config["side_new"])[0]


def side_of_pool(config, generations):
    """The side with which one generation has as many parameters as a pool of so many, or a few more."""
    wanted = pool_parameters(config | {"strategy": "generations"}, generations)
    if not retrieving(config):
        return config["side"]
    side = config["side"]
    while first_generation(config | {"side": side})[0] < wanted:
        side += 1
    return side


# ---- FLOPs of a forward pass, for a token --------------------------------------------------------------


def retrieval_flops(config, layer, side):
    D, width = config["d_model"], config["heads"] * config["d_key"]
    rows = row_vectors(config, layer) * 2 * config["heads"] * config["topk"] * D
    return 2 * D * width + 2 * width * side + rows


def layer_flops(config, layer):
    D, F = config["d_model"], config["d_ffw"]
    if letter(config, layer) == "d":
        return 4 * D * F
    if letter(config, layer) == "m":
        return 2 * D * config["moe_experts"] + moe_taken(config) * (4 * D * F + 2 * D)
    return retrieval_flops(config, layer, config["side"])


def first_flops(config):
    D, T = config["d_model"], config["context"]
    embedded = sum(T - back for back in range(min(config["previous_bytes"] + 1, T)))
    pairs = 0
    for first in range(0, T, ATTENTION_ROWS):
        end = min(first + ATTENTION_ROWS, T)
        pairs += (end - first) * end
    attention = 2 * D * 3 * D + 2 * D * D + 4 * D * pairs / T
    layers = sum(attention + layer_flops(config, layer) for layer in range(config["layers"]))
    return 2 * D * embedded / T + layers + 2 * D * config["vocab"]


def later_flops(config, side):
    return sum(retrieval_flops(config, layer, side) for layer in retrieving(config))


# ---- a measured pool ---------------------------------------------------------------------------------------


def measure(config, sides, fire_shares):
    """What a pool has and what a byte of its held-out texts costs its net, their mean.

    sides        of its generations, in their order
    fire_shares  of each text: the share of bytes on which each generation fired
    """
    if config["model"] != "lm":
        return {"parameters": None, "parameters_active": None, "flops": None}
    if config["net_share"] == 0:
        return {"parameters": 0, "parameters_active": 0, "flops": 0}
    config = config | {"side": sides[0]}  # grown in place it is not the one it began with
    total, active = first_generation(config)
    flops = first_flops(config)
    for generation, side in enumerate(sides[1:], 1):
        of_all, of_token = later_generation(config, side)
        share = sum(shares[generation] for shares in fire_shares) / len(fire_shares) if fire_shares else 0
        total += of_all
        active += share * of_token + (4 if has_gates(config) else 0)
        flops += share * later_flops(config, side)
    return {"parameters": total, "parameters_active": round(active), "flops": round(flops)}
