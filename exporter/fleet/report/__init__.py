"""The weekly review as a document: HTML, Markdown, JSON and CSV of one `Overview`."""
