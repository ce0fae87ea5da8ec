"""An operator's options reach the provider in its own words, and one that it cannot heed is refused."""

import pytest

from gaussport.errors import UsageError
from gaussport.serving.provider_options import ProviderOptions
from gaussport.serving.settings import Settings


def test_options_come_from_the_settings() -> None:
    settings = Settings(device_id=2, cuda_graph=True, gpu_memory_mb=500, tensorrt_engine="x")
    assert ProviderOptions.of(settings) == ProviderOptions(2, True, 500, "x")


def test_the_cpu_gets_no_options() -> None:
    assert ProviderOptions(device_id=3).words("cpu") == {}


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        (
            "cuda",
            {
                "device_id": "1",
                "use_tf32": "0",
                "arena_extend_strategy": "kSameAsRequested",
                "gpu_mem_limit": "2000000000",
                "enable_cuda_graph": "1",
            },
        ),
        ("tensorrt", {"device_id": "1", "trt_cuda_graph_enable": "1"}),
        ("tensorrt-rtx", {"device_id": "1", "enable_cuda_graph": "1"}),
    ],
)
def test_each_gpu_provider_is_told_in_its_own_words(provider: str, words: dict[str, str]) -> None:
    options = ProviderOptions(device_id=1, cuda_graph=True, gpu_memory_mb=2000 if provider == "cuda" else None)
    assert options.words(provider) == words


@pytest.mark.parametrize(
    ("options", "provider", "message"),
    [
        (ProviderOptions(gpu_memory_mb=10), "tensorrt", "--gpu-memory-mb limits the cuda provider"),
        (ProviderOptions(engine="x"), "cuda", "--tensorrt-engine names a TensorRT engine"),
        (ProviderOptions(cuda_graph=True), "cpu", "--cuda-graph needs a GPU"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(options: ProviderOptions, provider: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options.check(provider)
