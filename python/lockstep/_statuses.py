# SPDX-License-Identifier: BSD-3-Clause
"""The statuses of include/lockstep/status.def: (name, value, what is broken, sentence)."""

# begin: written by tools/check --write-docs

STATUSES = (
    ("OK", 0, "NONE", "success"),
    ("BAD_ARGUMENT", 1, "CALL", "an argument is outside its documented range"),
    ("OUT_OF_MEMORY", 2, "CALL", "memory, address space or descriptors are exhausted"),
    ("UNSUPPORTED", 3, "CALL", "this build or this machine cannot do that"),
    ("FORKED", 4, "CALL", "the group belongs to the parent of this forked process"),
    ("TRUNCATED", 5, "GROUP", "the message is longer than the receive buffer"),
    ("TIMED_OUT", 6, "GROUP", "the operation did not finish in time; no member is known to have ended"),
    ("INTERRUPTED", 7, "GROUP", "a signal handler ended the wait, and the operation was abandoned"),
    ("MISMATCH", 8, "GROUP", "ranks made calls that do not fit together"),
    ("PEER_DIED", 9, "GROUP", "a member process ended before its part was done"),
    ("PEER_LEFT", 10, "GROUP", "a member closed its group while others still needed it"),
    ("DEADLOCK", 11, "GROUP", "ranks wait for each other and none can ever continue"),
    ("ABORTED", 12, "GROUP", "a rank aborted the group: it called ls_group_abort, or could not continue"),
    ("WRONG_WORLD_SIZE", 13, "GROUP", "ranks disagree about the number of ranks"),
    ("DUPLICATE_RANK", 14, "GROUP", "two processes claim the same rank"),
    ("RANK_MISSING", 15, "GROUP", "not all ranks reached the rendezvous in time"),
    ("PORT_TAKEN", 16, "GROUP", "the rendezvous address is in use by another program"),
    ("NO_MASTER", 17, "GROUP", "nobody answers at the rendezvous address"),
    ("UNTRUSTED_PEER", 18, "GROUP", "the process at the rendezvous address does not belong to this job"),
    ("WRONG_VERSION", 19, "GROUP", "ranks run different versions of Lockstep"),
    ("SYSTEM", 20, "PROCESS", "a system call failed that Lockstep depends on"),
    ("INTERNAL", 21, "PROCESS", "Lockstep found its own state inconsistent; please report it"),
    ("PENDING", 22, "NONE", "the operation is still under way"),
    ("UNEVEN", 23, "OP", "some ranks have run out of batches while others have more"),
    ("INCONSISTENT", 24, "CALL", "ranks passed values that must agree but differ"),
    ("CANCELLED", 25, "OP", "the send or receive was cancelled before it was matched"),
    ("NOT_MEMBER", 26, "NONE", "this rank is not a member of the new group"),
    ("UNREACHABLE", 27, "GROUP", "the host of a member is silent or cut off; the member may live"),
)

# end: written by tools/check --write-docs
