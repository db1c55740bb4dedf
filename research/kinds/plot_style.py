"""How plots of benchmarks look. Imported before matplotlib.pyplot."""

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update(
    {
        "svg.hashsalt": "reef",  # the same figures give the same file
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.edgecolor": "#6b6b6b",
        "axes.axisbelow": True,
    }
)
