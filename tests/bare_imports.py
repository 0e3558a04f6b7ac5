"""What loads without what (run by tests/release/test_distributions.py).

light:    in an environment with the package alone, its light modules load.
optional: in the full environment with every optional package blocked, every module loads.
"""

import importlib
import pkgutil
import sys

LIGHT = (
    "lostwax",
    "lostwax.fields",
    "lostwax.verbs",
    "lostwax.cli",
    "lostwax.provenance",
)
HEAVY = ("torch", "sklearn", "matplotlib", "zarr", "ray", "tyro", "scipy", "pandas")
OPTIONAL = ("torchvision", "PIL", "ray", "zarr", "pandas", "pyarrow", "dp_accounting", "opacus", "safetensors", "rich")


class Blocker:
    """An import hook that refuses the named packages."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"{name} is blocked by this check")
        return None


def main(mode):
    names = HEAVY if mode == "light" else OPTIONAL
    sys.meta_path.insert(0, Blocker(names))
    modules = LIGHT
    if mode == "optional":
        import lostwax

        modules = tuple(found.name for found in pkgutil.walk_packages(lostwax.__path__, "lostwax."))
    for module in modules:
        importlib.import_module(module)
    print(f"{mode}: {len(modules)} modules load without {', '.join(names)}")


if __name__ == "__main__":
    main(sys.argv[1])
