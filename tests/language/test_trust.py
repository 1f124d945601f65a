"""What a stranger's text may not say; and whatever it says, the parser answers in one line."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzer.language.settings import SETTINGS, UnknownSetting, in_force
from fuzzer.language.text import ParseError, parse, show
from fuzzer.language.trust import MOST_CHARACTERS, harmless, why_refused

TEXT = """# a comment
program(1)
settings({"inductor.max_fusion_size": 4})
route("autograd")
x0 = leaf(f32[4], values=between(1, 3), seed=1)
v0 = exp(x0)
backward(v0, cotangent(f32[4]))
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inductor.cpp.cxx", ("sh", "evil")), ("inductor.cuda.cuda_cxx", "evil"), ("inductor.trace.upload_tar", "curl"),
        ("inductor.trace.enabled", True), ("inductor.fx_graph_remote_cache", True), ("dynamo.debug_dir_root", "x"),
        ("inductor.global_cache_dir", "x"), ("inductor.aot_inductor.output_path", "x"), ("inductor.compile_threads", 9),
        ("inductor.post_grad_custom_post_pass", "x"), ("inductor._pre_fusion_custom_pass", "x"),
        ("inductor.cpp.march", "native -fplugin=x"), ("inductor.cpp.march", "../x"), ("inductor.xpu.oneapi_root", "x"),
        ("inductor.cuda.compile_opt_level", "-fplugin"), ("inductor.aot_inductor.custom_op_libs", ("x",)),
        ("dynamo.automatic_dynamic_remote_pgo", True), ("dynamo.repro_after", "aot"), ("dynamo.log_file_name", "x"),
    ],
)  # fmt: skip
def test_settings_that_name_programs_paths_or_networks_are_refused(name: str, value: object) -> None:
    assert why_refused(name, value)  # type: ignore[arg-type]
    written = repr(value).replace("'", '"')
    with pytest.raises(ParseError, match=rf"line 3, column 11: the setting {name}"):
        parse(TEXT.replace('"inductor.max_fusion_size": 4', f'"{name}": {written}'))
    with pytest.raises(UnknownSetting, match=f"the setting {name}"), in_force(((name, value),)):  # type: ignore[arg-type]
        raise AssertionError("it is in force")


def test_every_setting_that_is_drawn_may_be_said() -> None:
    assert [why_refused(s.name, value) for s in SETTINGS for value in s.values if why_refused(s.name, value)] == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("leaf(f32[4]", "leaf(f32[1099511627776]", "line 5, column 6: expected a storage of 268435456 elements"),
        ("leaf(f32[4]", "leaf(f32[4], stride=(999999999,)", "a storage of"),
        ("leaf(f32[4]", "leaf(f32[4], offset=999999999", "a storage of"),
        ("leaf(f32[4]", "leaf(f32[0, 999999999999]", "a storage of"),
        ("cotangent(f32[4]", "cotangent(f32[4], stride=(999999999,)", "a storage of"),
        ("between(1, 3)", 'between("1", "3")', "numbers for between"),
        ("seed=1", f"seed={2**70}", "an integer of 64 bits"),
        ("seed=1", "seed=" + "9" * 9000, "line 5"),
        ("seed=1", "seed=" + "-" * 90_000 + "1", "line 1, column 1"),
        ("seed=1", "seed=" + "(" * 9000, "line "),
        ("# a comment", "# \x1b]0;owned\x07", r"line 1, column 3: plain text, not '\\x1b'"),
        ("exp(x0)", "exp(x0)  # \u202e", "line 6, column 17: plain text"),
        ("between(1, 3)", r'"\x1b[2J"', r"line 5, column 26: expected a string of plain text, not '\\x1b\[2J'"),
        ('"inductor', r'"\a.inductor', "line 3, column 11: expected a string of plain text"),
        ("# a comment", "# " + "x" * MOST_CHARACTERS, "characters at most"),
    ],
)  # fmt: skip
def test_sizes_depth_and_characters_are_checked_before_anything_is_made_of_them(old: str, new: str, said: str) -> None:
    with pytest.raises(ParseError, match=said):
        parse(TEXT.replace(old, new, 1))


def test_a_string_is_shown_so_that_it_is_read_as_it_was() -> None:
    program = parse(TEXT.replace("exp(x0)", 'exp(x0, note="a\\nb\\t\\"c\\\\")'))
    assert dict(program.nodes[0].attrs)["note"] == 'a\nb\t"c\\'
    assert parse(show(program)) == program
    quoted = parse(TEXT.replace('"inductor.max_fusion_size": 4', '"inductor.a\'b\\"c": 4'))
    assert dict(quoted.settings) == {"inductor.a'b\"c": 4}
    assert parse(show(quoted)) == quoted


def test_characters_that_a_terminal_obeys_are_written_out() -> None:
    assert harmless("a\x1b[2Jb\n\u202ec\x9b") == "a\\x1b[2Jb\n\\u202ec\\x9b"


PIECES = st.sampled_from([*TEXT.split(), *'()[]{},=:."\\\n#', "settings({", "f32[", "**", "lambda:", "\x00", "1e999"])
# not st.text(): in a fresh checkout that makes a table of all of Unicode first, for 3 CPU seconds
CHARACTERS = st.one_of(st.integers(0, 0x7F), st.integers(0, 0xD7FF), st.integers(0xE000, sys.maxunicode)).map(chr)
TEXTS = st.lists(CHARACTERS, max_size=5).map("".join)


def check(text: str) -> None:
    try:
        program = parse(text)
    except ParseError:
        return
    assert show(parse(show(program))) == show(program)


@settings(max_examples=30)
@given(
    st.lists(PIECES | TEXTS, max_size=12),
    st.integers(0, len(TEXT)),
    st.integers(0, 40),
)
def test_any_text_is_a_program_or_refused(pieces: list[str], at: int, dropped: int) -> None:
    check(TEXT[:at] + "".join(pieces) + TEXT[at + dropped :])
