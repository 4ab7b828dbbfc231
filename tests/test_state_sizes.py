"""The committed table of every kind of optimizer state, and the program that measures it."""

import csv
import re
import sys

import pytest

import state_sizes
from course_lib import memory
from course_lib._layouts import EMBEDDINGS_IN_32BIT, LAYOUTS
from course_lib.libraries import bitsandbytes
from state_sizes import Variant


@pytest.fixture(scope="module")
def committed():
    """For each model and variant: elements predicted and measured, bytes predicted and measured."""
    lines = list(csv.DictReader(state_sizes.CSV.read_text(encoding="utf-8").splitlines()))
    assert tuple(lines[0]) == state_sizes.FIELDS
    table = {
        (line["model"], Variant(line["kind"], line["embeddings_in_32bit"] == "True")): tuple(
            int(line[field]) for field in state_sizes.FIELDS[3:]
        )
        for line in lines
    }
    assert len(table) == len(lines)
    return table


@pytest.fixture(scope="module")
def planned():
    return {name: build("meta") for name, (_, build) in state_sizes.MODELS.items()}


@pytest.fixture(scope="module")
def measured():
    """Rows of the three smaller models, for the kinds in which most can go wrong."""
    if bitsandbytes() is None:
        pytest.skip("bitsandbytes takes no step here")
    kinds = [Variant("adafactor_transformers"), Variant("adamw8bit_bitsandbytes", True), Variant("lion_bitsandbytes")]
    yield [row for name in ("small", "tied", "frozen") for row in state_sizes.measure(name, kinds)]
    import bitsandbytes as module

    module.optim.GlobalOptimManager.get_instance().initialize()


# --- the table


def test_every_kind_is_there_with_every_model(committed):
    variants = {(kind, False) for kind in LAYOUTS} | {(kind, True) for kind in EMBEDDINGS_IN_32BIT}
    assert {"small", "DistilBERT", "tied", "frozen"} == set(state_sizes.MODELS)
    found = [(model, variant.kind, variant.embeddings_in_32bit) for model, variant in committed]
    assert set(found) == {(model, *variant) for model in state_sizes.MODELS for variant in variants}


def test_every_committed_number_is_predicted_today(committed, planned):
    for (model, variant), numbers in committed.items():
        size = memory.predict_state_size(planned[model], variant.kind, variant.embeddings_in_32bit)
        assert numbers == (size.elements, size.elements, size.bytes, size.bytes), f"{model}, {variant}: make sizes"


@pytest.mark.parametrize(
    ("kind", "in_32bit", "elements", "size"),
    [
        ("adamw", False, 2 * 65_783_042 + 104, 526_264_752),
        ("adafactor_transformers", False, 178_712, 714_432),
        ("adafactor_torch", False, 178_608, 714_432),
        ("adafactor", False, 178_608, 714_432),
        ("adamw8bit_bitsandbytes", False, 132_080_132, 134_004_336),
        ("adamw8bit_torchao", False, None, 134_082_576),
        ("adamw4bit_torchao", False, None, 70_342_128),
        ("adamw8bit_bitsandbytes", True, None, 269_269_008),  # 256.79 MiB
        ("sgd", False, 0, 0),
        ("sgd_momentum", False, 65_783_042, 4 * 65_783_042),
    ],
)
def test_known_sizes_of_distilbert(committed, kind, in_32bit, elements, size):
    numbers = committed["DistilBERT", Variant(kind, in_32bit)]
    assert numbers[2:] == (size, size)
    assert elements is None or numbers[:2] == (elements, elements)


def test_models_are_what_they_are_called(planned):
    for name in ("small", "DistilBERT"):
        assert all(p.requires_grad for p in planned[name].parameters())
    names = [name for name, _ in planned["tied"].named_parameters(remove_duplicate=False)]
    assert len(names) - len(list(planned["tied"].parameters())) == 1
    trained = {name: p.requires_grad for name, p in planned["frozen"].named_parameters()}
    assert len(set(trained.values())) == 2
    # One embedding that is trained and one that is not, each large enough for 8 bits.
    assert {p.requires_grad for name, p in planned["frozen"].named_parameters() if "_embeddings" in name} == {
        True,
        False,
    }
    assert all(p.numel() >= 4096 for name, p in planned["frozen"].named_parameters() if "_embeddings" in name)


