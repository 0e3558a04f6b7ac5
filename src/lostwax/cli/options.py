"""Argument types with the metavars shown by `--help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

RecipeFile = Positional[Annotated[Path, arg(metavar="RECIPE.py")]]
Folder = Annotated[Path, arg(metavar="FOLDER")]
OwnFolder = Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: audits/RECIPE)")]
ReportFolder = Positional[Annotated[Path, arg(metavar="FOLDER")]]
File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
Number = Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="")]
WholeNumber = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
Text = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]
