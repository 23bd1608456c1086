"""The commands `vpdr data list`, `check` and `manifest`."""

import json
import shutil

import pytest

from tests.unit.data.format_files import write_class_directories, write_digits_npz
from vpdr.cli import main
from vpdr.data import BENCHMARK_SPECS
from vpdr.data.benchmark import read_split, split_benchmark
from vpdr.data.spec import DomainSpec
from vpdr.rng import Streams
from vpdr.validation import InvalidInput

PACS = BENCHMARK_SPECS["pacs"]


@pytest.fixture(scope="module")
def small_pacs(tmp_path_factory):
    root = tmp_path_factory.mktemp("pacs")
    for spec in PACS.domains:
        write_class_directories(root / spec.name, PACS.class_names, each=4)
    return root


def run_command(capsys, code, *arguments):
    assert main(["data", *map(str, arguments)]) == code
    return capsys.readouterr()


def test_list_prints_name_source_and_sizes(capsys):
    output = run_command(capsys, 0, "list").out
    for spec in BENCHMARK_SPECS.values():
        assert spec.name in output
        assert spec.download_info in output
    assert "73,257 training and 26,032 test samples" in output
    benchmarks = json.loads(run_command(capsys, 0, "list", "--json").out)["benchmarks"]
    assert [entry["name"] for entry in benchmarks] == ["digits", "office_caltech", "pacs", "cifar10", "agnews"]
    assert all(entry["needs"] and entry["licence"] for entry in benchmarks)


def test_check_exits_with_one_and_names_every_issue(capsys, small_pacs, tmp_path):
    root = shutil.copytree(small_pacs, tmp_path / "x")
    shutil.rmtree(root / "sketch")
    (root / "photo/dog/pic_000.jpg").write_bytes(b"\xff\xd8\xff")
    output = run_command(capsys, 1, "check", "pacs", "--root", root).out
    assert "! sketch: expected a directory sketch" in output
    assert "! photo/dog/pic_000.jpg: expected a complete image" in output
    assert "cartoon" in output
    report = json.loads(run_command(capsys, 1, "check", "pacs", "--root", root, "--json").out)
    assert not report["fine"]
    assert len(report["findings"]) == 2 + 3  # and three counts
    assert report["counts"][0]["classes"]["dog"] == 4


def test_a_long_check_prints_its_progress_also_in_a_pipe(capsys, small_pacs, monkeypatch):
    assert not run_command(capsys, 1, "check", "pacs", "--root", small_pacs).err  # it took less than the interval
    monkeypatch.setattr("vpdr.cli.output.SECONDS_BETWEEN_LINES", 0.0)
    lines = run_command(capsys, 1, "check", "pacs", "--root", small_pacs).err.splitlines()
    assert lines[0] == f"{PACS.domains[0].name}: 1 of 28"
    assert len(lines) == 28 * len(PACS.domains)
    assert not run_command(capsys, 1, "check", "pacs", "--root", small_pacs, "--json").err


def test_check_of_a_complete_copy_exits_with_zero(capsys, small_pacs, monkeypatch):
    domains = [DomainSpec(name=f.name, title=f.title, train=(4,) * 7) for f in PACS.domains]
    monkeypatch.setitem(BENCHMARK_SPECS._entries, "pacs", type(PACS)(**{**vars(PACS), "domains": tuple(domains)}))
    assert "PACS is whole" in run_command(capsys, 0, "check", "pacs", "--root", small_pacs).out
    assert json.loads(run_command(capsys, 0, "check", "pacs", "--root", small_pacs, "--json").out)["fine"]


def test_check_of_some_domains_only(capsys, tmp_path):
    write_digits_npz(tmp_path / "usps.npz", side=16)
    output = run_command(capsys, 1, "check", "digits", "--root", tmp_path, "--domains", "usps", "--json").out
    assert [count["domain"] for count in json.loads(output)["counts"]] == ["usps", "usps"]


def test_manifest_writes_the_split_that_a_run_would_draw(capsys, small_pacs, tmp_path):
    out = tmp_path / "split.json"
    run_command(capsys, 0, "manifest", "pacs", "--root", small_pacs, "--out", out, "--seed", "3")
    split, labels = read_split(out), PACS.load_labels(small_pacs)
    split.check(labels)
    assert split.to_data() == split_benchmark(labels, PACS.split_config, Streams(3)).to_data()


def test_manifest_takes_other_settings(capsys, small_pacs, tmp_path):
    arguments = ["manifest", "pacs", "--root", small_pacs, "--out", tmp_path / "split.json", "--json"]
    settings = ["--set", "skew=pooled", "--set", "clients=3", "--set", "concentration=1", "--set", "minimum=2"]
    data = json.loads(run_command(capsys, 0, *arguments, *settings).out)
    assert list(data["clients"]) == ["client-000", "client-001", "client-002"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "pasc", "--root", "."], "unknown benchmark: 'pasc'; did you mean 'pacs'?"),
        (["check", "pacs", "--root", "nowhere"], "expected a directory with the data, got nowhere"),
        (["check", "pacs", "--root", ".", "--domains", "phot"], "domain must be one of photo"),
        (["manifest", "pacs", "--root", ".", "--out", "x", "--set", "skw=label"], "did you mean 'skew'?"),
        (["manifest", "pacs", "--root", ".", "--out", "x", "--set", "clients=many"], "a whole number"),
        (["manifest", "pacs", "--root", ".", "--out", "x", "--set", "skew=odd"], "skew must be one of"),
    ],
)
def test_invalid_arguments_are_one_line(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    error = run_command(capsys, 2, *arguments).err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b'{"format": 1}'])
def test_a_split_file_that_is_invalid_is_one_line(tmp_path, content):
    path = tmp_path / "split.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="draw it again"):
        read_split(path)
    with pytest.raises(InvalidInput, match="give a file that exists"):
        read_split(tmp_path / "none")
