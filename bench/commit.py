"""What durability costs: frames appended to a sparse dataset, each durable before the next, beside a
plain file that is synced as often; and without syncs, beside the same without a journal."""

from harness import Ratios, print_table, rotated, row

EACH, END = "fsync after each frame", "one fsync in the end"
SPARSEFS, UNJOURNALED, PLAIN = "sparsefs", "unjournaled", "plain"
APPEND = "append"


def measure_commit(bench):
    frames = 50 if bench.quick else 200
    path = bench.directory / "commit"
    stored = int(bench.run_tool("commit", SPARSEFS, "end", path, 1).split()[1])
    for turn in range(bench.rounds):
        for state, word in ((EACH, "each"), (END, "end")):
            for who in rotated((SPARSEFS, UNJOURNALED, PLAIN), turn):
                output = bench.run_tool("commit", who, word, path, frames, stored)
                bench.add(APPEND, state, who, [float(output.split()[0]) / frames])
                path.unlink()


def report_commit(bench):
    columns = (SPARSEFS, UNJOURNALED, PLAIN)
    print_table("append a frame, ms", columns,
                [(state, row(bench, APPEND, state, columns)) for state in (EACH, END)])
    ratios = Ratios(bench)
    ratios.below(APPEND, EACH, SPARSEFS, PLAIN, 2)
    ratios.below(APPEND, END, SPARSEFS, UNJOURNALED, 1.15)
    ratios.below(APPEND, END, SPARSEFS, PLAIN)


SECTIONS = {"commit": (measure_commit, report_commit)}
