"""Pages and pictures that need nothing else: HTML and SVG made by hand, for reports.

`page` is the page around a report, `svg` has curves and attention maps, `bars` has bars, histograms
and clouds of points. No script, nothing fetched; every text from outside is escaped.
"""
