"""Jupyter Server on this machine's own address, with the book on it."""

import os
from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from traitlets.config import Config

from attn_tutor.live import handlers, solutions

# Seconds after which the kernel of a page that nobody has open ends.
SEEN_LAST = 20 * 60


class Server(ServerApp):
    # Files are read and written by our own handlers, which let no link lead out of the folder.
    default_services = ("api", "auth", "kernels", "security", "sessions")  # type: ignore[assignment]  # its type names all

    def init_configurables(self) -> None:
        super().init_configurables()
        self.contents_manager.files_handler_class = None


class Live(ExtensionApp):
    name = "attn_live"
    serverapp_class = Server
    extension_url = "/read/book/intro.html"
    load_other_extensions = False  # terminals, for one
    serverapp_config: dict[str, Any] = {
        "ip": "127.0.0.1",
        "allow_unauthenticated_access": False,
        "allow_root": True,  # in a container everybody is
        "answer_yes": True,  # Ctrl-C asks nothing
        "log_level": "WARN",
    }

    @classmethod
    def get_extension_package(cls) -> str:
        return __name__  # where Jupyter looks for what is below

    def initialize_settings(self) -> None:
        server = self.serverapp
        assert server is not None  # which its type does not say
        # A cookie that is not sent with what another site's page asks for, and that no script reads.
        server.identity_provider.cookie_options = {
            "httponly": True,
            "samesite": "Strict",
        }
        kernels = server.kernel_manager
        kernels.cull_idle_timeout, kernels.cull_interval = SEEN_LAST, 60
        # Messages to a kernel and back: none is read, or warned of, on its way. A dead kernel is noticed in a second.
        kernels.update_config(
            Config(
                {
                    "KernelManager": {"transport_encryption": "auto"},
                    "KernelRestarter": {"time_to_dead": 1.0},
                }
            )
        )
        folder = Path(server.root_dir)
        # Kernels inherit both. Threads that wait must not spin: beside other work that makes torch many times slower.
        os.environ[solutions.PLACE] = str(folder / "my_solutions.py")
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        # Server and page are on one machine, and need not ask whether the other is there.
        self.settings["ws_ping_interval"] = 0
        # A text to train on may be longer than what is kept of one.
        self.settings["websocket_max_message_size"] = server.max_body_size
        self.settings["attn_live"] = handlers.Reader(folder)

        self.handlers.extend(handlers.handlers(folder))


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    return [{"module": __name__, "app": Live}]
