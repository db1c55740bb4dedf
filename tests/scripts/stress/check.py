"""check.py NAME DOCUMENT: the document of a campaign has its keys, and what it says fits together."""

import json
import sys

KEYS = {
    "kill": "kills hash_equal acknowledged_lost duplicated generations runs records",
    "clients": "livez_p99_ms closed_within_s rss_growth_bytes training_loss_share connections",
    "queries": "score_p99_ms training_share requests_per_s refused failed",
    "tail": "bytes_written bytes_trained gaps duplicates rss_growth_bytes lag_bytes_max rotations scores_equal",
    "soak": "rss_slope_bytes_per_h descriptors_min descriptors_max file_bytes_first file_bytes_max sanitizer_reports",
    "week": "kills clean_stops rotations states_made verified lost twice opening_after_kill_p50_s commits roots_equal",
}


def check(name, document):
    assert document["campaign"] == name and document["quick"] is True
    for key in KEYS[name].split():
        assert document.get(key) is not None, f"no {key}"
    for key, goal in document["goals"].items():
        assert key in document and isinstance(goal["met"], bool), key
        assert goal["met"] or not goal["always"], key
    if name == "kill":
        assert document["kills"] >= 1 and document["runs"] >= 1
        if document["net_share"] is None:
            assert document["kills"] >= 25 and document["restart_p99_ms"] > 0
    elif name == "clients":
        assert document["connections"] > document["clients"], "nobody came back"
        assert min(document["lives_s"].values()) >= 0 and len(document["lives_s"]) >= 12, document["lives_s"]
    elif name == "queries":
        assert document["requests_per_s"] > 0 and document["score_p50_ms"] <= document["score_p99_ms"]
    elif name == "tail":
        assert document["bytes_written"] == document["bytes_trained"]
    elif name == "week":
        assert document["finished"] and document["learned"] == document["total"], document
        assert document["verified"] >= 1 and document["lives"] >= 2
    else:
        assert document["bytes_trained"] > 0 and document["verified"] >= 1
        assert all(count > 0 for count in document["done"].values()), document["done"]


if __name__ == "__main__":
    with open(sys.argv[2]) as file:
        check(sys.argv[1], json.load(file))
