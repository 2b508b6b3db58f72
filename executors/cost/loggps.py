"""LogGPS parameters on one line, as LogGOPSim takes them."""

from __future__ import annotations

import math
from typing import Final

from collplan.specs import Link, Network, SpecError

_EXAMPLE: Final = "L=2500,o=1500,g=1000,G=6,O=0,S=65535"


class Loggps:
    """The parameters of the LogGPS model: letters and what they mean.

    ``L`` latency, ``o`` overhead of a message, ``g`` gap between messages, ``G``
    gap a byte, ``O`` overhead a byte (all ns), ``S`` the eager limit in bytes.
    """

    letters: Final = ("L", "o", "g", "G", "O", "S")

    @staticmethod
    def parse(text: str) -> Network:
        """Return a network whose links all have the parameters in `text`, and free copies.

        Parameters
        ----------
        text : str
            All six letters, like ``L=2500,o=1500,g=1000,G=6,O=0,S=65535``.

        Raises
        ------
        SpecError
            Naming the letter that is unknown, missing, doubled or no number.

        Examples
        --------
        >>> Loggps.parse("L=2500,o=1500,g=1000,G=6,O=0,S=65535").network.L_ns
        2500.0
        """
        values: dict[str, float] = {}
        for item in text.split(","):
            letter, equals, number = (part.strip() for part in item.partition("="))
            if letter not in Loggps.letters or not equals:
                raise SpecError(
                    f"loggps: {item.strip()!r} is no parameter; give L, o, g, G, O and S, "
                    f"like {_EXAMPLE}"
                )
            if letter in values:
                raise SpecError(f"loggps: {letter} is given twice; give it once, like {_EXAMPLE}")
            values[letter] = _number(letter, number)
        missing = [letter for letter in Loggps.letters if letter not in values]
        if missing:
            raise SpecError(f"loggps: {', '.join(missing)} missing; give all, like {_EXAMPLE}")
        link = Link(
            L_ns=values["L"],
            o_ns=values["o"],
            g_ns=values["g"],
            G_ns_per_byte=values["G"],
            O_ns_per_byte=values["O"],
        )
        return Network(
            core=link,
            numa=link,
            node=link,
            network=link,
            eager_limit_bytes=int(values["S"]),
            copy_ns_per_byte=0.0,
            reduce_ns_per_byte=0.0,
        )


def _number(letter: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise SpecError(f"loggps: {letter}={text} must be a number from 0, like {_EXAMPLE}")
    if letter == "S" and value != int(value):
        raise SpecError(f"loggps: S={text} must be whole bytes, like {_EXAMPLE}")
    return value
