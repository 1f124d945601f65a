"""backfuzz: a fuzzer for the backward pass of compiled PyTorch.

It writes random differentiable programs, runs each one's gradient in eager and under a compiler, proves that a
difference cannot be rounding, shrinks the program and says what is at fault. A folder of this package holds one
concept; docs/how-it-works.md of the source says how they follow each other. The package `minimizer` lies beside it.

To begin with:

fuzzer.language.text.parse         a Program from its text; `show` writes one
fuzzer.language.ops.OPS            the operations that programs are made of
fuzzer.judgement.oracles.ORACLES   what is claimed of every program's run
fuzzer.workers.pool.Pool         worker processes, in which programs run
fuzzer.ledger.store.open_store   the ledger: findings that reproduced
fuzzer.campaign.loop.Campaign      the loop: draw, run, judge, minimize, verify, store
fuzzer.commands.main               the command `backfuzz`, which is also `python -m backfuzz`
"""
