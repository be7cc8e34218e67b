"""``python -m slime_profiler_plugin.cli``."""

from . import main

if __name__ == "__main__":
    main()
