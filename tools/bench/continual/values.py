"""Values of INI files: numbers, lists and what is wrong with them."""

import re


class Problem(Exception):
    """Something that the user can put right; the message says what."""


def number(text, what):
    """8192, 8K or 2M."""
    match = re.fullmatch(r"(\d+)([KMG]?)", str(text).strip())
    if not match or int(match[1]) == 0:
        raise Problem(f"{what} is '{text}', but must be a whole number above 0, such as 8192, 8K or 2M")
    return int(match[1]) * 1024 ** " KMG".index(match[2] or " ")


def words(text):
    return [word.strip() for word in str(text).split(",") if word.strip()]


def whole_numbers(text, what):
    found = words(text)
    if not found or not all(re.fullmatch(r"\d+", word) for word in found):
        raise Problem(f"{what} is '{text}', but must be whole numbers such as 1,2,3")
    return list(dict.fromkeys(int(word) for word in found))


def order_names(text, what):
    """Numbers, and names of texts."""
    found = words(text)
    if not found or not all(re.fullmatch(r"[A-Za-z0-9_-]+", word) for word in found):
        raise Problem(f"{what} is '{text}', but must be numbers or names of texts such as 0,1,dna")
    return list(dict.fromkeys(int(word) if word.isdigit() else word for word in found))
