"""What a grader says: right or not, which mistake, what was measured, and a hint."""

import html
import textwrap
from dataclasses import dataclass

_WIDTH = 100


@dataclass(frozen=True)
class Verdict:
    """The result of ``check``: print it, or let a notebook show it.

    Args:
        exercise: The name of the exercise.
        ok: Whether the solution is right.
        diagnosis: A short stable name of the mistake; ``"right"`` if there is none.
        what: What was seen, with the evidence.
        hint: The hint asked for; empty for a right solution.

    Example:
        >>> print(Verdict("attend", False, "no-scale", "the scores are 8.0 times too large", "..."))
        attend: not yet (no-scale)
          seen: the scores are 8.0 times too large
          hint: ...
        >>> Verdict("attend", True, "right", "right in 5 cases")
        attend: right in 5 cases
    """

    exercise: str
    ok: bool
    diagnosis: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        if self.ok:
            return f"{self.exercise}: {self.what}"
        lines = [f"{self.exercise}: not yet ({self.diagnosis})"]
        for label, text in (("seen", self.what), ("hint", self.hint)):
            if text:
                lines += textwrap.wrap(
                    text, _WIDTH, initial_indent=f"  {label}: ", subsequent_indent=" " * 8
                )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """A sentence if it is right, otherwise a table with a caption and headed rows."""
        if self.ok:
            return f"<p><strong>{html.escape(self.exercise)}</strong>: {html.escape(self.what)}</p>"
        rows = [
            f'<tr><th scope="row">{label}</th><td>{html.escape(text)}</td></tr>'
            for label, text in (("seen", self.what), ("hint", self.hint))
            if text
        ]
        caption = html.escape(f"{self.exercise}: not yet ({self.diagnosis})")
        return f"<table><caption>{caption}</caption><tbody>{''.join(rows)}</tbody></table>"
