from typing import Final

DBNAME: Final[str]
ENOVAL: Final[object]
