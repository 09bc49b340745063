"""What the exporter ``html`` writes into a page: the blocks of data, and the script and the style that viewer/ builds."""
