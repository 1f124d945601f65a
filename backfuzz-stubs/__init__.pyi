# For type checkers, which look for no marker beside a module that stands alone: the public names of `backfuzz`.
from pathlib import Path

from fuzzer.campaign.loop import Campaign as Campaign
from fuzzer.campaign.plan import Plan as Plan
from fuzzer.generation.strategies import programs as programs
from fuzzer.judgement.trial import Place as Place
from fuzzer.judgement.trial import Subject as Subject
from fuzzer.judgement.verdict import Verdict as Verdict
from fuzzer.language.errors import NoMachine as NoMachine
from fuzzer.language.errors import UsageError as UsageError
from fuzzer.language.ops.spec import Attribute as Attribute
from fuzzer.language.ops.spec import Operand as Operand
from fuzzer.language.ops.spec import OpSpec as OpSpec
from fuzzer.language.program import Program as Program
from fuzzer.language.text import parse as parse
from fuzzer.language.text import show as show
from fuzzer.language.transcribe import Inexpressible as Inexpressible
from fuzzer.trial.calls import Uncheckable as Uncheckable
from fuzzer.trial.check import check as check
from fuzzer.trial.check import run as run
from fuzzer.trial.home import program_of as program_of
from fuzzer.workers.messages import Task as Task

FOLDER: Path  # with the packages

def main() -> None: ...
