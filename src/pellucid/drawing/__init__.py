"""Self-contained pages and charts for reports, as HTML and SVG.

`report_page` is the page around a report, `svg` draws curves and attention maps, `bars` draws bar
charts, histograms and scatter plots. No scripts, nothing fetched; all outside text is escaped.
"""
