"""What a bundle costs on this machine: in this process, or behind a URL. `gaussport bench` runs it.

machine     what it ran on; figures of two machines are not compared
rounds      interleaved rounds: medians, spread, processor time beside the clock
session     a bundle in this process: start-up, memory, milliseconds by batch size
load        a server: as fast as so many clients go, or at a rate that does not wait
document    the JSON that is kept, and what it says against an earlier one
tables      for people;  plots  for pages
"""
