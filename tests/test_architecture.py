"""The layers that docs/how-it-works.md promises, and the front doors."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import mcp_host
import mcp_host.providers
import mcp_host.testing

SOURCE = Path(mcp_host.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

MAY_IMPORT = {
    "base_errors": set[str](),
    "errors": {"base_errors", "types"},
    "limits": set[str](),
    "version": set[str](),
    "secret": set[str](),
    "concurrency": {"errors"},
    "types": {"base_errors"},
    "protocol": {"errors", "types"},
    "terminal": {"concurrency", "errors", "json_schema", "protocol", "server_requests", "types"},
    "json_schema": {"errors"},
    "handlers": {"concurrency", "errors", "limits", "protocol"},
    "slots": {"concurrency", "handlers"},
    "functions": {"concurrency", "errors", "types"},
    "server_requests": {"protocol", "types"},
    "middleware": {
        *("concurrency", "errors", "handlers", "limits", "protocol", "sampling", "secret", "server_requests"),
        *("transports", "types"),
    },
    "transports": {"concurrency", "errors", "handlers", "limits", "protocol", "secret", "version"},
    "sampling": {
        *("concurrency", "errors", "functions", "handlers", "json_schema", "limits", "protocol", "server_requests"),
        *("slots", "terminal", "types"),
    },
    "providers": {
        *("concurrency", "errors", "handlers", "json_schema", "limits", "protocol", "sampling", "secret"),
        *("server_requests", "slots", "types"),
    },
    "config": {"concurrency", "errors", "handlers", "limits", "protocol", "secret", "transports"},
    "auth": {"concurrency", "errors", "handlers", "limits", "secret", "terminal", "transports", "types"},
    "elicitation": {
        *("errors", "handlers", "json_schema", "limits", "protocol", "server_requests", "slots", "terminal", "types"),
    },
    "roots": {"errors", "handlers", "server_requests", "types"},
    "session": {
        *("concurrency", "elicitation", "errors", "handlers", "limits", "middleware", "protocol", "roots"),
        *("sampling", "server_requests", "slots", "transports", "types"),
    },
    "client": {
        *("concurrency", "elicitation", "errors", "handlers", "json_schema", "limits", "middleware", "protocol"),
        *("roots", "sampling", "session", "transports", "types", "version"),
    },
    "frameworks": {"errors", "functions", "handlers", "sampling", "types"},
    "group": {
        *("auth", "client", "concurrency", "config", "elicitation", "errors", "frameworks", "handlers", "limits"),
        *("middleware", "protocol", "roots", "sampling", "secret", "session", "transports", "types"),
    },
    "telemetry": {
        *("concurrency", "errors", "middleware", "protocol", "sampling", "session", "transports", "types", "version"),
    },
    "serving": {"concurrency", "errors", "protocol", "transports", "types"},
    "proxy": {
        *("auth", "client", "concurrency", "elicitation", "errors", "group", "limits", "middleware", "protocol"),
        *("sampling", "serving", "session", "slots", "terminal", "transports", "types", "version"),
    },
    "doctor": {"elicitation", "errors", "json_schema", "protocol", "serving", "transports", "types", "version"},
    "testing": {
        *("concurrency", "errors", "functions", "limits", "protocol", "sampling", "secret", "serving", "transports"),
        *("types", "version"),
    },
    "cli": {
        *("auth", "client", "concurrency", "config", "doctor", "elicitation", "errors", "group", "json_schema"),
        *("limits", "mcp_host", "protocol", "providers", "proxy", "sampling", "secret", "terminal", "testing"),
        *("transports", "types", "version"),
    },
    "__main__": {"cli"},
}
"""Which packages each package may import. Everything points one way: towards `base_errors`."""


def place(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


def package(module: Path) -> str:
    first = module.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported, at run time or for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif not isinstance(node, ast.expr):  # which has no statement in it
            yield from imports(node)


def parse(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def test_a_package_imports_only_the_layers_below_it() -> None:
    packages = {package(module) for module in MODULES}
    forbidden: dict[str, set[str]] = {}
    for module in MODULES:
        if module == SOURCE / "__init__.py":
            continue
        parts = [name.split(".") for name in imports(parse(module)) if name.startswith("mcp_host.")]
        used = {second for _, second, *_ in parts if second in packages}
        forbidden[place(module)] = used - {package(module)} - MAY_IMPORT[package(module)]

    assert {name: found for name, found in forbidden.items() if found} == {}


def test_no_two_modules_import_each_other() -> None:
    modules = {f"mcp_host.{place(module).removesuffix('.py').replace('/', '.')}": module for module in MODULES}
    graph = {name: set(imports(parse(module))) & modules.keys() for name, module in modules.items()}

    TopologicalSorter(graph).prepare()  # raises CycleError


def test_what_adapters_share_imports_no_adapter() -> None:
    parts = [name for module in (SOURCE / "providers/exchange").glob("*.py") for name in imports(parse(module))]
    used = {name for name in parts if name.startswith("mcp_host.providers.")}

    assert used
    assert {name for name in used if not name.startswith("mcp_host.providers.exchange")} == set()


def test_only_the_transports_and_oauth_import_httpx() -> None:
    """Cassettes, in `testing`, name its types, and import the library that the test asks for."""
    users = {package(module) for module in MODULES if {"httpx", "httpx2"} & set(imports(parse(module)))}

    assert users == {"auth", "testing", "transports"}


def test_a_command_runs_its_event_loop_where_a_signal_cuts_off_nothing() -> None:
    """By `signals.run`."""
    modules = [module for module in MODULES if package(module) in ("cli", "proxy", "serving")]
    users = {place(module) for module in modules if "anyio.run(" in module.read_text(encoding="utf-8")}

    assert len(modules) > 50
    assert users == set()


def test_what_lives_as_long_as_a_session_has_the_small_events_and_locks() -> None:
    """On asyncio, those of anyio take 0.9 KiB each, also while no task waits."""
    packages = ("client/*.py", "session/*.py", "transports/_http/*.py", "serving/**/*.py", "proxy/*.py")
    modules = [module for pattern in packages for module in SOURCE.glob(pattern)]
    users = {place(module) for module in modules if {"anyio.Event", "anyio.Lock"} & set(imports(parse(module)))}

    assert len(modules) > 50
    assert users == set()


@pytest.mark.parametrize(
    "name",
    [
        *(
            "mcp_host",
            "mcp_host.auth",
            "mcp_host.config",
            "mcp_host.middleware",
            "mcp_host.providers",
            "mcp_host.sampling",
        ),
        *("mcp_host.sampling.structured", "mcp_host.testing", "mcp_host.types"),
    ],
)
def test_a_package_defines_every_name_in_its_all(name: str) -> None:
    module = import_module(name)

    assert len(module.__all__) == len(set(module.__all__))
    for export in module.__all__:
        assert getattr(module, export) is not None


def test_mcp_host_exports_the_types_of_all_handlers_and_callbacks() -> None:
    callables = {
        *("Approve", "CheckOutput", "FormHandler", "Handler", "OnChange", "OnElicitationComplete", "OnLog"),
        *("OnNotification", "OnProgress", "RootLike", "RootsHandler", "UrlHandler"),
    }

    assert callables <= set(mcp_host.__all__)


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    packages: list[ModuleType] = [mcp_host, mcp_host.providers, mcp_host.sampling, mcp_host.testing]
    for package in packages:
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Manager'"):
            package.Manager  # noqa: B018  # the access is the test


def test_names_that_are_not_imported_yet_are_listed_for_help_and_completion() -> None:
    names = ("mcp_host", "mcp_host.providers", "mcp_host.sampling", "mcp_host.testing", "mcp_host.types")
    code = f"""
from importlib import import_module
for package in map(import_module, {names}):
    print(*set(package.__all__) - set(dir(package)))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.split() == []


def test_importing_the_package_imports_no_http_no_schemas_and_no_server_and_builds_no_model() -> None:
    heavy = ["httpx", "httpcore", "h11", "jsonschema", "referencing", "uvicorn", "trio", "opentelemetry"]
    heavy += [
        "joserfc",
        "keyring",
        "watchfiles",
        "yaml",
        "mcp_host.auth",
        "mcp_host.config",
        "mcp_host.testing",
        "mcp_host.middleware",
    ]
    heavy += ["mcp_host.group", "mcp_host.session.list_changed"]
    heavy += ["pydantic.plugin._loader"]  # the first model that is built imports it
    code = f"import sys, mcp_host; print([name for name in {heavy} if name in sys.modules])"

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "[]"
