"""How fast rows go through a rewriter: what the client costs beside the server's own time, and what the cache saves.

    python benchmarks/rewriting.py [--rows 400] [--latency 0.2]
    python benchmarks/rewriting.py --checkpoint smollm2 [--rows 32] [--tokens 128] [--batches 1 4 16 32]

A server on this machine answers every request after a fixed time, so that the ideal rate is known: concurrency divided
by latency; its processor time is counted with the client's, since both are in one process. Then the
same rows again, from the cache, and by the surrogate rewriter, which asks nobody.

With ``--checkpoint`` a model of this machine writes the rows instead, on one thread, with several batch sizes: tokens
written a second of processor time, reading the prompts included.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from davylamp.protect.corpus.base import Setting, Writing
from davylamp.protect.corpus.journal import rows_of
from davylamp.protect.corpus.prompting import load_prompts
from davylamp.protect.corpus.registry import kind_of, spec_of
from davylamp.runs.progress import QUIET
from support.chat_server import Reply, chat_server
from support.clinical_rows import clinical_records


def checkpoint(name: str, count: int, tokens: int, sizes: list[int]) -> None:
    """Print how fast a checkpoint of this machine writes rows, by how many it writes at a time."""
    from davylamp.studies.local_writer import LocalWriter

    writer = LocalWriter.load(name, 1)
    prompts = load_prompts("rewrite")
    chats = [prompts.chat("", {"record": record.reply}) for record in clinical_records(count)]
    print(f"{name}, one thread, {count} records, {tokens} tokens an answer at most")
    print("| batch_size | tokens of answers | tokens a processor second | records a processor minute |")
    print("| --- | --- | --- | --- |")
    for size in sizes:
        asked = chats[: max(2, count // 4)] if size == 1 else chats
        used = time.process_time()
        how = Writing(tokens, 0.8, 0.95, batch_size=size)
        said = sum(answer.completion_tokens for _, answer in writer.write(asked, range(len(asked)), how))
        used = time.process_time() - used
        print(f"| {size} | {said} | {said / used:.0f} | {60 * len(asked) / used:.0f} |", flush=True)


def main() -> None:
    """Print a table of rates in rows a second."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rows", type=int, help="400, or 32 with a checkpoint")
    parser.add_argument("--latency", type=float, default=0.2, help="seconds that the server takes for an answer")
    parser.add_argument("--checkpoint", help="what --model takes")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 32])
    given = parser.parse_args()
    if given.checkpoint is not None:
        checkpoint(given.checkpoint, given.rows or 32, given.tokens, given.batches)
        return
    given.rows = given.rows or 400
    rows = rows_of(clinical_records(given.rows), once=False)
    print(f"{given.rows} records, {given.latency} s an answer; rows a second")
    print("| concurrency | ideal | from the server | processor ms a row | from the cache | processor ms a row |")
    print("| --- | --- | --- | --- | --- | --- |")
    for concurrency in (1, 8, 32, 128):
        with (
            tempfile.TemporaryDirectory() as folder,
            chat_server(lambda *_: Reply(rows[0].record.reply, wait=given.latency), ["tiny"]) as served,
        ):
            data = {"name": "rewrite", "server": served.url, "model": "tiny", "concurrency": concurrency}
            taken = rows[: max(20, given.rows if concurrency > 1 else given.rows // 10)]
            rates, cost = [], []
            for _ in range(2):
                rewriter = kind_of("rewrite").build(
                    spec_of(data), Setting(rows, cache=Path(folder), agreed=lambda _: True)
                )
                begun, used = time.perf_counter(), time.process_time()
                made = list(rewriter.apply(taken, QUIET))
                rates.append(len(made) / (time.perf_counter() - begun))
                cost.append(1000 * (time.process_time() - used) / len(made))
        ideal = concurrency / given.latency
        cells = (f"{rates[0]:.1f}", f"{cost[0]:.1f}", f"{rates[1]:,.0f}", f"{cost[1]:.2f}")
        print(f"| {concurrency} | {ideal:.0f} | {' | '.join(cells)} |", flush=True)
    surrogate = kind_of("surrogate").build(spec_of({"name": "surrogate"}), Setting(rows))
    begun = time.perf_counter()
    made = list(surrogate.apply(rows, QUIET))
    print(f"surrogate: {len(made) / (time.perf_counter() - begun):,.0f} rows a second")


if __name__ == "__main__":
    main()
