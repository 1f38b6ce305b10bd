"""The decision service: what was acknowledged is never lost and counts exactly once.

The state of every model is the fold of one log, `Model.apply` its only writer. One thread gathers
what has arrived, decides in one kernel call for each model, writes one row, syncs it, applies it,
and then answers. Read it in this order:

    config      what is served, from a TOML file
    events      what a row of the log holds
    store       the log on disk: SQLite, the mark, snapshots
    join        open decisions, and the feedback for them
    model       an agent and its open decisions: the fold; here it learns
    recovery    from the log to models
    wire        requests and replies, as JSON or MessagePack; errors
    core        the one writer: groups, commits, answers, the clock; here it decides
    http        the HTTP/1.1 server
    routes      every route, who may use it, and its reply; openapi describes them
    keys        who may do what
    telemetry   metrics and log lines
    watch       live numbers, exposure, history and their stream; page shows them; whatif
    serve       from a configuration to a running server; demo: with simulated users
    log_file    a log that is not served: read, verify, back up, restore; export: to a table
"""
