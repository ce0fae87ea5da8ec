"""Engines of a bundle: which one fits, what is refused before TensorRT sees it, and in which order a session comes to be.

No GPU here: libraries written in C for the tests stand in for the driver, TensorRT and our plugins, and the session that
the engine would run in is one of the bundle's own model on the CPU.
"""

import ctypes
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaussport.cli import main
from gaussport.errors import BundleError, ServingError, UsageError
from gaussport.export.bundle.engines import CONTEXT_FILE, ENGINE_FILE, ENGINES_FOLDER, PLUGIN_FILE, EngineRecord, Machine
from gaussport.export.bundle.revision import revising_bundle
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.gpu import GPU, driver
from gaussport.serving import providers, runtime, tensorrt_libraries
from gaussport.serving.binding import Graphed, PageLocked
from gaussport.serving.engines import choose_engine
from gaussport.serving.metrics import Metrics
from gaussport.serving.provider_options import ProviderOptions
from gaussport.serving.runtime import Runtime
from gaussport.serving.served_model import ServedModel
from gaussport.serving.settings import Settings

X86_64, AARCH64 = 62, 183
HERE = Machine(86, "tensorrt", "10.16.1")

DRIVER = """
#include <stddef.h>
#include <string.h>
int locked = 0;
int cuInit(unsigned flags) { return flags; }
int cuDriverGetVersion(int *v) { *v = 13010; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *name, int size, int d) { strncpy(name, d ? "Second" : "First", size); return 0; }
int cuDeviceGetAttribute(int *v, int which, int d) { *v = which == 75 ? (d ? 12 : 8) : (d ? 0 : 6); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int d) { *bytes = (size_t)24 << 30; return 0; }
int cuMemHostRegister_v2(void *p, size_t n, unsigned f) { locked++; return 0; }
int cuMemHostUnregister(void *p) { locked--; return 0; }
"""
TENSORRT = """
int creators = 0;
void *getPluginRegistry(void) { return &creators; }
int getInferLibMajorVersion(void) { return 10; }
int getInferLibMinorVersion(void) { return 16; }
int getInferLibPatchVersion(void) { return 1; }
"""
PLUGINS = """
int gaussport_register_plugins(void *(*registry)(void), int major) { ++*(int *)registry(); return major == 10 ? CODE : 99; }
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`compiled(name, source, *flags)`: a shared library from C, made once."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make the stand-ins with")
    folder = tmp_path_factory.mktemp("libraries")

    def make(name: str, source: str, *flags: str) -> Path:
        target = folder / f"{name}.so"
        if not target.exists():
            (folder / f"{name}.c").write_text(source)
            command = [compiler, "-shared", "-fPIC", *flags, "-o", str(target), str(folder / f"{name}.c")]
            subprocess.run(command, check=True)
        return target

    return make


def record(bundle: Bundle, **changes: Any) -> EngineRecord:
    fields: dict[str, Any] = {
        "builder": "tensorrt",
        "builder_version": "10.16.1.11",
        "architecture": 86,
        "precision": "fp16",
        "batches": (1, 8, 8),
        "model_sha256": bundle.manifest.model_sha256,
        "plugin_layers": 4,
    }
    return EngineRecord.model_validate(fields | changes)


@pytest.fixture
def with_engines(tmp_path: Path, write_bundle: Callable[..., Path]) -> Callable[..., Bundle]:
    """`with_engines({…changes}, …, plugins=PATH)`: a bundle with one engine for each set of changes."""

    def make(*engines: dict[str, Any], plugins: Path | None = None, zipped: bool = False) -> Bundle:
        path = write_bundle(tmp_path / ("engines.zip" if zipped else "engines"))
        records = [record(open_bundle(path), **changes) for changes in engines]
        with revising_bundle(path) as (draft, manifest):
            for each in records:
                home = draft.folder / ENGINES_FOLDER / each.name
                home.mkdir(parents=True)
                (home / ENGINE_FILE).write_bytes(b"engine" * 1000)
                (home / CONTEXT_FILE).write_bytes((draft.folder / "model.onnx").read_bytes())
                (home / PLUGIN_FILE).write_bytes(b"" if plugins is None else plugins.read_bytes())
            engines_by_name = {each.name: each for each in records}
            draft.finish(lambda files: manifest.model_copy(update={"engines": engines_by_name, "files": files}))
        return open_bundle(path)

    return make


def test_the_engine_of_this_gpu_and_version_is_chosen(with_engines: Callable[..., Bundle]) -> None:
    bundle = with_engines({}, {"architecture": 90}, {"builder": "tensorrt-rtx", "builder_version": "1.7.1.116"})
    assert choose_engine(bundle, HERE).name == "tensorrt-10.16.1.11-sm_86-fp16"
    assert choose_engine(bundle, Machine(86, "tensorrt-rtx", "1.7.1")).record.builder == "tensorrt-rtx"


def test_an_engine_from_elsewhere_says_for_what_it_was_built(with_engines: Callable[..., Bundle]) -> None:
    bundle = with_engines({"builder_version": "10.14.0"})
    with pytest.raises(ServingError) as caught:
        choose_engine(bundle, Machine(90, "tensorrt", "10.16.0"))
    assert "built for sm_86 with TensorRT 10.14.0, this is sm_90 with 10.16.0: rebuild with gaussport build-engine" in str(
        caught.value
    )
    assert f"{bundle.path} --builder tensorrt --arch sm_90 --precision fp16" in str(caught.value)


def test_an_engine_of_another_model_is_stale(with_engines: Callable[..., Bundle]) -> None:
    with pytest.raises(ServingError, match=r"built from another model\.onnx than the bundle has now"):
        choose_engine(with_engines({"model_sha256": "0" * 64}), HERE)


def test_one_of_several_engines_that_fit_must_be_named(with_engines: Callable[..., Bundle]) -> None:
    bundle = with_engines({}, {"precision": "bf16"})
    with pytest.raises(ServingError, match=r"2 engines of .* fit: choose with --tensorrt-engine"):
        choose_engine(bundle, HERE)
    assert choose_engine(bundle, HERE, "tensorrt-10.16.1.11-sm_86-bf16").record.precision == "bf16"
    with pytest.raises(ServingError, match="has no TensorRT engine nope"):
        choose_engine(bundle, HERE, "nope")


def test_a_bundle_without_engines_says_how_to_build_one(tiny: Path) -> None:
    with pytest.raises(ServingError, match=r"has no TensorRT engine: build one with gaussport build-engine .* --arch sm_86"):
        choose_engine(open_bundle(tiny), HERE)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    "damage",
    [lambda data: data[: len(data) // 2], lambda data: bytes(64) + data[64:], lambda data: b""],
    ids=["half", "head zeroed", "empty"],
)
@pytest.mark.parametrize("file", [ENGINE_FILE, CONTEXT_FILE, PLUGIN_FILE])
def test_a_damaged_file_is_refused_before_anybody_loads_it(
    with_engines: Callable[..., Bundle], tmp_path: Path, damage: Callable[[bytes], bytes], file: str, zipped: bool
) -> None:
    own = tmp_path / "plugins.so"
    own.write_bytes(b"plugins" * 100)
    bundle = with_engines({}, plugins=own, zipped=zipped)
    name = f"{ENGINES_FOLDER}/tensorrt-10.16.1.11-sm_86-fp16/{file}"
    _damage(bundle.path, name, damage)
    with pytest.raises(BundleError, match=r"differs from its hash|has \d+ bytes"), choose_engine(bundle, HERE).on_disk():
        pytest.fail("the files were handed out")


def _damage(path: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    if path.is_dir():
        (path / name).write_bytes(damage((path / name).read_bytes()))
        return
    unpacked = path.with_suffix(".unpacked")
    shutil.unpack_archive(path, unpacked)
    (unpacked / name).write_bytes(damage((unpacked / name).read_bytes()))
    shutil.make_archive(str(path.with_suffix("")), "zip", unpacked)


def test_a_zips_engine_is_unpacked_while_it_is_loaded(with_engines: Callable[..., Bundle]) -> None:
    with choose_engine(with_engines({}, zipped=True), HERE).on_disk() as folder:
        assert (folder / ENGINE_FILE).read_bytes() == b"engine" * 1000
    assert not folder.exists()


def test_the_driver_is_asked_for_its_gpus(compiled: Callable[..., Path]) -> None:
    found = driver(str(compiled("driver", DRIVER)))
    assert found.cuda_version == "13.1"
    assert found.gpus == (GPU(0, "First", 86, 24 << 30), GPU(1, "Second", 120, 24 << 30))
    assert driver("libnowhere.so.1").fault == "there is no NVIDIA driver: libnowhere.so.1 cannot be loaded"
    broken = driver(str(compiled("broken", "int cuInit(unsigned flags) { return 999; }")))
    assert broken.fault == "the NVIDIA driver answers cuInit with error 999: no GPU can be used"


@pytest.fixture
def stand_ins(compiled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """This machine has two GPUs and TensorRT 10.16.1. Returns what sessions were asked for."""
    asked: list[Any] = []
    real = providers.open_session
    tensorrt = ctypes.CDLL(str(compiled("tensorrt", TENSORRT)))
    ctypes.c_int.in_dll(tensorrt, "creators").value = 0
    library = str(compiled("driver", DRIVER))

    def open_session(model: Any, name: str, provider: str, words: Any, threads: int, *rest: Any) -> Any:
        registered = ctypes.c_int.in_dll(tensorrt, "creators").value
        asked.append((model, name, provider, dict(words), registered))
        return real(model, name, "cpu", {}, threads)

    monkeypatch.setattr(runtime, "driver", lambda: driver(library))
    monkeypatch.setattr(runtime, "missing", lambda provider: None)
    monkeypatch.setattr(runtime, "load_tensorrt", lambda builder: tensorrt)
    monkeypatch.setattr(runtime, "open_session", open_session)
    return asked


def test_plugins_are_registered_before_the_engine_is_loaded(
    stand_ins: list[Any], compiled: Callable[..., Path], with_engines: Callable[..., Bundle]
) -> None:
    bundle = with_engines({}, plugins=compiled("plugins", PLUGINS, "-DCODE=0"))
    running = Runtime(bundle, "tensorrt", threads=1, options=ProviderOptions(device_id=0))
    ((model, name, provider, words, registered),) = stand_ins
    home = bundle.path / ENGINES_FOLDER / "tensorrt-10.16.1.11-sm_86-fp16"
    assert (model, provider, registered) == (home / CONTEXT_FILE, "tensorrt", 1)
    assert words == {"device_id": "0", "trt_extra_plugin_lib_paths": str(home / PLUGIN_FILE)}
    assert "the engine tensorrt-10.16.1.11-sm_86-fp16" in name
    assert running.max_batch == 8
    assert running.facts["engine"] == running.label == "tensorrt-10.16.1.11-sm_86-fp16"
    assert (running.facts["gpu"], running.facts["architecture"], running.facts["precision"]) == ("First", "sm_86", "fp16")


def test_an_engine_without_plugins_needs_no_library(stand_ins: list[Any], with_engines: Callable[..., Bundle]) -> None:
    Runtime(with_engines({"plugin_layers": 0}), "tensorrt", threads=1)
    assert [asked[3:] for asked in stand_ins] == [({"device_id": "0"}, 0)]


@pytest.mark.parametrize(
    ("name", "source", "flags", "message"),
    [
        ("refusing", PLUGINS, ("-DCODE=7",), r"TensorRT refuses the plugin library libgaussport_plugins\.so \(code 7\)"),
        ("foreign", "int nothing = 0;", (), "cannot be loaded: .*undefined symbol: gaussport_register_plugins"),
    ],
)
def test_a_plugin_library_that_does_not_register_is_an_error(
    stand_ins: list[Any],
    compiled: Callable[..., Path],
    with_engines: Callable[..., Bundle],
    name: str,
    source: str,
    flags: tuple[str, ...],
    message: str,
) -> None:
    with pytest.raises(ServingError, match=message):
        Runtime(with_engines({}, plugins=compiled(name, source, *flags)), "tensorrt", threads=1)
    assert not stand_ins


def test_a_plugin_library_for_another_processor_is_an_error(
    stand_ins: list[Any], compiled: Callable[..., Path], with_engines: Callable[..., Bundle], tmp_path: Path
) -> None:
    foreign = bytearray(compiled("plugins", PLUGINS, "-DCODE=0").read_bytes())
    machine = int.from_bytes(foreign[18:20], sys.byteorder)  # e_machine of the ELF header
    foreign[18:20] = (X86_64 if machine == AARCH64 else AARCH64).to_bytes(2, sys.byteorder)
    (tmp_path / "foreign.so").write_bytes(foreign)
    with pytest.raises(ServingError, match=r"cannot be loaded: .*; build the engine again"):
        Runtime(with_engines({}, plugins=tmp_path / "foreign.so"), "tensorrt", threads=1)
    assert not stand_ins


def test_a_profile_that_begins_above_one_gets_no_smaller_batches(
    stand_ins: list[Any], with_engines: Callable[..., Bundle], compiled: Callable[..., Path]
) -> None:
    bundle = with_engines({"batches": (3, 8, 16)}, plugins=compiled("plugins", PLUGINS, "-DCODE=0"))
    served = ServedModel(bundle, Settings(provider="tensorrt", threads=1), Metrics())
    assert served.batcher.limits.sizes == (3, 4, 8, 16)
    with pytest.raises(UsageError, match="--max-batch 2 is less than the 3 that the engine"):
        ServedModel(bundle, Settings(provider="tensorrt", threads=1, max_batch=2), Metrics())


def test_an_engine_for_another_gpu_ends_the_server_with_1(
    stand_ins: list[Any], with_engines: Callable[..., Bundle], capfd: pytest.CaptureFixture[str]
) -> None:
    bundle = with_engines({"architecture": 90})
    handler = signal.getsignal(signal.SIGTERM)
    code = main(["serve", str(bundle.path), "--port", "0", "--provider", "tensorrt"])
    signal.signal(signal.SIGTERM, handler)
    said = capfd.readouterr().err
    assert (code, len(said.splitlines())) == (1, 1), said
    assert (
        "built for sm_90 with TensorRT 10.16.1.11, this is sm_86 with 10.16.1: rebuild with gaussport build-engine" in said
    )
    assert not stand_ins


def test_a_gpu_that_is_not_there_is_refused(stand_ins: list[Any], with_engines: Callable[..., Bundle]) -> None:
    with pytest.raises(ServingError, match="needs GPU number 2, but the driver sees 2 of them"):
        Runtime(with_engines({}), "tensorrt", threads=1, options=ProviderOptions(device_id=2))


def test_auto_takes_the_engine_where_there_is_one(
    stand_ins: list[Any], compiled: Callable[..., Path], with_engines: Callable[..., Bundle]
) -> None:
    running = Runtime(with_engines({}, plugins=compiled("plugins", PLUGINS, "-DCODE=0")), "auto", threads=1)
    assert (running.provider, running.passed_over) == ("tensorrt", {})


def test_auto_says_why_it_passed_providers_over(tiny: Path, stand_ins: list[Any]) -> None:
    running = Runtime(open_bundle(tiny), "auto", threads=1)
    assert running.provider == "cuda"
    assert "has no TensorRT engine" in running.passed_over["tensorrt"]
    assert "has no TensorRT-RTX engine" in running.passed_over["tensorrt-rtx"]


def test_auto_on_a_machine_without_a_gpu_runs_on_the_cpu(tiny: Path) -> None:
    if driver().gpus:
        pytest.skip("this machine has a GPU")
    running = Runtime(open_bundle(tiny), "auto", threads=1)
    assert running.provider == "cpu"
    assert list(running.passed_over) == ["tensorrt", "tensorrt-rtx", "cuda"]


@pytest.mark.parametrize("graphs", [False, True])
def test_batches_through_a_gpus_buffers_give_their_own_rows(
    tiny: Path, stand_ins: list[Any], monkeypatch: pytest.MonkeyPatch, graphs: bool
) -> None:
    # 10 → 2 → 10: buffers of a former batch must not shine through. The "GPU" is the CPU here.
    monkeypatch.setattr(runtime, "Graphed", lambda session, fetch, columns, _: Graphed(session, fetch, columns, ("cpu", 0)))
    rows = np.random.default_rng(0).normal(size=(10, 3, 8, 8)).astype(np.float32)
    expected = Runtime(open_bundle(tiny), threads=1).run(rows)
    running = Runtime(open_bundle(tiny), "cuda", threads=1, options=ProviderOptions(cuda_graph=graphs))
    kept = [running.run(rows), running.run(rows[3:5]), running.run(rows[::-1])]
    for found, wanted in zip(kept, [expected, expected[3:5], expected[::-1]], strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_the_staging_buffer_is_locked_and_unlocked(compiled: Callable[..., Path]) -> None:
    path = compiled("driver", DRIVER)
    locked = ctypes.c_int.in_dll(ctypes.CDLL(str(path)), "locked")
    buffer = PageLocked(str(path))
    for size in (2, 9, 3):
        rows = np.arange(size * 4, dtype=np.float32).reshape(size, 4)
        assert np.array_equal(buffer.filled(rows), rows)
        assert (buffer.locked, locked.value) == (True, 1)
    del buffer
    assert locked.value == 0


def test_a_machine_without_tensorrt_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_libraries, "find_spec", lambda name: None)
    with pytest.raises(ServingError, match=r"TensorRT cannot be loaded: libnvinfer\.so\.10: .*run gaussport doctor"):
        tensorrt_libraries.load_tensorrt("tensorrt")


def test_engines_are_chosen_by_release_not_by_build_number() -> None:
    engine = EngineRecord(
        builder="tensorrt",
        builder_version="10.16.1.11",
        architecture=86,
        precision="fp32",
        batches=(1, 1, 1),
        model_sha256="0" * 64,
        plugin_layers=0,
    )
    assert Machine(86, "tensorrt", "10.16.1.99").refusal(engine) is None
    assert Machine(86, "tensorrt", "10.16.2.11").refusal(engine) is not None
