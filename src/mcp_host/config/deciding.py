"""Which variables of the environment decide what a program runs, or where it sends what it gets, and what a person is told of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mcp_host.config.secret_words import without_secrets
from mcp_host.secret import HIDDEN

_DECIDING = re.compile(
    r"""
    GOAUTH | (?!.*(?:TOKEN|SECRET|PASSWORD|AUTH|API_?KEY))  # such as UV_PUBLISH_TOKEN: they are not to be shown
    (?: .+_(?:HOME|PATH|OPTS|OPTIONS|PREFIX|REGISTRY|PRELOAD|WRAPPER)  # of many launchers
      | .+_(?:BIN|BINARY|EXE|EXECUTABLE|CMD|COMMAND)  # such as CHROME_BIN
      | PATH | PATHEXT | HOME | SHELL | COMSPEC | ENV | BASH_(?:ENV|FUNC_.*) | SHELLOPTS | BASHOPTS | IFS | PS4 | PROMPT_COMMAND
      | ZDOTDIR | FPATH | PSMODULEPATH | GLIBC_TUNABLES | XDG_.*_DIRS
      | USERPROFILE | HOME(?:DRIVE|PATH) | (?:LOCAL)?APPDATA | PROGRAM(?:FILES|DATA).* | SYSTEM(?:ROOT|DRIVE) | WINDIR
      | CLASSPATH | (?:JAVA|MAVEN|GRADLE|JBANG|COURSIER|CLJ|SDKMAN)_.* | (?:DOTNET|CORECLR|COR|COMPLUS)_.*
      | (?:LD|DYLD|OPENSSL|GIT|NODE|NPM|YARN|PNPM|COREPACK|BUN|DENO|JSR|TS_NODE|TSX|ESBUILD|ELECTRON|LUA|CARGO|CGO)_.*
      | (?:PUB|DART|CABAL|STACK|ELIXIR|GUILE|HERMIT|AQUA|HOMEBREW)_.* | (?:COMPOSER|OPAM|PKG_CONFIG).*
      | (?:UV|PIP|PIPX|POETRY|PDM|HATCH|CONDA|GEM|BUNDLE|DOCKER|CONTAINERS?|PODMAN|JULIA)_.* | VIRTUAL_ENV | KUBECONFIG
      | (?:COMPOSE|BUILDX|NERDCTL|APPTAINER|SINGULARITY|NIX|PIPENV|PEX|RYE|PIXI|MAMBA|NUGET|MIX|ERL|R|LEIN|SBT|JRUBY|PROTO)_.*
      | MSBUILD.* | PREFIX | __PYVENV_LAUNCHER__ | JAVACMD | HGRCPATH | (?:SVN|CVS|RSYNC)_(?:SSH|RSH) | LESSOPEN | TCLLIBPATH
      | AWS_CONFIG_FILE | CLOUDSDK_(?:PYTHON.*|CONFIG) | TF_CLI_CONFIG_FILE | HELM_PLUGINS  # they name programs, too
      | (?:NVM|FNM|VOLTA|NODENV|PYENV|RBENV|ASDF|MISE)_.* | (?:PYTHON|PERL|RUBY|PHP|RUST).*
      | GO[A-Z0-9]+ | OCAMLRUNPARAM | PLTCOLLECTS | HOSTALIASES
      | (?:HTTPS?|ALL)_PROXY | SSL_CERT_(?:FILE|DIR) | (?:REQUESTS|CURL)_CA_BUNDLE  # where packages are loaded from
      | EDITOR | VISUAL | (?:MAN|SYSTEMD_)?PAGER | BROWSER | (?:SSH|SUDO)_ASKPASS | LESSCLOSE | GNUPGHOME | CDPATH
      | CC | CXX | CPP | AR | LD | LINK | LDSHARED | [A-Z]+FLAGS | (?:GNU)?MAKE(?:FILES|FLAGS)? | CMAKE_.* | GYP_.*  # builds of packages
      | (?:SETUPTOOLS|SKBUILD|MATURIN|MESON|NINJA|FLUTTER|HEX|REBAR|LUAROCKS|MVNW|PYLAUNCHER|PKGX|DEVBOX|BUNDLER)_.*
      | DEVELOPER_DIR | TOOLCHAINS | SDKROOT | XCRUN_.* | PY_PYTHON.* | ASPNETCORE_HOSTINGSTARTUPASSEMBLIES
      | PROGRAMW6432 | ALLUSERSPROFILE | COMMONPROGRAM.* | (?:GIO|GTK\d?|GST)_.* | KRB5_CONFIG | DBUS_.*_ADDRESS | ODBC(?:SYS)?INI
      | AWS_SHARED_CREDENTIALS_FILE | GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES | (?:AZURE|GH)_(?:CONFIG|EXTENSION)_DIR
    )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,  # Windows knows no case
)

_NAMES_HOST = re.compile(
    r".*(?:HOST|HOSTNAME|UR[IL]|ENDPOINT|DOMAIN|SERVER|ADDR|ADDRESS|ORIGIN|(?:_|\A)BASE)S?_?\d*",
    re.IGNORECASE | re.DOTALL,
)
_REST = r"""[^\s/\\?#'"]*"""
_HOST = re.compile(rf"((?:(?<![a-z])(?:https?|wss?):|:(?=[/\\]{{2}}))[/\\]*)({_REST})", re.IGNORECASE)
"""Where a URL has its host. Programs take those of HTTP after one slash, none, or backslashes, too."""
_BEGINNING = re.compile(rf"()({_REST})")


def decides(name: str) -> bool:
    """Whether the variable *name* is known to decide what is run, such as PATH, LD_PRELOAD or NODE_OPTIONS."""
    return _DECIDING.fullmatch(name) is not None


def names_host(name: str, value: str) -> bool:
    """Whether a variable says where something is sent: its *value* has a URL, or its *name* is one like OPENAI_BASE_URL or PGHOST."""
    return _NAMES_HOST.fullmatch(name) is not None or _HOST.search(value) is not None


def shown_value(name: str, shown: str, settled: str) -> str:
    """What a person is told of a variable or header: nothing that looks like a secret, but all hosts, which can be made to look like one.

    *shown* is its value without what variables and files hide, *settled* what the files say. Of what is hidden, hosts are shown.
    """
    if HIDDEN not in shown:
        told = "".join(text if is_host else without_secrets(text) for text, is_host in _pieces(name, f"{name}=", shown))
        return told.removeprefix(f"{name}=")
    if names_host(name, settled):
        told = "".join(text if is_host else HIDDEN for text, is_host in _pieces(name, "", settled) if text)
        return told.replace(HIDDEN * 2, HIDDEN)
    return shown if shown == HIDDEN else without_secrets(f"{name}={shown}").removeprefix(f"{name}=")


def _pieces(name: str, lead: str, value: str) -> Iterator[tuple[str, bool]]:
    """*lead* and *value* in pieces: hosts, without users and passwords, and what is between them."""
    hosts = list(_HOST.finditer(value))
    if _NAMES_HOST.fullmatch(name):
        hosts = [*_BEGINNING.finditer(value, 0, hosts[0].start() if hosts else len(value))][:1] + hosts
    end = 0
    for found in hosts:
        _, at, host = found[2].rpartition("@")
        yield lead + value[end : found.start()], False
        yield found[1] + (f"***@{host}" if at else host), True
        lead, end = "", found.end()
    yield lead + value[end:], False
