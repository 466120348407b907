"""One exchange with a model, as all adapters have it: what goes to the provider, what comes back, and what is kept.

============  =======================================================================
`requests`    the `Prompt`, from which an adapter writes its request
`file_types`  the types of files, by their first bytes
`names`       names of tools, as a provider takes them, and back
`repair`      what servers call JSON Schemas, as valid ones
`schemas`     JSON Schemas of tools, as a provider takes them
`replies`     the `Reply` that an adapter reads, and the answer that is made of it
`streams`     the text of an answer while it is written
`texts`       halves of characters and of stop sequences, in the pieces of a stream
`reasoning`   what a model thought before its calls, until it needs that back
`failures`    what SDKs raise, as one `ProviderError`
`clients`     what an adapter's client has to be
`logged`      what the log has already
============  =======================================================================

No module of it imports an adapter.
"""
