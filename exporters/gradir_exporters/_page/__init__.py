"""What the exporter ``html`` writes into a page: its data, and the script and the style that viewer/ builds."""
