"""`radixgate simulate`: traces through routing policies, in virtual time."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
