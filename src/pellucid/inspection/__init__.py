"""What happens inside for one sentence, as data and as pictures."""

from pellucid.inspection.trace import Trace

__all__ = ["Trace"]
