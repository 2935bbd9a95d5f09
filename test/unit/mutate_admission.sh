#!/bin/bash
# Mutants of who may come to a memnode over NBD, and for whom that counts: see mutants.sh.
# shellcheck source=test/unit/mutants.sh
. "$(dirname "$0")/mutants.sh"

# Both tests are built, and the one that fails is enough.
# shellcheck disable=SC2317 # called by mutant
build_test() {
    compile -iquote "$tree/memnode" "$unit/test_nbd_handshake.c" \
        "$tree/memnode/nbd/handshake.c" && mv "$WORK/test" "$WORK/test.handshake" &&
        compile -iquote "$tree/memnode" "$unit/test_admission.c" \
            "$tree"/memnode/admission/{keyring,origin,party,refusals}.c \
            "$tree"/common/{keys,proof,secret}.c -lnettle &&
        mv "$WORK/test" "$WORK/test.admission" &&
        printf '#!/bin/sh\n%s/test.handshake "$@" && %s/test.admission "$@"\n' "$WORK" "$WORK" \
            >"$WORK/test" && chmod +x "$WORK/test"
}

handshake=nbd/handshake.c party=admission/party.c keys=common/keys.c origin=admission/origin.c
refusals=admission/refusals.c budget=admission/budget.h keyring=admission/keyring.c

mutant $handshake "options are served before TLS" \
    's/if \(!passes && h->door == NBD_DOOR_TLS\)/if (0)/'
mutant $handshake "an export is chosen the old way before TLS" \
    's/h->option == NBD_OPT_ABORT \|\|/h->option == NBD_OPT_ABORT || h->option == NBD_OPT_EXPORT_NAME ||/'
mutant $handshake "INFO is answered before TLS" \
    's/h->option == NBD_OPT_ABORT \|\|/h->option == NBD_OPT_ABORT || h->option == NBD_OPT_INFO ||/'
mutant $handshake "LIST is answered before TLS" \
    's/h->option == NBD_OPT_ABORT \|\|/h->option == NBD_OPT_ABORT || h->option == NBD_OPT_LIST ||/'
mutant $handshake "words behind STARTTLS stay" \
    's/if \(h->end == NBD_HS_TLS && taken < len\)/if (0)/'
mutant $handshake "what was agreed on before TLS counts" \
    '/^void nbd_handshake_secured/,/^}/s/h->structured = false/;/'
mutant $handshake "TLS within TLS" 's/h->secured \|\| h->have/h->have/'
mutant $handshake "STARTTLS with data" 's/h->secured \|\| h->have/h->secured/'
mutant $handshake "TLS is begun where there are no keys" 's/if \(!h->offers_tls\)/if (0)/'
mutant $handshake "the end of TLS's start is not told" \
    '/^static void starttls/,/^}/s/h->end = NBD_HS_TLS/;/'
mutant $handshake "a stranger may ask without end" 's/OPTIONS_BEFORE  16/OPTIONS_BEFORE  256/'
mutant $handshake "nothing waits at a door" \
    '/^static void serve/,/^}/s/h->end = NBD_HS_OPTION;/passes = true;/; /^static void serve/,/^}/s/if \(!passes\) \{/if (!passes \&\& 0) {/'
mutant $handshake "the option that waited is forgotten" \
    '/^void nbd_handshake_go_on/,/^}/s/data\(h\)/next_option(h)/'
mutant $handshake "who was sent away for want of TLS is not noted" 's/h->sent_away = true/;/'

mutant $keys "a key of 15 bytes" 's/digits < 2 \* KEY_SECRET_MIN/digits < 2 * KEY_SECRET_MIN - 2/'
mutant $keys "an odd number of digits" 's/ \|\| digits % 2\)/)/'
mutant $keys "a name without end" 's/if \(name > KEY_NAME_MAX\)/if (0)/'
mutant $keys "any character of a name" 's/if \(!isgraph\(/if (0 \&\& (/'
mutant $keys "a name in another notation" "s/if \(\*line == '#'\)/if (0)/"
mutant $keys "one name twice" \
    's/if \(keys_find\(k, one->name, strlen\(one->name\)\)\)/if (0)/'
