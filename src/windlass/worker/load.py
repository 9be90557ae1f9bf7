"""Load: import the module of a user's application and find the application in it.

`package.module:app` names it, `package.module` has exactly one, and a file's path may stand for the module.
Whatever is wrong is a SetupError that says what to write instead.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from windlass.errors import SetupError

if TYPE_CHECKING:
    from windlass.client.app import App


def load_app(target: str) -> App:
    """Return the application that `target` names, its modules imported; SetupError if there is none."""
    from windlass.client.app import App

    _look_in(Path.cwd())
    where, name = _parted(target)
    module = _from_file(where) if where.endswith(".py") else _from_name(where)
    apps = {key: value for key, value in vars(module).items() if isinstance(value, App)}
    if name:
        return _named(module, name, list(apps), kind=App)
    different = {id(app): key for key, app in apps.items()}
    if not different:
        raise SetupError(f"There is no App in {where}. Write app = windlass.App() there, or name another module.")
    if len(different) > 1:
        names = ", ".join(sorted(different.values()))
        raise SetupError(f"There are several Apps in {where}: {names}. Name one, as in {where}:{min(apps)}.")
    return next(iter(apps.values()))


def _look_in(folder: Path) -> None:
    """Let modules of the folder be found: before what is installed, and after the library: no queue.py hides that."""
    if str(folder) not in sys.path:
        installed = (index for index, entry in enumerate(sys.path) if entry.endswith(("-packages", "-packages/")))
        sys.path.insert(next(installed, len(sys.path)), str(folder))


def _parted(target: str) -> tuple[str, str]:
    where, colon, name = target.rpartition(":")
    if not colon:
        where, name = target, ""
    if not where or (colon and not name):
        raise SetupError(f"{target!r} names no application. Write package.module:app, package.module or path/file.py.")
    return where, name


def _named(module: ModuleType, name: str, apps: list[str], *, kind: type[App]) -> App:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            there = f"There is {', '.join(apps)}." if apps else "There is no App at all."
            raise SetupError(f"There is no {name} in {module.__name__}. {there}")
        found = getattr(found, part)
    if not isinstance(found, kind):
        raise SetupError(f"{module.__name__}:{name} is no App, but a {type(found).__name__}. Name the windlass.App.")
    return found


def _from_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise SetupError(
                f"There is no module {error.name} in {Path.cwd()} or on Python's path. "
                "Start in the folder that holds it, and write package.module:app."
            ) from None
        raise _failed(name, error) from error
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error


def _from_file(text: str) -> ModuleType:
    path = Path(text).resolve()
    if not path.is_file():
        raise SetupError(f"There is no file {path}. Name one that exists, or a module as package.module:app.")
    _look_in(path.parent)
    # Its own name, unless another module has it: a file called queue.py must not stand for the library's.
    present = sys.modules.get(path.stem)
    if present is not None and getattr(present, "__file__", None) == str(path):
        return present
    taken = present is not None or importlib.util.find_spec(path.stem) is not None
    spec = importlib.util.find_spec(path.stem) if taken and present is None else None
    name = f"windlass_app_{path.stem}" if taken and not (spec and spec.origin == str(path)) else path.stem
    made = importlib.util.spec_from_file_location(name, path)
    if made is None or made.loader is None:
        raise SetupError(f"{path} is no Python file. Name one that ends in .py.")
    module = sys.modules[name] = importlib.util.module_from_spec(made)
    try:
        made.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _failed(str(path), error) from error
    return module


def _failed(name: str, error: BaseException) -> SetupError:
    """Return what went wrong inside a module, with the last line of it that was reached."""
    told = f"{type(error).__name__}: {error}".rstrip(".")
    if isinstance(error, SyntaxError):
        return SetupError(f"Importing {name} failed in {error.filename}, line {error.lineno}: {told}. Mend it.")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename and f.line]
    ours = str(Path(__file__).parents[1])
    last = next((frame for frame in reversed(frames) if not frame.filename.startswith(ours)), None)
    where = "" if last is None else f" in {last.filename}, line {last.lineno} ({last.line})"
    return SetupError(f"Importing {name} failed{where}: {told}. Mend it, and start again.")
