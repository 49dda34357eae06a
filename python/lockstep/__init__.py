# SPDX-License-Identifier: BSD-3-Clause
"""Lockstep: communication between the processes of a training job.

`import lockstep.torch` registers the backend "lockstep" with torch.distributed. What goes wrong is raised as
one of the exceptions below, all of them `lockstep.Error`; each tells `status`, `rank`, `operation` and `report`.
"""

from lockstep import errors
from lockstep._library import VERSION as __version__
from lockstep.errors import *  # noqa: F403

__all__ = ["__version__"]
__all__ += errors.__all__
