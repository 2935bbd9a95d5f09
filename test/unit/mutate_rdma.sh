#!/bin/bash
# Mutants of the proofs by which clients of RDMA are known, of what memnode believes, and of its
# worker: see mutants.sh.
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

# shellcheck disable=SC2317 # called by mutant
build_test() {
    compile -iquote "$tree/memnode" "$unit/test_proof.c" \
        "$tree"/memnode/rdma/{challenge,parse}.c "$tree"/common/{proof,secret}.c -lnettle
}

proof=common/proof.c challenge=rdma/challenge.c parse=rdma/parse.c

mutant $proof "a request's fields are not covered" \
    '/^static void of_request/,/^}/s/add\(&h, &p, sizeof\(p\)\)/;/'
mutant $proof "the last field of a request is not covered" \
    '/^static void of_request/,/^}/s/add\(&h, &p, sizeof\(p\)\)/add(\&h, \&p, sizeof(p) - 8)/'
mutant $proof "the client's address is not covered" \
    '/^static void of_request/,/^}/s/add\(&h, address.*/;/'
mutant $proof "the queue pair is not covered" '/^static void of_request/,/^}/s/add\(&h, &qpn.*/;/'
mutant $proof "no secret is needed for a request" \
    '/^static void of_request/,/^}/s/begin\(&h, secret, n,/begin(\&h, secret, 0,/'
mutant $proof "half of a request's proof is enough" \
    '/^bool proof_request_holds/,/^}/s/sizeof\(proof\)\)/sizeof(proof) \/ 2)/'
mutant $proof "an answer's fields are not covered" \
    '/^static void of_answer/,/^}/s/add\(&h, &answer.*/;/'
mutant $proof "an answer is for any request" '/^static void of_answer/,/^}/s/add\(&h, asked.*/;/'
mutant $proof "no secret is needed for an answer" \
    '/^static void of_answer/,/^}/s/begin\(&h, secret, n,/begin(\&h, secret, 0,/'
mutant $proof "half of an answer's proof is enough" \
    '/^bool proof_answer_holds/,/^}/s/sizeof\(proof\)\)/sizeof(proof) \/ 2)/'
mutant $proof "a cookie is for any address" '/^uint64_t proof_cookie/,/^}/s/add\(&h, address.*/;/'
mutant $proof "a cookie is for ever" '/^uint64_t proof_cookie/,/^}/s/add\(&h, &slot.*/;/'
mutant $proof "anybody can make cookies" \
    '/^uint64_t proof_cookie/,/^}/s/begin\(&h, key, 32,/begin(\&h, key, 0,/'
mutant $proof "half of memnode's key makes cookies" \
    '/^uint64_t proof_cookie/,/^}/s/begin\(&h, key, 32,/begin(\&h, key, 16,/'
mutant $proof "a client's secret does not need the key" \
    '/^void proof_secret/,/^}/s/begin\(&h, key, n,/begin(\&h, key, 0,/'
mutant $proof "a client's secret does not depend on its id" \
    '/^void proof_secret/,/^}/s/add\(&h, &id.*/;/'
mutant $proof "a client's secret does not depend on its nonce" \
    '/^void proof_secret/,/^}/s/add\(&h, client.*/;/'
mutant $proof "a client's secret does not depend on memnode's nonce" \
    '/^void proof_secret/,/^}/s/add\(&h, node.*/;/'
mutant $proof "all keys have one mark" '/^uint64_t proof_mark/,/^}/s/strlen\(name\)/0/'
mutant $proof "addresses of IPv4 are alike" 's/^( *)memcpy\(address \+ 12.*/\1;/'
mutant $proof "an address depends on how it is written" 's/address\[10\] = address\[11\] = 0xff/;/'

mutant $challenge "any cookie will do" \
    '/^static uint64_t valid_until/,/^}/s/if \(cookie == .*/if (1)/'
mutant $challenge "a cookie of the slot before is not taken" \
    's/return slot \&\& .*/return 0;/'
mutant $challenge "a cookie is valid for three slots" \
    's/return slot \&\& (.*) \? slot \+ 1 : 0;/return slot > 1 \&\& (\1 || cookie == proof_cookie(c->key, who->address, slot - 2)) ? slot + 1 : 0;/'
mutant $challenge "there is a slot before the first" 's/return slot \&\& cookie/return cookie/'
mutant $challenge "a new client's cookie is not checked" \
    '/^int challenge_new/,/^}/s/if \(!valid_until\(c, p->cookie, who, now\)\)/if (0)/'
mutant $challenge "a known client's cookie is not checked" \
    '/^int challenge_client/,/^}/s/if \(!valid_until\(c, p->cookie, who, now\)\)/if (0)/'
