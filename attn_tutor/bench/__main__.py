"""The command: settings that NumPy and torch read as they load, and only then the rest."""

import os
import sys

if __name__ == "__main__":
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    os.environ |= {
        "OMP_NUM_THREADS": str(cores),
        "MKL_NUM_THREADS": str(cores),
        "OPENBLAS_NUM_THREADS": str(cores),
        # NumPy's BLAS keeps its threads spinning for about 0.1 s after a product, which
        # doubles the time of whoever comes next; 2^20 cycles are less than a millisecond.
        "OPENBLAS_THREAD_TIMEOUT": "20",
        "KERAS_BACKEND": "torch",
    }
    try:
        from attn_tutor.bench.command import main
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "torch"):
            raise
        sys.exit(
            f'attn_tutor.bench compares with torch, but {error.name} is missing: pip install "attn-tutor[torch]"'
        )
    sys.exit(main())
