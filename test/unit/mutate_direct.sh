#!/bin/bash
# Mutants of the queues that kern drives by itself: see mutants.sh.
# shellcheck disable=SC2317 # called by mutant
: "${STEPS:=20000000}"
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

build_test() {
    compile "$unit/test_direct.c" "$unit/card_model.c" "$unit/pager_sched.c" \
        "$tree/common/clock.c"
}

mlx5=far/direct/mlx5.h queue=kern/far/direct/queue.c host=runtime/far/direct.c
put='/^static inline void mlx5_put/,/^}/' ring='/^static inline void mlx5_ring/,/^}/'
take='/^static bool take\(/,/^}/'

# What the card reads
mutant $mlx5 "a post number has more than 16 bits" "$put s/\(at & 0xffff\)/at/"
mutant $mlx5 "another opcode" 's/^(#define MLX5_OP_READ) .*/\1 0x08u/'
mutant abi_direct.h "the number of the queue pair is somewhere else" 's/number << 8/number << 4/'
mutant abi_direct.h "a segment less" 's/^(#define NIC_SEGMENTS) .*/\1 2u/'
mutant $mlx5 "no completion is asked for" 's/^(#define MLX5_SIGNALED) .*/\1 0u/'
mutant $mlx5 "an address in this CPU's order" "$put s/be64\(r->from\)/r->from/"
mutant $mlx5 "the keys are swapped" "$put s/n->key/be32(r->from_key)/"
mutant $mlx5 "what was in a reserved word stays" "$put s/(from_key\), )0/\1n->pair/"
mutant $queue "half a page" 's/\.len = PAGE_SIZE/.len = PAGE_SIZE \/ 2/'

# Records, fences and doorbells
mutant $mlx5 "the record of requests has more than 16 bits" "$ring s/\(at \+ 1\) & 0xffff/at + 1/"
mutant $mlx5 "the record is stored behind the doorbell" "$ring {
    s/^        atomic_store_explicit\(n->send_record.*/\
        atomic_store_explicit(bell, *block, memory_order_release);/
    t
    s/^        atomic_store_explicit\(bell.*/\
        atomic_store_explicit(n->send_record, be32((at + 1) \& 0xffff), memory_order_release);/
}"
mutant $mlx5 "no fence before the doorbell" "$ring s/^        cpu_store_fence\(\);\$/;/"
mutant $mlx5 "no fence behind the doorbell" "$ring s/^        cpu_store_fence\(\);  .*/;/"
mutant $mlx5 "the doorbell is the request before" "$ring s/at & n->send_mask/(at - 1) \& n->send_mask/"
mutant $mlx5 "a block by the table's size, not the ring's" "$put s/at & n->send_mask/at % NIC_DEPTH/"
mutant $mlx5 "always the same half of the register" "$ring s/n->half \^= 1;/;/"
mutant $queue "requests are posted before the last was rung for" \
    's/^        mlx5_ring\(n, at\);/        if (at % 2) mlx5_ring(n, at);/'

# Completions
mutant $mlx5 "completions of the turn before are new" \
    's/return \(owner & 1\) == .*/return owner >> 4;/'
mutant $mlx5 "the first byte says that a completion is there" 's/\)c \+ 63, memory/)c, memory/'
mutant $mlx5 "the record of completions stays" \
    's/^( *)atomic_store_explicit\(n->done_record, be32\(\(seen \+ 1\) & 0xffffff\), /\1(void)(/'
mutant $mlx5 "the record of completions has more than 24 bits" \
    's/\(seen \+ 1\) & 0xffffff/seen + 1/'
mutant $mlx5 "the post number in this CPU's order" \
    's/\(uint32_t\)c\[60\] << 8 \| c\[61\]/c[60] | (uint32_t)c[61] << 8/'
mutant $mlx5 "the queue pair's number for the post number" \
    's/c\[60\] << 8 \| c\[61\]/c[58] << 8 | c[59]/'

# The queue
mutant $queue "a request takes the place of one that is under way" \
    's/^            atomic_load_explicit\(&req->state, memory_order_acquire\) != DIRECT_FREE/0/'
mutant $queue "a request is taken without the lock" "$take s/ \|\| !try_lock\(q\)//"
mutant $queue "a vCPU waits for the lock" \
    's/return !atomic_exchange_exp.*/while (atomic_exchange(\&q->lock, 1)) ; return true;/'
mutant $queue "the lock is held while a fetch ends" "$take {
    s/^        unlock\(q\);//
    s/^        return taken;/        unlock(q); return taken;/
}"
mutant $queue "a request's place is free before its fetch has ended" '
    /^static void end_fetch/,/^}/{
        s/^(        bool awaited)/        atomic_store(\&req->state, DIRECT_FREE);\n\1/
    }'
mutant $queue "who waits is not woken" 's/^        if \(awaited\) \{/        if (0) {/'
mutant $queue "a vCPU sleeps for ever while its page is under way" 's/if \(is_for\(q, f\)\)/if (0)/'
mutant $queue "a place is never free again" \
    '/^static void end_fetch/,/^}/s/^        atomic_store_explicit\(&req->state.*/        ;/'

# A READ that fails, or brings a wrong page, and queues that the host takes down
mutant $queue "a page whose sum is wrong is taken" 's/if \(status \|\| wrong\)/if (status)/'
mutant $queue "a READ that failed is taken for a page" 's/if \(status \|\| wrong\)/if (wrong)/'
mutant $queue "the host reads for the vCPU that took the completion" \
    's/(ring_read_for\(.*)req->vcpu/\1vcpu_self_fixed.number/'
mutant $queue "a request's place is free before the host has it" '
    /^static void end_fetch/,/^}/s/^(                ring_read_for.*)$/                atomic_store(\&req->state, DIRECT_FREE);\n\1/'
