"""The data of the page that the exporter ``html`` writes."""