mutant $keys "any digit" 's/if \(d < 0\)/if (0)/'
mutant $keys "a name that begins alike" 's/strlen\(k->key\[i\]\.name\) == len \&\& //'
mutant $keys "a file without keys" 's/else if \(!k->count\)/else if (0)/'
mutant $keys "the first of several keys" 's/: k\.count == 1 \?/: k.count >= 1 ?/'
mutant $keys "a file that others may read" 's/st\.st_mode & S_IROTH/0/'
mutant $keys "a line that is too long" 's/wrong = "it is too long"/;/'
mutant $keyring "a mistake takes all keys away" \
    '/^int keyring_load/,/^}/s/if \(err\)/if (err) keys_free(\&keys);\n        if (err)/'
mutant $keyring "keys are not wanted" 's/atomic_store_explicit\(&used, true.*/;/'

mutant $origin "each address of IPv6 is an origin" 's/memset\(&a\.s6_addr\[8\], 0, 8\)/;/'
mutant $origin "half of IPv6 is one origin" 's/memset\(&a\.s6_addr\[8\], 0, 8\)/memset(a.s6_addr, 0, 16)/'
mutant $origin "IPv4 has two names" 's/if \(IN6_IS_ADDR_V4MAPPED\(&a\)\)/if (0)/'

mutant $party "an origin may have all connections" \
    '/^static unsigned most_connections/,/^}/s/: PARTY_ORIGIN_PART\(PARTY_CONNECTIONS\)/: PARTY_CONNECTIONS/'
mutant $party "what is fresh may take all" \
    '/^static unsigned most_of_all/,/^}/s/PARTY_ORIGIN_PART\(PARTY_CONNECTIONS\)/PARTY_CONNECTIONS/'
mutant $party "limits of a key do not count" '/^static unsigned most_connections/,/^}/s/return l  /return 0  /'
mutant $party "there is no spare place" 's/fresh \? 0 : SPARE/0/'
mutant $party "what is fresh has spare places" 's/fresh \? 0 : SPARE/SPARE/'
mutant $party "a party is never crowded" \
    '/^bool party_crowded/,/^}/s/p->connections > most_connections\(p\) \|\|/0 ||/'
mutant $party "all are never crowded" \
    '/^bool party_crowded/,/^}/s/ \|\| connections > most_of_all\(fresh\)//'
mutant $party "connections are not given back" '/^void party_disconnect/,/^}/s/^ *connections--;//'
mutant $party "an origin may have all leases" 's/: PARTY_ORIGIN_PART\(PARTY_LEASES\)/: PARTY_LEASES/'
mutant $party "a key and an address of one name are one party" \
    's/snprintf\(text, sizeof\(text\), KEY "%s", name\)/snprintf(text, sizeof(text), "%s", name)/'
mutant $party "a quota does not count" '/^static uint64_t quota_left/,/^}/s/return !l \?/return 1 ?/'
mutant $party "reserves of others do not count" \
    '/^static uint64_t pool_room/,/^}/s/kept_from\(p\) \+ //'
mutant $party "the own reserve is kept from oneself" 's/&limits\[i\] != own && //'
mutant $party "a reserve is kept although it is held" 's/bytes \+= limits\[i\]\.reserve - held/bytes += limits[i].reserve/'
mutant $party "memory that is being taken counts twice as left" \
    '/^static uint64_t pool_room/,/^}/s/ \+ taking//'
mutant $party "what was not taken counts as held" '/^void party_took/,/^}/s/if \(!taken\)/if (0)/'
mutant $party "what was taken counts as taking" '/^void party_took/,/^}/s/taking -= bytes/;/'
mutant $party "what is given back counts as held" '/^void party_give/,/^}/s/p->held -= bytes/;/'

mutant $refusals "an origin has a line each time" 's/if \(r->said && now - r->said < BUDGET_MS\)/if (0)/'
mutant $refusals "an origin has a line for ever" \
    's/now - r->said < BUDGET_MS\)/now - r->said < 10 * BUDGET_MS)/'
mutant $budget "all together have lines without end" 's/if \(b->lines == most\)/if (0)/'
mutant $budget "all have no line after the first minute" 's/now - b->minute >= BUDGET_MS \|\| !b->minute/!b->minute/'
mutant $refusals "what had no line is not told" 's/\*before = r->silent/*before = 0/'
mutant $budget "who found no room is not told" 's/\*before = b->unsaid/*before = 0/'
mutant $refusals "refusals are not counted" 's/counts\[cause\]\+\+/;/'
totals
