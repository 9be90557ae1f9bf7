"""What goes over the wire: the bodies of requests and answers, and the words in them. Pure.

base.py has what all of them are made of, vocabulary.py the names of states, the others one noun each.
Requests are strict: a field that is not named here is refused. Answers are structs of their own, so that a column
added to the store is not shown by accident. The server turns these into the types of the queue (`server/`).
"""
