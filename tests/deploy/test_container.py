"""`gaussport container`: the context holds what its Dockerfile copies, and the code in it serves the bundle in it."""

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussport.cli import main
from gaussport.errors import UsageError
from gaussport.export.bundle.store import open_bundle
from gaussport.export.container.context import check_image, default_folder, write_context
from tests.deploy.conftest import gaussport, write


@pytest.fixture(scope="module")
def context(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_context(bundle, "team/tiny:1", tmp_path_factory.mktemp("contexts") / "tiny").folder


def test_context_holds_all_that_its_dockerfile_copies(context: Path) -> None:
    copied = re.findall(r"^COPY (?!--from)(.+)$", (context / "Dockerfile").read_text(), re.MULTILINE)
    sources = {source for line in copied for source in line.split()[:-1]} - {"${BUNDLE}"}
    assert sources
    assert not [source for source in sources if not (context / source).exists()]
    assert not list(context.rglob("__pycache__"))


def test_bundle_of_the_context_is_whole_and_equal(context: Path, bundle: Path) -> None:
    assert open_bundle(context / "docker" / "bundle").manifest == open_bundle(bundle).manifest


def test_code_of_the_context_runs_by_itself(context: Path, tmp_path: Path) -> None:
    """As the Dockerfile assembles it: the package with its links followed."""
    shutil.copytree(context / "src" / "gaussport", tmp_path / "gaussport")
    answer = gaussport("serve", tmp_path / "missing", "--port", "0", python=tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"gaussport serve: {tmp_path / 'missing'} does not exist")


def test_a_zip_becomes_a_folder(bundle: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "tiny"), "zip", bundle)
    written = write_context(Path(archive), "tiny", tmp_path / "context").folder
    assert open_bundle(written / "docker" / "bundle").manifest == open_bundle(bundle).manifest


def test_command_says_what_to_do_next(bundle: Path, tmp_path: Path) -> None:
    answer = gaussport("container", bundle, "-t", "team/tiny:1", "-o", tmp_path / "c")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-1] == f"next: docker build --target cpu -t team/tiny:1 {tmp_path / 'c'}"


def test_a_gpu_image_without_an_engine_is_a_warning(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["container", str(bundle), "-t", "tiny", "-o", str(tmp_path / "g"), "--target", "gpu", "--json"]) == 0
    assert "no TensorRT engine" in json.loads(capsys.readouterr().out)["warnings"][0]


def test_refusals_are_one_sentence_and_leave_nothing(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = Path(shutil.copytree(bundle, tmp_path / "damaged"))
    data = bytearray((damaged / "model.onnx").read_bytes())
    data[-1] ^= 1
    (damaged / "model.onnx").write_bytes(data)
    (tmp_path / "theirs").mkdir()
    out = tmp_path / "out"
    for words, code, said in (
        ((tmp_path / "missing", "-t", "a", "-o", out), 1, "does not exist"),
        ((damaged, "-t", "a", "-o", out), 1, "model.onnx"),
        ((bundle, "-t", "Not A Name", "-o", out), 2, "is not an image's name"),
        ((bundle, "-t", "a", "-o", tmp_path / "theirs"), 2, "exists"),
        ((bundle, "-t", "a", "-o", tmp_path / "theirs", "--overwrite"), 2, "has no Dockerfile"),
        ((bundle, "-t", "a", "-o", tmp_path / "no" / "parent"), 1, "cannot be written"),
        ((write(tmp_path / "bf16", "bf16"), "-t", "a", "-o", out), 1, "no CPU serves"),
    ):
        returned = main(["container", *map(str, words)])
        errors = capsys.readouterr().err
        assert (returned, len(errors.splitlines())) == (code, 1), errors
        assert said in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bf16", "damaged", "theirs"]


def test_overwrite_replaces_a_context(bundle: Path, tmp_path: Path) -> None:
    folder = write_context(bundle, "tiny", tmp_path / "c").folder
    (folder / "stale").touch()
    write_context(bundle, "tiny", folder, overwrite=True)
    assert not (folder / "stale").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@given(st.from_regex(r"[a-z0-9]{1,5}([._-][a-z0-9]{1,5}){0,2}(:[A-Za-z0-9_][A-Za-z0-9._-]{0,9})?", fullmatch=True))
def test_image_names_are_taken_and_name_a_folder(name: str) -> None:
    for image in (name, f"team/{name}", f"registry.example:5000/team/{name}"):
        check_image(image)
        assert default_folder(image).name == f"{name.partition(':')[0]}-context"


@pytest.mark.parametrize("name", ["", "A", "a:", "a b", "-a", "a/", "a@b", "a\n", "--tag", "a:b:c", "../a"])
def test_names_that_docker_refuses_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_image(name)
