"""`python -m attn_tutor.bench`: its arguments, what it writes, its table; how memory grows. No test asks a clock."""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import types

import pytest
import torch
from matplotlib.figure import Figure

import benchmarks
from attn_tutor.bench import command, measure, report
from attn_tutor.bench.case import Case, Contestant
from attn_tutor.bench.rows import DEFAULT, ROWS


@pytest.fixture(autouse=True)
def restored_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--device", "tpu"], "invalid choice: 'tpu'"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
        (["--sizes"], "expected at least one argument"),
        (["--sizes", "0"], "'0' is not a whole number above 0"),
        (["--sizes", "1.5"], "'1.5' is not a whole number above 0"),
        (["--rows", "atention"], "invalid choice: 'atention'"),
        (["--json", "no/such/folder/x.json"], "is no place for a file"),
        (["--plot", "picture.txt"], "ends in .svg, .png or .pdf"),
    ],
)
def test_bad_arguments_get_a_usage_line(arguments, complaint, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.parse(arguments)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: python -m attn_tutor.bench")
    assert complaint in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a CUDA device")
def test_no_cuda_device_is_said_at_once(capsys):
    with pytest.raises(SystemExit):
        command.parse(["--device", "cuda"])
    assert "torch sees no CUDA device" in capsys.readouterr().err


def plan(*arguments):
    return command.cases(command.parse(arguments))


def test_the_plan_has_both_halves_and_gradients_where_torch_has_them():
    cases = plan("--rows", "attention", "--sizes", "13", "17")
    assert [(c.half, c.backward, c.n) for c in cases] == [
        ("numpy", False, 13), ("numpy", False, 17), ("torch", False, 13),
        ("torch", False, 17), ("torch", True, 13), ("torch", True, 17),
    ]  # fmt: skip  # cases in columns
    assert all(c.compiled for c in cases)


def test_quick_takes_two_sizes_and_compiles_nothing():
    cases = plan("--quick")
    assert {c.row for c in cases} == set(DEFAULT)
    assert not any(c.compiled for c in cases)
    for name, row in ((name, ROWS[name]) for name in DEFAULT):
        assert {c.n for c in cases if c.row == name} == set(row.sizes[:2])


def test_numpy_has_no_bfloat16():
    assert {c.half for c in plan("--dtype", "bfloat16")} == {"torch"}


def contestants(row, half, **options):
    torch.manual_seed(0)
    found = list(ROWS[row].compete(Case(row, half, 37, **options)))
    assert {c.role for c in found} >= {"ours", "textbook", "limit"}
    return found


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("half", ["numpy", "torch"])
def test_contestants_compute_one_thing(row, half, close):
    """All are given the same numbers, but for those that draw weights of their own or compute another score."""
    results = {}
    for contestant in contestants(row, half, dtype="float64"):
        with (
            contextlib.suppress(ModuleNotFoundError),
            torch.compiler.set_stance("force_eager"),
        ):
            results[contestant.name] = contestant.call(), contestant.role
    expected = next(x for x, role in results.values() if role == "textbook")
    for name, (result, role) in results.items():
        if role != "limit" and name not in ("torch SDPA, another score", "d2l"):
            close(result, expected, "float32" if row == "table" else None)


@pytest.mark.parametrize("row", [name for name, row in ROWS.items() if row.trained])
def test_every_trained_row_has_gradients(row):
    case = Case(row, "torch", 37, backward=True)
    for contestant in contestants(row, "torch", backward=True):
        with contextlib.suppress(ModuleNotFoundError):
            measure.prepared(case, contestant)()


def test_a_window_and_a_triangle_count_their_pairs_of_query_and_key():
    """The limit's square product has two multiply-adds for each pair, head and width, whatever hides the others."""
    n = 600
    for row, pairs in (
        ("attention", n * n),
        ("causal", n * (n + 1) / 2),
        ("window", sum(min(i + 1, 256) for i in range(n))),
    ):
        [limit] = [
            c for c in ROWS[row].compete(Case(row, "torch", n)) if c.role == "limit"
        ]
        side = len(limit.call())
        assert side**3 == pytest.approx(2 * 8 * 64 * pairs, rel=0.05)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One run of the command, as a user starts it."""
    folder = tmp_path_factory.mktemp("bench")
    arguments = "--quick --sizes 37 --rows causal --json result.json --plot plot.svg"
    done = subprocess.run(
        [sys.executable, "-m", "attn_tutor.bench", *arguments.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return done, result, (folder / "plot.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_says_all_that_is_needed_to_repeat_it(written):
    done, result, _ = written
    # A progress bar is for terminals; what torch for CUDA says where there is no GPU is its own.
    ours = [x for x in done.stderr.splitlines() if "cpp_extension.py" not in x]
    assert ours == []
    assert result["command"].startswith("python -m attn_tutor.bench --quick --sizes 37")
    assert set(result["versions"]) >= {"attn_tutor", "Python", "numpy", "torch"}
    assert result["machine"]["processor"]
    assert result["machine"]["cores"] == result["settings"]["threads"]
    assert result["settings"]["dtype"] == "float32"


@pytest.mark.slow
def test_a_run_measures_every_contestant(written):
    done, result, plot = written
    contests = result["results"]
    assert len(contests) == 3  # NumPy, torch, torch with gradients
    for contest in contests:
        assert {e["role"] for e in contest["contestants"]} >= {
            "ours",
            "textbook",
            "limit",
        }
        for entry in contest["contestants"]:
            if "left out" in entry:
                assert entry["role"] == "peer"
                continue
            q1, q2, q3 = entry["ms"]
            assert 0 < q1 <= q2 <= q3
            assert (
                entry["steady"] == (q3 - q1 <= measure.UNSTEADY * q2) or q3 / q2 < 1.2
            )
            assert ("MiB" in entry) == (entry["role"] != "limit")
    assert done.stdout.rstrip() == report.text(result)
    assert plot.count("<svg") == 1


def test_an_interrupt_keeps_what_was_measured(tmp_path, monkeypatch, capsys):
    def compare(case, rounds, budget):
        if case.n == 17:
            raise KeyboardInterrupt
        entry = {"role": "ours", "name": "attention", "ms": [1, 2, 3], "steady": False}
        about = {"row": case.row, "half": case.half, "n": case.n, "backward": False}
        return about | {"contestants": [entry]}

    monkeypatch.setattr(command, "compare", compare)
    path = tmp_path / "result.json"
    arguments = ["--quick", "--rows", "softmax", "--sizes", "13", "17", "--json", path]
    assert command.main([str(x) for x in arguments]) == 130
    assert [c["n"] for c in json.loads(path.read_text("utf-8"))["results"]] == [13]
    said = capsys.readouterr().out
    assert said.startswith("Stopped; 1 of 4 comparisons were made.")
    assert "Masked softmax, NumPy, n = 13" in said


@pytest.fixture
def competing(monkeypatch):
    """Entries of such contestants, three rounds each."""

    def _competing(*them):
        row = ROWS["attention"]._replace(compete=lambda case: iter(them))
        monkeypatch.setitem(ROWS, "attention", row)
        return measure.compete(Case("attention", "torch", 13), rounds=3, budget=0)[0]

    return _competing


def test_an_installed_peer_takes_part(monkeypatch):
    fake = types.ModuleType("d2l.torch")
    fake.masked_softmax = lambda x, lengths: x
    monkeypatch.setitem(sys.modules, "d2l", types.ModuleType("d2l"))
    monkeypatch.setitem(sys.modules, "d2l.torch", fake)
    entries, _ = measure.compete(Case("softmax", "torch", 13), rounds=3, budget=0)
    assert ["ms" in e for e in entries if e["name"] == "d2l"] == [True]


def test_a_peer_that_fails_is_left_out_and_says_why(competing):
    def fails():
        raise NotImplementedError("no such device\nand much more")

    def imports():
        importlib.import_module("no_such_package.torch")

    giant = Contestant("textbook", "giant", lambda: pytest.fail("called"), stores=2**50)
    entries = competing(
        Contestant("ours", "well", lambda: None),
        Contestant("peer", "ill", fails),
        Contestant("peer", "absent", imports),
        giant,
    )
    assert [e.get("left out") for e in entries] == [
        None,
        "NotImplementedError: no such device",
        "no_such_package is not installed",
        "MemoryError: would build 4194304 GiB",
    ]
    assert ["ms" in e for e in entries] == [True, False, False, False]


def test_turns_go_forth_and_back_and_a_slow_one_leaves_after_three(monkeypatch):
    seconds, order = {"quick": 1.0, "slow": 5.0}, []

    def turn(call):
        order.append(call())
        return seconds[call()]

    monkeypatch.setattr(measure, "turn", turn)
    calls = {0: lambda: "quick", 1: lambda: "slow"}
    case = Case("attention", "torch", 13)
    quartiles = measure.in_turns(calls, case, rounds=6, budget=5)
    assert quartiles == {0: [1, 1, 1], 1: [5, 5, 5]}
    both = ["quick", "slow", "slow", "quick", "quick", "slow"]
    assert order == [*both, "quick", "quick"]


def test_unsteady_times_are_marked(monkeypatch, competing):
    times = {0: [1.0, 2.0, 3.0], 1: [2.0, 2.0, 2.25]}
    monkeypatch.setattr(measure, "in_turns", lambda *_: times)
    wild, calm = (Contestant("ours", name, lambda: None) for name in ("wild", "calm"))
    entries = competing(wild, calm)
    assert [e["ms"] for e in entries] == [[1000, 2000, 3000], [2000, 2000, 2250]]
    assert [e["steady"] for e in entries] == [False, True]


FIXED = {
    "command": "python -m attn_tutor.bench --quick",
    "date": "2026-01-02",
    "machine": {"processor": "Abacus", "cores": 2, "system": "Linux x86_64"},
    "versions": {"NumPy": "2.0"},
    "settings": {"device": "cpu", "dtype": "float32", "threads": 2, "rounds": 5},
    "results": [
        {
            "row": "attention", "half": "numpy", "n": 2048, "backward": False,
            "contestants": [
                {"role": "ours", "name": "attention", "ms": [38, 40, 42], "steady": True, "MiB": 6.25},
                {"role": "textbook", "name": "attend", "ms": [110, 120, 140], "steady": False, "MiB": 388},
                {"role": "peer", "name": "slow", "ms": [60, 60, 60], "steady": True, "MiB": 5},
                {"role": "peer", "name": "SDPA", "ms": [43, 44, 45], "steady": True, "MiB": 5},
                {"role": "peer", "name": "ill", "left out": "would build 9 GiB"},
                {"role": "limit", "name": "products", "ms": [32, 32, 32], "steady": True},
                {"role": "limit", "name": "bytes", "ms": [8, 8, 8], "steady": True},
            ],
        }
    ],
}  # fmt: skip  # one contestant a line


def test_a_plot_shows_what_lies_below_the_limit():
    ax = Figure().subplots()
    contestants = [
        {"role": "ours", "name": "ours", "ms": [8, 8, 8], "steady": True},
        {"role": "limit", "name": "limit", "ms": [16, 16, 16], "steady": True},
    ]
    report.panel(ax, "fast, NumPy", [{"n": 2048, "contestants": contestants}])
    assert ax.get_ylim()[0] < 0.5


TABLE = """\
Abacus, 2 cores, Linux x86_64. float32 on cpu, 2 threads. NumPy 2.0.

Dot-product attention, NumPy, n = 2048 (8 heads of width 64)
                                           ÷ ours  ÷ limit        ms  quartiles              MiB
  ours: attention                            1.00     1.25      40.0  38.0 – 42.0           6.25
  textbook: attend                           3.00     3.75       120  110 – 140 ~            388
  peer: slow                                 1.50     1.88      60.0  60.0 – 60.0           5.00
  peer: SDPA                                 1.10     1.38      44.0  43.0 – 45.0           5.00
  peer: ill                              left out: would build 9 GiB
  limit: products                            0.80     1.00      32.0  32.0 – 32.0              –
  limit: bytes                               0.20     0.25      8.00  8.00 – 8.00              –

~ the quartiles lie more than 15 % apart"""


def test_the_table_of_a_fixed_result():
    assert report.text(FIXED) == TABLE


def test_the_books_table_names_the_fastest_peer():
    line = benchmarks.table(FIXED["results"]).splitlines()[-1]
    assert line == "| 2048 | 40.0 | 1.25 | 3.00 | 1.10 | SDPA | 6.25 | 388 |"
    said = benchmarks.alt_text(FIXED, "numpy")
    assert "n = 2048: ours 1.25 times the limit, the textbook 3.75" in said


# The system counts what test_complexity.py cannot see: what BLAS and the threads take, too.
needs_proc = pytest.mark.skipif(
    not measure.RESET.exists(), reason="peak memory is read from Linux's /proc"
)


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("half", ["numpy", "torch"])
def test_memory_of_attention_grows_with_n_and_not_with_its_square(half):
    small, large = (
        measure.memory_on_cpu(Case("attention", half, n), "attention")
        for n in (1009, 4036)
    )
    output = 4036 * 512 * 4 / 2**20
    assert output <= large + 0.5  # it is counted at all
    assert large < 6 * max(small, output / 4)


@pytest.mark.slow
@needs_proc
def test_memory_of_the_textbook_grows_with_the_square():
    """What the guard above would see, were the engine to store its scores."""
    small, large = (
        measure.memory_on_cpu(
            Case("attention", "torch", n), "attend(scaled_dot_score(…))"
        )
        for n in (499, 1996)
    )
    assert large > 12 * small