mutant $challenge "a proof counts twice" 's/return NODE_ESTALE;/continue;/'
mutant $challenge "half of two proofs makes them equal" \
    's/memcmp\(t->proof, p->proof, NODE_PROOF\)/memcmp(t->proof, p->proof, 0)/'
mutant $challenge "a new client's proof is not remembered" \
    's/p->kind == NODE_NEW && !keyring_is_used\(\)/p->kind == NODE_NEW/'
mutant $challenge "a known client's proof is not remembered" \
    's/p->kind == NODE_NEW && !keyring_is_used\(\)/p->kind != NODE_NEW/'
mutant $challenge "without keys requests fill the table" \
    's/if \(p->kind == NODE_NEW && !keyring_is_used\(\)\)/if (0)/'
mutant $challenge "a proof is forgotten before its cookie is" \
    '/^static uint64_t valid_until/,/^}/s/return slot \+ 2/return slot + 1/'
mutant $challenge "a proof with an older cookie is forgotten at once" \
    's/\? slot \+ 1 : 0;/? slot : 0;/'
mutant $challenge "proofs are never forgotten" \
    's/t->forgotten <= slot_of\(now\)/!t->forgotten/'
mutant $challenge "one address has all the room" 's/ \|\| others >= PROOFS_ADDRESS//'
mutant $challenge "all addresses count as one" \
    's/others \+= .*/others++;/'
mutant $challenge "what is refused takes room" \
    's/return secret && holds \? 0 : NODE_EUNKNOWN/return secret \&\& holds ? 0 : (challenge_take((struct challenge *)c, p, who, now), NODE_EUNKNOWN)/'
mutant $challenge "a new client's proof is not checked" 's/return known && holds \?/return known ?/'
mutant $challenge "an unknown key is taken" 's/return known && holds \?/return holds ?/'
mutant $challenge "a known client's proof is not checked" 's/secret && holds \?/secret ?/'
mutant $challenge "an unknown client is taken" 's/secret && holds \?/holds ?/'
mutant $challenge "keys are not needed" 's/bool anyone = !keyring_is_used\(\)/bool anyone = true/'
mutant $challenge "a key where there are none goes unnoticed" 's/if \(anyone && p->id\)/if (0)/'

mutant $parse "a request may be cut" 's/ \|\| length < sizeof\(\*p\)\)/)/'
mutant $parse "another version goes unnoticed" \
    '/^int node_private_parse/,/^}/s/p->version != NODE_VERSION/0/'
mutant $parse "a known client need not be named" 's/p->kind != NODE_NEW && !p->id/0/'
mutant $parse "any kind is taken" 's/p->kind != NODE_NEW && p->kind != NODE_CONTROL.*/0) {/'

# shellcheck disable=SC2317 # called by mutant
build_test() {
    compile -iquote "$tree/memnode" "$unit/test_worker.c" "$tree/memnode/rdma/worker.c" \
        "$tree/common/clock.c"
}

worker=rdma/worker.c
mutant $worker "a job that was dropped is done" 's/if \(j->dropped\) \{/if (0) {/'
mutant $worker "what has run is not undone" 's/if \(j->state >= JOB_RAN\)/if (0)/'
mutant $worker "what done() drops is not undone" 's/j->state >= JOB_RAN/j->state == JOB_RAN/'
mutant $worker "what was dropped stays in the queue" 's/take_out\(j->state == JOB_LATER.*/;/'
mutant $worker "what must run does not" 's/ && !j->must//'
mutant $worker "owners do not take turns" 's/append\(j->owner == .*/append(\&queue, j);/'
mutant $worker "a job that is undone runs twice" 's/if \(!j->ran\)/if (1)/'
mutant $worker "the end leaves jobs" \
    's/while \(queue\.first \|\| later\.first \|\| !ending\)/while (!ending)/'
mutant $worker "a job that is put off counts as done" 's/if \(j->again && !j->dropped\)/if (0)/'
mutant $worker "a job that was dropped is put off" 's/if \(j->again && !j->dropped\)/if (j->again)/'
mutant $worker "a job runs before its owner's that is put off" \
    's/&& is_owner_late\(first->owner\)/\&\& 0/'
mutant $worker "what is put off is not brought back" 's/if \(later\.first && now_ms.*/if (0) {/'
mutant $worker "others wait for a job that is put off" \
    's/later\.first && now_ms\(\) >= due/later.first/'
mutant $worker "the end leaves jobs that are put off" \
    's/queue\.first \|\| later\.first \|\| !ending/queue.first || !ending/'
mutant $worker "nobody waits for jobs that are put off" \
    's/queue\.first \|\| later\.first \|\| busy/queue.first || busy/'
mutant $worker "what is dropped stays put off" 's/j->state == JOB_LATER \? &later : &queue/\&queue/'
mutant $worker "results make nothing readable" 's/\(void\)!write\(over_fd.*/(void)one;/'
totals
