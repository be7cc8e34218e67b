"""Ready-made configurations, shipped as the package ``slime_profiler_configs``."""
