"""Draw the picture of a page that goes with a link to it: what it is about, in 1200 by 630."""

from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT, MARGIN = 1200, 630, 64
BLUE, BLACK, GREY = "#0f5bc4", "#1a1a1a", "#555555"
FONTS = Path(matplotlib.get_data_path(), "fonts", "ttf")  # DejaVu, as in the figures of the book


def draw(title: str, sentence: str, book: str, picture: Image.Image | None) -> Image.Image:
    """Return the card of a page.

    Args:
        title: the page's title.
        sentence: its description.
        book: the name of the book; written below, unless it is the title.
        picture: a figure of the page, for the right half.
    """
    card = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(card)
    _draw_mask(pen, MARGIN, HEIGHT - MARGIN - 56, 16)
    if title != book:
        pen.text((MARGIN + 80, HEIGHT - MARGIN - 46), book, BLACK, _font("Sans-Bold", 28))
    width = WIDTH - 2 * MARGIN
    if picture is not None:
        width = 560
        _paste(card, picture, (MARGIN + width + 32, MARGIN, WIDTH - MARGIN // 2, HEIGHT - MARGIN))
    else:
        width -= 330
        _draw_mask(pen, WIDTH - MARGIN - 300, MARGIN + 10, 90)
    y = _write(pen, title or book, "Sans-Bold", BLUE, (48, 40, 34), width, MARGIN, HEIGHT * 0.5)
    _write(pen, sentence, "Sans", GREY, (27, 24, 21), width, y + 24, HEIGHT - MARGIN - 80)
    return card.quantize(64, dither=Image.Dither.NONE)


def _draw_mask(pen: ImageDraw.ImageDraw, left: int, top: int, size: int) -> None:
    """Draw a causal mask, the mark of the book: row i may see columns 0 to i."""
    step = size * 10 // 8
    for row in range(3):
        for column in range(row + 1):
            x, y = left + column * step, top + row * step
            pen.rectangle((x, y, x + size, y + size), BLUE)


def _paste(card: Image.Image, picture: Image.Image, box: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = box
    scale = min((right - left) / picture.width, (bottom - top) / picture.height)
    size = (round(picture.width * scale), round(picture.height * scale))
    small = picture.resize(size, Image.Resampling.LANCZOS)
    place = (left + (right - left - size[0]) // 2, top + (bottom - top - size[1]) // 2)
    card.paste(small, place, small)


def _write(pen, text: str, font: str, colour: str, sizes, width: int, top: float, bottom: float):
    """Write a text in the largest of the sizes that fits; return where it ends."""
    for size in sizes:
        letters = _font(font, size)
        lines = _lines(text, letters, width)
        end = top + len(lines) * size * 1.3
        if end <= bottom:
            break
    for number, line in enumerate(lines):
        pen.text((MARGIN, top + number * size * 1.3), line, colour, letters)
    return end


def _lines(text: str, letters: ImageFont.FreeTypeFont, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if letters.getlength(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(
        FONTS / f"DejaVu{name}.ttf", size, layout_engine=ImageFont.Layout.BASIC
    )