mutant $queue "what kern takes stays asked for" 's/(&q->request.*state, )DIRECT_TAKEN/\1DIRECT_ASKED/'
mutant $queue "a queue goes on after a READ has failed" 's/&up, DIRECT_BROKEN/\&up, DIRECT_UP/'
mutant $queue "kern posts to a queue that is down" \
    '/^static bool post\(/,/^}/s/!is_up\(q\) \|\|/0 ||/'
mutant $queue "kern reads at an address of an older epoch" \
    's/q->epoch != atomic_load_explicit\(&p->epoch, memory_order_acquire\)/0/'
mutant $queue "kern reads a copy that is not good" \
    '/^static inline uint32_t readable/,/^}/s/slot_good\(.*\);/direct;/'
mutant $queue "kern reads at another place's address" 's/&s->place\[k\]/\&s->place[0]/'
mutant $queue "the first place is blamed for what came wrong" \
    's/\(int\)req->place : -1/0 : -1/'
mutant $queue "kern takes from a queue that is down" \
    '/^static bool take_one/,/^}/s/!is_up\(q\) \|\|/0 ||/'
mutant $host "the host does not wait for the lock" '/^bool direct_take/,/^}/s/while \(/while (0 \&\& /'
mutant $host "a queue stays up while the host has it" \
    '/^bool direct_take/,/^}/s/DIRECT_DOWN/DIRECT_UP/'
mutant $host "the host takes over what kern has taken" \
    's/memory_order_relaxed\) != DIRECT_ASKED\)/memory_order_relaxed) == DIRECT_FREE)/'
mutant $host "a request is free before the host has taken it over" '/^void direct_release/,/^}/{
        s/^( *)(request_take_over)/\1uint64_t slot = r->slot; atomic_store(\&r->state, DIRECT_FREE); point(); r->frame = r->frame;\n\1\2/
    }'
mutant $host "what was under way is forgotten" 's/^                request_take_over\(/                (void)(/'
mutant $host "a place stays in use after that" \
    '/^void direct_release/,/^}/s/^( *)atomic_store_explicit\(&r->state, DIRECT_FREE.*/\1;/'
mutant $host "a queue begins with the counts of the one before" \
    '/^void direct_(up|release)/,/^}/s/^ *atomic_store_explicit\(&q->posted, 0.*//'

# Set-up of real cards
build_test() { compile "$unit/test_direct_mlx5.c" -lrdmacm -libverbs; }
setup=runtime/far/rdma/mlx5.c
mutant $setup "an alignment is not kept" 's/(size_t at = )round_up.*/\1q->used;/'
mutant $setup "records share a line" 's/alignment < CACHE_LINE \? CACHE_LINE : alignment/alignment/'
mutant $setup "memory behind a queue's part is given" 's/at > MEMORY - size/at > 2 * MEMORY - size/'
mutant $setup "the same memory is given twice" 's/q->used = at \+ size;/;/'
mutant $setup "kern counts requests where receives are counted" 's/MLX5_SND_DBR/MLX5_RCV_DBR/'
mutant $setup "kern counts completions in the word beside" 's/part, cq\.dbrec\)/part, cq.dbrec + 1)/'
mutant $setup "the doorbell is where its page begins" \
    's/\+ \(\(uintptr_t\)qp\.bf\.reg & \(PAGE_SIZE - 1\)\)//'
mutant $setup "the doorbell's halves are a block apart" 's/= qp\.bf\.size/= NIC_BLOCK/'
mutant $setup "the send ring has a block for each request" 's/qp\.sq\.wqe_cnt - 1/NIC_DEPTH - 1/'
mutant $setup "the card is told another key" 's/rn->mem\.mr->lkey/rn->mem.mr->rkey/'
mutant $setup "rings may be anywhere" '/^static bool is_in/,/^}/s/return .*/return true;/'
mutant $setup "completions of 128 bytes will do" 's/cq->cqe_size == NIC_BLOCK \&\&//'
mutant $setup "rings of odd sizes will do" '/^static bool is_power_of_two/s/return .*/return true; }/'
mutant $setup "the thread domain goes before the domain" '/^static void free_all/,/^}/{
        s/if \(q->pd\)/if (q->td)/; s/dealloc_pd\(q->pd\)/dealloc_td(q->td)/; t
        s/if \(q->td\)/if (q->pd)/; s/dealloc_td\(q->td\)/dealloc_pd(q->pd)/
    }'
mutant $setup "the VM keeps the rings" '/^static void end/,/^}/s/vm_replace_memory.*, 0\), NULL, 0\);/;/'
mutant $setup "the page with the doorbell stays" '/^static void free_all/,/^}/s/if \(q->page\)/if (0)/'

# Memory orders, under TSan
build_test() {
    compile "$unit/test_direct_race.c" "$tree/common/clock.c" -fsanitize=thread -O1
}
mutant $mlx5 "the record does not order the request" \
    "$ring s/1\) & 0xffff\), memory_order_release/1) \& 0xffff), memory_order_relaxed/"
mutant $mlx5 "what is behind a completion's last byte is read before" \
    's/\)c \+ 63, memory_order_acquire/)c + 63, memory_order_relaxed/'
mutant $queue "the lock does not order what it guards" '
    s/(exchange_explicit\(&q->lock, 1, )memory_order_acquire/\1memory_order_relaxed/
    s/(store_explicit\(&q->lock, 0, )memory_order_release/\1memory_order_relaxed/'
mutant $queue "a request's place is free before it was read" \
    's/&req->state, DIRECT_FREE, memory_order_release/\&req->state, DIRECT_FREE, memory_order_relaxed/'
totals
