"""Which variables of the environment decide what a program runs: where it, its libraries and its modules are looked for."""

from __future__ import annotations

import re

_DECIDING = re.compile(
    r"""
    (?!.*(?:TOKEN|SECRET|PASSWORD|AUTH|API_?KEY))  # such as UV_PUBLISH_TOKEN: they are not to be shown
    (?: PATH | PATHEXT | HOME | SHELL | COMSPEC | ENV | BASH_ENV | SHELLOPTS | BASHOPTS | IFS | PS4 | ZDOTDIR | PSMODULEPATH
      | GCONV_PATH | CLASSPATH | JAVA_HOME | (?:_JAVA|JAVA_TOOL|JDK_JAVA)_OPTIONS | XDG_.*_(?:HOME|DIRS)
      | (?:LD|DYLD|OPENSSL|GIT|DOCKER|NODE|NPM_CONFIG|YARN|PNPM|COREPACK|BUN|DENO|ELECTRON|UV|PIP|GEM|BUNDLE|LUA|CARGO)_.*
      | (?:DOTNET|CORECLR|COR)_.* | (?:PYTHON|PERL|RUBY|PHP|RUST).* | GO(?:BIN|FLAGS|PATH|PROXY|ROOT|TOOLCHAIN)
    )
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,  # Windows knows no case
)


def decides(name: str) -> bool:
    """Whether the variable *name* is known to decide what is run, such as PATH, LD_PRELOAD or NODE_OPTIONS."""
    return _DECIDING.fullmatch(name) is not None
