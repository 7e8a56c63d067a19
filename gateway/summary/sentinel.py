"""Redis behind Sentinels: clients that follow the master from one server to another.

    redis+sentinel://[[user]:password@]host[:port][,host[:port]...]/master[/db]

names the Sentinels and the master as they know it; user and password are those of Redis itself. A
client asks the Sentinels for the master whenever it connects, so a failover costs it the commands
that were under way. What the old master took and the new one does not have is repaired as after
any loss of Redis: the reports of the workers show it.
"""

from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

SCHEME: Final = "redis+sentinel"
EXAMPLE: Final = f"{SCHEME}://host-a:26379,host-b:26379/mymaster"
PORT: Final = 26379

Client = TypeVar("Client", bound=Redis)


class SentinelUrl(NamedTuple):
    """Args: the `sentinels`, host and port; the `master` that they know; `db`, `username` and
    `password` at Redis.
    """

    sentinels: list[tuple[str, int]]
    master: str
    db: int
    username: str | None
    password: str | None

    @classmethod
    def parse(cls, url: str) -> "SentinelUrl":
        """Read a URL of the scheme of this module.

        Raises:
            ValueError: it is malformed; the message says where.
        """
        parts = urlsplit(url)
        if parts.query or parts.fragment:
            raise ValueError("options are not understood")
        login, _, hosts = parts.netloc.rpartition("@")
        username, _, password = login.partition(":")
        master, _, db = parts.path.removeprefix("/").partition("/")
        if not master:
            raise ValueError("it names no master")
        if db and not db.isdecimal():
            raise ValueError(f"the number of a database was expected after the master, not {db!r}")
        return cls(
            sentinels=[_address(host) for host in hosts.split(",")],
            master=unquote(master),
            db=int(db or 0),
            username=unquote(username) or None,
            password=unquote(password) or None,
        )


class _Pool(SentinelConnectionPool):
    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()


def master_client(url: SentinelUrl, client: type[Client], **options: Any) -> Client:
    """A client of whoever is the master.

    Args:
        url: of the Sentinels.
        client: its class.
        options: of its connections, with a `socket_connect_timeout`, within which all Sentinels
            are asked.
    """
    patience = options["socket_connect_timeout"] / len(url.sentinels)
    asking = options | {"socket_timeout": patience, "socket_connect_timeout": patience}
    sentinels = Sentinel(url.sentinels, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    master: Client = sentinels.master_for(
        url.master,
        redis_class=client,
        connection_pool_class=_Pool,
        db=url.db,
        username=url.username,
        password=url.password,
        **options,
    )
    return master


def _address(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"host:port of a Sentinel was expected, not {text!r}")
    return parts.hostname, parts.port or PORT
