"""Read PDF files: text, pages and a repaired tree of headings."""
