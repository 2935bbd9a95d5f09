/*
 * The gate to ring 0 at p = 3: a TLB flush.  Its int3 goes to gate_or_breakpoint (entry/entry.S),
 * which tells it from an int3 of the program by flush_gate_end, the RIP after it.
 */
        .text
        .globl flush_gate, flush_gate_end
flush_gate:
        int3
flush_gate_end:
        ret

        .section .note.GNU-stack, "", @progbits
