"""Labs: widgets with switches, the same in a live notebook and on a page without a kernel."""
