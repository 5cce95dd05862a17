"""What holds for all tests: how many threads, and how random.

Small tensors gain nothing from threads, and threads that wait for each other are slow on a busy
machine. `make test` repeats the same random cases; `make test-all` looks for new ones.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

_quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, **_quiet)
settings.register_profile("search", max_examples=300, **_quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
