"""What holds for all tests: the small tier and no window for figures, here and in every process a test starts.

Tests marked ``gpu`` are skipped where there is no CUDA GPU.
"""

import os

import hypothesis
import pytest

# A busy machine draws examples slowly, which says nothing about what is tested.
hypothesis.settings.register_profile("busy", suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")

os.environ["COURSE_TIER"] = "small"
os.environ["MPLBACKEND"] = "Agg"
NO_GPU = "needs a CUDA GPU, and PyTorch finds none here: run `make gpu` where there is one"


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch  # not sooner: it takes a second or two, and runs of other tests may not need it

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=NO_GPU))
