"""A pytest plugin: hypothesis reports the first example that fails, without looking for a smaller one."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("unshrunk", phases=(Phase.explicit, Phase.generate), database=None)
settings.load_profile("unshrunk")
