"""`vpdr data` as a user types it."""

import json
import shutil

import pytest

from tests.data.format_files import class_folders, digits_npz
from vpdr.cli import main
from vpdr.data import SOURCES, divide
from vpdr.data.manifest_file import read_manifest
from vpdr.data.sources import DomainFacts
from vpdr.errors import InvalidInput
from vpdr.rng import Streams

PACS = SOURCES["pacs"]


@pytest.fixture(scope="module")
def small_pacs(tmp_path_factory):
    root = tmp_path_factory.mktemp("pacs")
    for facts in PACS.domains:
        class_folders(root / facts.name, PACS.class_names, each=4)
    return root


def told(capsys, code, *arguments):
    assert main(["data", *map(str, arguments)]) == code
    return capsys.readouterr()


def test_list_says_what_where_and_how_many(capsys):
    shown = told(capsys, 0, "list").out
    for source in SOURCES.values():
        assert source.name in shown
        assert source.where in shown
    assert "73,257 training and 26,032 test samples" in shown
    listed = json.loads(told(capsys, 0, "list", "--json").out)["benchmarks"]
    assert [entry["name"] for entry in listed] == ["digits", "office_caltech", "pacs", "cifar10", "agnews"]
    assert all(entry["needs"] and entry["licence"] for entry in listed)


def test_check_exits_with_one_and_names_every_finding(capsys, small_pacs, tmp_path):
    root = shutil.copytree(small_pacs, tmp_path / "x")
    shutil.rmtree(root / "sketch")
    (root / "photo/dog/pic_000.jpg").write_bytes(b"\xff\xd8\xff")
    shown = told(capsys, 1, "check", "pacs", "--root", root).out
    assert "! sketch: expected a folder sketch" in shown
    assert "! photo/dog/pic_000.jpg: expected a whole picture" in shown
    assert "cartoon" in shown
    found = json.loads(told(capsys, 1, "check", "pacs", "--root", root, "--json").out)
    assert not found["fine"]
    assert len(found["findings"]) == 2 + 3  # and three counts
    assert found["counts"][0]["classes"]["dog"] == 4


def test_a_long_check_says_where_it_is_also_in_a_pipe(capsys, small_pacs, monkeypatch):
    assert not told(capsys, 1, "check", "pacs", "--root", small_pacs).err  # it was over at once
    monkeypatch.setattr("vpdr.cli.progress.SECONDS", 0.0)
    lines = told(capsys, 1, "check", "pacs", "--root", small_pacs).err.splitlines()
    assert lines[0] == f"{PACS.domains[0].name}: 1 of 28"
    assert len(lines) == 28 * len(PACS.domains)
    assert not told(capsys, 1, "check", "pacs", "--root", small_pacs, "--json").err


def test_check_of_a_whole_copy_exits_with_zero(capsys, small_pacs, monkeypatch):
    facts = [DomainFacts(name=f.name, title=f.title, train=(4,) * 7) for f in PACS.domains]
    monkeypatch.setitem(SOURCES, "pacs", type(PACS)(**{**vars(PACS), "domains": tuple(facts)}))
    assert "PACS is whole" in told(capsys, 0, "check", "pacs", "--root", small_pacs).out
    assert json.loads(told(capsys, 0, "check", "pacs", "--root", small_pacs, "--json").out)["fine"]


def test_check_of_some_domains_only(capsys, tmp_path):
    digits_npz(tmp_path / "usps.npz", side=16)
    shown = told(capsys, 1, "check", "digits", "--root", tmp_path, "--domains", "usps", "--json").out
    assert [count["domain"] for count in json.loads(shown)["counts"]] == ["usps", "usps"]


def test_manifest_keeps_the_split_that_a_run_would_draw(capsys, small_pacs, tmp_path):
    out = tmp_path / "split.json"
    told(capsys, 0, "manifest", "pacs", "--root", small_pacs, "--out", out, "--seed", "3")
    kept, roll = read_manifest(out), PACS.roll(small_pacs)
    kept.check(roll)
    assert kept.to_data() == divide(roll, PACS.division, Streams(3)).to_data()


def test_manifest_takes_other_divisions(capsys, small_pacs, tmp_path):
    arguments = ["manifest", "pacs", "--root", small_pacs, "--out", tmp_path / "split.json", "--json"]
    wishes = ["--set", "skew=pooled", "--set", "clients=3", "--set", "concentration=1", "--set", "minimum=2"]
    drawn = json.loads(told(capsys, 0, *arguments, *wishes).out)
    assert list(drawn["clients"]) == ["client-000", "client-001", "client-002"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "pasc", "--root", "."], "unknown benchmark: 'pasc'; did you mean 'pacs'?"),
        (["check", "pacs", "--root", "nowhere"], "expected a folder with the data, got nowhere"),
        (["check", "pacs", "--root", ".", "--domains", "phot"], "domain must be one of photo"),
        (["manifest", "pacs", "--root", ".", "--out", "x", "--set", "skw=label"], "did you mean 'skew'?"),
        (["manifest", "pacs", "--root", ".", "--out", "x", "--set", "clients=many"], "a whole number"),
        (["manifest", "pacs", "--root", ".", "--out", "x", "--set", "skew=odd"], "skew must be one of"),
    ],
)
def test_a_mistake_is_one_line(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    error = told(capsys, 2, *arguments).err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b'{"format": 1}'])
def test_a_split_file_that_is_none_is_one_line(tmp_path, content):
    path = tmp_path / "split.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="draw it again"):
        read_manifest(path)
    with pytest.raises(InvalidInput, match="give a file that exists"):
        read_manifest(tmp_path / "none")
