"""MkDocs hook: groups in the navigation, synonyms for the search, tables on phones, and pages of files outside `docs/`.

`PAGE#group` in the navigation is a section of that page, such as `guides/README.md#data`: it becomes an index page with
the section's text, and the pages that its table links to follow in its order. So a page is listed once.

A page links to a file as GitHub needs it, by a relative path. At build time the file's page is `repository/PATH`: a
Markdown file as it is, a text file as a code block, a folder as its README or the list of its files. Other
files, such as pictures, are copied. So a text is written once, and the strict build checks every link.
"""

import itertools
import os
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

FOLDER = "repository"
# The index pages of groups, and the page whose table has words for the search and the pages that they lead to.
GROUPS, SYNONYMS = "groups", "find.md"
# The page that is divided, and the names of its parts: each row of its first table has the sections of a part.
RESULTS = "benchmarks/RESULTS.md"
PARTS = ("papers", "two_labels", "methods", "privacy", "steps", "memory", "exports")
LINK = re.compile(r"(?<=\]\()([^)\s#<>:]+)(?=[)#])")
RESULT_PAGES = re.compile("benchmarks/|^results/")
TABLE = re.compile("<table>.*?</table>", re.DOTALL)
CODE = re.compile(r"^(```|~~~~).*?^\1$", re.MULTILINE | re.DOTALL)
LANGUAGES = {
    "": "text",
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".cff": "yaml",
    ".json": "json",
    ".txt": "text",
}


def on_config(config):
    """Replace the groups and patterns of the navigation by their pages."""
    root = Path(config.config_file_path).parent
    docs, named = Path(config.docs_dir), str(config.nav)

    def expanded(items):
        for item in items:
            if isinstance(item, dict):
                yield {title: part if isinstance(part, str) else list(expanded(part)) for title, part in item.items()}
            elif "#" in item:
                page, name = docs / item.partition("#")[0], item.partition("#")[2]
                yield f"{GROUPS}/{name}/index.md"
                for text, link in re.findall(r"\[([^\]]+)\]\(([^)#]+)\)", section(page, name)):
                    uri = site_uri(target(page, link, root), root)
                    if f"'{uri}'" not in named:
                        yield {text: uri}
            elif "*" in item:
                yield from sorted(path.relative_to(docs).as_posix() for path in docs.glob(item))
            else:
                yield item

    config.extra["groups"] = re.findall(r"'([\w/]+\.md)#([\w-]+)'", named)
    config.nav = config.nav and list(expanded(config.nav))
    return config


def section(page, name):
    """Return the text of a page's section, from its heading to the next one of this depth."""
    for text in re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        if re.sub(r"\W+", "-", text.partition("\n")[0].lower()) == name:
            return text
    raise ValueError(f"{page} has no section {name}")


def on_files(files, config):
    """Add a page for each file of the repository that the navigation names or a page links to, also through others."""
    root = Path(config.config_file_path).parent
    paths = [root / name for name in re.findall(rf"{FOLDER}/([^'\s]+\.md)", str(config.nav))]
    for file in files.documentation_pages():
        paths += linked(root / "docs" / file.src_uri, root)
    for page, name in config.extra["groups"]:
        path = root / "docs" / page
        uri = f"{GROUPS}/{name}/index.md"
        files.append(File.generated(config, uri, content=site_links(f"# {section(path, name)}", path, uri, root)))
    for uri, text in result_parts(root).items():
        files.append(File.generated(config, uri, content=site_links(text, root / RESULTS, uri, root)))
    while paths:
        path = paths.pop()
        uri = site_uri(path, root)
        if uri.startswith(FOLDER) and files.get_file_from_path(uri) is None:
            text = content(path, root)
            source = {"abs_src_path": str(path)} if text is None else {"content": text}
            files.append(File.generated(config, uri, **source))
            paths += linked(path, root) if path.suffix == ".md" else []
    return files


def result_parts(root):
    """Return `{page: text}` of the parts of the results; a part begins with the first section of its row."""
    path = root / RESULTS
    text = path.read_text("utf-8").replace("](#", f"]({path.name}#") if path.exists() else ""
    rows = re.findall(r"^\| (.+?\?) \| \[[^]]+\]\([^#]+#([\w-]+)\)", text, re.MULTILINE)
    begins = {anchor(match[1]): match.start() for match in re.finditer(r"^##+ (.*)$", text, re.MULTILINE)}
    starts = [begins[start] for _, start in rows]
    bodies = [text[start:end] for start, end in zip(starts, [*starts[1:], None])]
    return {f"results/{part}.md": f"# {title}\n\n{body}" for part, (title, _), body in zip(PARTS, rows, bodies)}


