from wide.results import Result
def page(results): return "x\n"
