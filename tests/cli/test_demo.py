"""`trainc demo`, cut short."""

import json

from trainc.cli.demo import _free_folder


def test_demo_shows_what_it_did(cli):
    run = cli.ok("demo", "--steps", 2, "--out", "demo", "--json", "--quiet")
    assert run.stderr == ""
    result = json.loads(run.stdout)
    assert result["steps"] == 2
    assert 0 < result["validation_loss"] < 7
    assert 0 < result["train_loss"] < 7
    assert result["tokens_per_s"] > 0
    assert (cli.folder / result["plot"]).read_bytes().startswith(b"\x89PNG")
    assert (cli.folder / result["checkpoint"]).is_file()
    assert result["sample"].startswith("def ")
    train, validation = ((cli.folder / f"demo/text/{name}.txt").stat().st_size for name in ("train", "validation"))
    assert train > 10 * validation > 0


def test_a_second_demo_leaves_the_first_alone(tmp_path):
    wanted = tmp_path / "trainc-demo"
    assert _free_folder(wanted) == wanted
    wanted.mkdir()
    assert _free_folder(wanted) == tmp_path / "trainc-demo-2"
    (tmp_path / "trainc-demo-2").mkdir()
    assert _free_folder(wanted) == tmp_path / "trainc-demo-3"
