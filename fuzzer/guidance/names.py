"""What the command line says of guidance before anything is guided. Importing this imports no torch."""

from __future__ import annotations

from fuzzer.campaign.plan import STAGED

CODE = "code"
NAMES = ("trace", "compile", "lines", "mutation", "price", CODE)  # of ARMS
# The share of programs that are judged at the stage alone, so that half of the CPU time goes to building. Blind, half
# does where STAGED is d / (c + d), of c seconds at the stage and d of a build; here all programs take c, so that the
# share that is built is c / d.
UNBUILT = round(1 - (1 - STAGED) / STAGED, 2)
# Programs that a worker has at once at least, also where building them together saves nothing: five are chosen.
CHOSEN_FROM = 16
