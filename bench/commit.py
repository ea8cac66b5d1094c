"""What durability costs: frames appended to a sparse dataset, each durable before the next, beside a
plain file that gets the same frames and is synced as often; and without syncs, beside the same without
a journal."""

from harness import Ratios, print_table, rotated, row

EACH, END = "fsync after each frame", "one fsync in the end"
SPARSEFS, UNJOURNALED, PLAIN = "sparsefs", "unjournaled", "plain"
EVERY = {"1 % defined": 100, "10 % defined": 10, "all defined": 1}


def measure_commit(bench):
    frames = 25 if bench.quick else 100
    path = bench.directory / "commit"
    for turn in range(bench.rounds):
        for what, every in EVERY.items():
            for state, word in ((EACH, "each"), (END, "end")):
                for who in rotated((SPARSEFS, UNJOURNALED, PLAIN), turn):
                    seconds = float(bench.run_tool("commit", who, word, path, frames, every))
                    bench.add(what, state, who, [seconds / frames])
                    path.unlink()


def report_commit(bench):
    columns = (SPARSEFS, UNJOURNALED, PLAIN)
    print("\nAppending frames of 1024 x 1024 uint16 without filters; the plain file gets all elements of each")
    for state in (EACH, END):
        print_table(f"ms, {state}", columns,
                    [(what, row(bench, what, state, columns)) for what in EVERY])
    ratios = Ratios(bench)
    for what in EVERY:
        ratios.below(what, EACH, SPARSEFS, PLAIN, 2)
    for what in EVERY:
        ratios.below(what, END, SPARSEFS, UNJOURNALED, 1.15)


SECTIONS = {"commit": (measure_commit, report_commit)}
