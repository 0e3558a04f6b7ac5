"""Run the notebooks and keep their outputs, which the site shows: `python tools/run_notebooks.py [NAME ...]`.

Progress and what goes to stderr are not kept, nor is anything about this machine.
"""

import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "examples" / "notebooks"


def executed(path: Path, folder: str | Path) -> nbformat.NotebookNode:
    """The notebook with new outputs; files that it writes go into `folder`."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    notebook.metadata = {key: notebook.metadata[key] for key in ("kernelspec",)} | {"language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined([output for output in cell.outputs if not _is_progress(output)])
    return notebook


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """What is printed in one go is one output, even if progress came between on a busy machine."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream" and output.name == joined[-1].name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _is_progress(output: nbformat.NotebookNode) -> bool:
    return output.get("name") == "stderr" or str(output.get("data", {}).get("text/plain", "")).startswith("lostwax: ")


def main() -> None:
    """Run all, or those that are named."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(path, folder), path)
        print(f"{path.name}: {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
