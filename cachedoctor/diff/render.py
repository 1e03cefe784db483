"""A request body rendered with a model's own chat template, in a sandbox. Knows templates; what a body means knows chat."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from cachedoctor.diff.chat import Chat, Mark, Style, convert
from cachedoctor.diff.marks import MARKS, find_places, outline
from cachedoctor.diff.prompt import Prompt, Span
from cachedoctor.diff.bodies import clean
from cachedoctor.model import CacheDoctorError