def test_the_page_says_what_the_table_says(committed):
    page = state_sizes.MARKDOWN.read_text(encoding="utf-8")
    made = re.search(r"^Written by `make sizes` on (\d{4}-\d\d-\d\d),\nwith (.+)\.$", page, re.MULTILINE)
    assert [said.split()[0] for said in re.split(", | and ", made[2])] == [*state_sizes.LIBRARIES, "torchao", "Python"]
    assert f"equal in {len(committed)} of {len(committed)} rows" in page
    sections = dict(zip(state_sizes.MODELS, page.split("\n## ")[1:], strict=True))
    for name, section in sections.items():
        assert section.startswith(state_sizes.MODELS[name][0] + "\n")
        rows = {
            cells[0]: tuple(int(cell.replace(",", "")) for cell in cells[1:5])
            for line in re.findall(r"^\| (.+ \| yes) \|$", section, re.MULTILINE)
            if (cells := line.split(" | "))
        }
        assert rows == {str(variant): numbers for (model, variant), numbers in committed.items() if model == name}


# --- the program


def test_measured_again_they_are_the_same(committed, measured):
    assert len(measured) == 9
    for row in measured:
        assert row.predicted == row.measured
        assert state_sizes.numbers(row) == committed[row.model, row.variant]
        assert row.measured.by_device.keys() <= {"cpu"} and row.predicted.by_device.keys() <= {"meta"}


def test_what_is_written_reads_back(measured):
    text = state_sizes.as_csv(measured)
    assert len(text.splitlines()) == 1 + len(measured)
    assert text.splitlines()[1].startswith("small,adafactor_transformers,False,")
    page = state_sizes.as_markdown(measured, "Today.")
    assert "\nToday.\n" in page and "equal in 9 of 9 rows" in page and page.count("| yes |") == 9


def test_one_wrong_prediction_and_nothing_is_written(measured, monkeypatch, tmp_path):
    good, bad = measured[0], state_sizes.Row("tied", measured[4].variant, measured[0].predicted, measured[4].measured)
    assert "equal in 1 of 2 rows" in (page := state_sizes.as_markdown([good, bad], "Today.")) and "| **no** |" in page
    monkeypatch.setattr(state_sizes, "CSV", tmp_path / "table.csv")
    monkeypatch.setattr(state_sizes, "MARKDOWN", tmp_path / "table.md")
    monkeypatch.setattr(state_sizes, "TORCHAO", tmp_path)
    (tmp_path / "torchao").mkdir()
    monkeypatch.setattr(sys, "argv", ["state_sizes.py"])
    monkeypatch.setattr(state_sizes, "measure_all", lambda: ([good, bad], {"torch": "2", "Python": "3"}))
    with pytest.raises(SystemExit, match="1 of 2 predictions are not what was measured.\ntied, adamw8bit_bitsandbytes"):
        state_sizes.main()
    assert not list(tmp_path.glob("table.*"))
    monkeypatch.setattr(state_sizes, "measure_all", lambda: ([good], {"torch": "2", "Python": "3"}))
    state_sizes.main()
    assert {path.name for path in tmp_path.glob("table.*")} == {"table.csv", "table.md"}


def test_without_the_libraries_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(state_sizes, "TORCHAO", tmp_path)
    monkeypatch.setattr(sys, "argv", ["state_sizes.py"])
    with pytest.raises(SystemExit, match=r"Nothing was measured: .*`make sizes` installs both"):
        state_sizes.main()


def test_a_kind_that_nobody_can_make_is_an_error(planned):
    pytest.importorskip("bitsandbytes")
    with pytest.raises(KeyError, match="adam_of_tomorrow"):
        state_sizes.make(Variant("adam_of_tomorrow"), planned["small"])