def headings(text):
    """Return the headings of a Markdown text, without the first."""
    return re.findall(r"^##+ (.*)$", text, re.MULTILINE)


def anchor(heading):
    """Return the anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def on_page_markdown(markdown, page, config, files):
    """Return the page's text with links to the files' pages; the search reads synonyms as tags."""
    root = Path(config.config_file_path).parent
    uri = page.file.src_uri
    if words := synonyms(root).get(uri):
        page.meta["tags"] = words
    source = root / uri.removeprefix(f"{FOLDER}/") if uri.startswith(FOLDER) else root / "docs" / uri
    return site_links(markdown, source, uri, root) if source.suffix == ".md" and source.exists() else markdown


def on_page_content(html, page, config, files):
    """Return the page with the name of its column in each cell of wide tables: narrow screens show rows as cards."""
    style = "compact" if RESULT_PAGES.search(page.file.src_uri) else "lines"
    return TABLE.sub(lambda table: label_cells(table[0], style), html)


def label_cells(table, style):
    """Return a table with the heads as `data-label` of its cells, if it has three columns or more.

    `style` is the value of `data-cards`: cells have "lines" of their own, or follow each other ("compact").
    """
    heads = [re.sub("<[^>]+>", "", head).rstrip(":") for head in re.findall(r"<th\b[^>]*>(.*?)</th>", table, re.DOTALL)]
    if len(heads) < 3:
        return table
    labels = itertools.cycle(heads)
    # A line breaks between a mean and the next one, not before its spread.
    table = table.replace("<table", f'<table data-cards="{style}"', 1).replace(" ± ", "&nbsp;±&nbsp;")
    # A card whose title is a number names its column too.
    return re.sub(
        r"<td(?=[^>]*>(\d)?)", lambda cell: f'<td data-label="{next(labels)}"' + " data-number" * bool(cell[1]), table
    )


def site_links(markdown, source, uri, root):
    """Return the text of a file with its links as those of a page of the site."""

    def replaced(match):
        path = target(source, match[1], root)
        if path is None:
            return match[1]
        name = re.match(r"#([\w-]+)", match.string[match.end() :])
        parts = result_parts(root).items() if name and path == root / RESULTS else ()
        part = next((page for page, text in parts if name[1] in map(anchor, headings(text))), site_uri(path, root))
        return posixpath.relpath(part, posixpath.dirname(uri))

    return outside_code(lambda text: LINK.sub(replaced, text), markdown)


def synonyms(root):
    """Return `{page: words}` of the rows of the page of synonyms; the first link of a row is the page."""
    path, words = root / "docs" / SYNONYMS, {}
    rows = re.findall(r"^\| ([^|]+) \|(.*)", path.read_text("utf-8") if path.exists() else "", re.MULTILINE)
    for texts, answer in rows:
        for link in LINK.findall(answer)[:1]:
            words.setdefault(site_uri(target(path, link, root), root), []).extend(texts.split(", "))
    return words


def outside_code(function, markdown):
    """Return a text with a function applied to the parts between its code blocks."""
    parts, end = [], 0
    for block in CODE.finditer(markdown):
        parts += [function(markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, function(markdown[end:])])


def linked(page, root):
    """Return the files that a Markdown file links to."""
    links = LINK.findall(CODE.sub("", page.read_text("utf-8")))
    return [path for link in links if (path := target(page, link, root)) is not None]


def target(page, link, root):
    """Return the path of a link's file, a folder's README if it has one; None if the repository lacks the file."""
    path = Path(os.path.normpath(page.parent / link))
    if not path.exists() or not path.is_relative_to(root):
        return None
    return path / "README.md" if (path / "README.md").exists() else path


def site_uri(path, root):
    """Return the source address of a file's page, relative to the site."""
    name = path.relative_to(root).as_posix()
    if name.startswith("docs/") and path.suffix not in LANGUAGES:
        return name.removeprefix("docs/")
    return f"{FOLDER}/{name}.md" if path.suffix in LANGUAGES else f"{FOLDER}/{name}"


def content(path, root):
    """Return the Markdown text of a file's page, None for a file that is copied."""
    name = path.relative_to(root).as_posix()
    if path.is_dir():
        names = sorted(item.name for item in path.iterdir() if item.name[0] not in "._")
        return f"# {name}\n\n" + "\n".join(f"- `{item}`" for item in names) + "\n"
    if path.suffix in LANGUAGES:
        return f"# {name}\n\n~~~~{LANGUAGES[path.suffix]}\n{path.read_text('utf-8')}\n~~~~\n"
    if path == root / RESULTS:
        return path.read_text("utf-8").partition("\n## ")[0].replace("](#", f"]({path.name}#")
    return path.read_text("utf-8") if path.suffix == ".md" else None
