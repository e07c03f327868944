"""Markdown as models write it."""

from __future__ import annotations

RICH = """\
# A title

Some *text* with **bold words**, `code`, a [link](http://example.com/a) and <b>html</b>.
Second line stays on its own line.

Steps:
1. First thing
2. Second thing that is quite long and has to be wrapped because it does not fit into eighty columns at all
   - nested one
   - nested two
10. Tenth

- loose

- item with code:
  ```python
  def double(x):
      return x + x
  ```
  and after it.
- [ ] task

> A quotation that goes on and on and on and on and on and on and on and on and on and on.

| Name | Amount | Note |
|------|-------:|------|
| Ann  | 12     | first |
| 世界 | 3      | second |

```bash
echo "hello" | sed s/a/b/   # comment
```

***

Setext
------
The end.
"""

CJK = (
    "这是一个很长的段落，里面有很多汉字，用来检查换行是否正确。它不应该在一行的开头出现标点符号。"  # noqa: RUF001 - Chinese
    "混合 English words 也应该可以正常换行，没有问题。絵文字 🎉 と日本語の文章も、正しく折り返される。\n"  # noqa: RUF001
)


def listing(lines: int) -> str:
    """Return a long piece of code."""
    body = "".join(f"def function_{number}(x: int) -> int:  # {number}\n" for number in range(lines))
    return f"```python\n{body}```\n"


def paragraph(words: int) -> str:
    """Return a paragraph of numbered words, so that a missing one is found."""
    return " ".join(f"word{number}" for number in range(words)) + "\n"
