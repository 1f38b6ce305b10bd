"""The decision service: what was acknowledged is never lost and counts exactly once.

The state of every model is the fold of one log, `Model.apply` its only writer. One thread gathers
what has arrived, decides in one kernel call for each model, writes one row, syncs it, applies it,
and then answers. Read it in this order:

    config     what is served, from a TOML file
    events     the words of the log
    clock      the time that the service was up
    join       open decisions, and what has come back for them
    model      an agent and its open decisions: the fold
    store      what a store promises; sqlite_store keeps it
    core       the one writer: groups, commits, answers
    recovery   from the log to models
    audit      decisions made again from what the log keeps of them
    wire       requests and answers, as JSON or MessagePack
    hot        decide and feedback, from a body to work and from its result to bytes
    http       the HTTP/1.1 server
    routes     every route, who may use it, and its answer; page: those of the page
    keys, metrics, openapi, serve     the rest of an HTTP service
"""
