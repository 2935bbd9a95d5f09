/*
 * Proofs instead of secrets (common/proof.c), and what memnode's RDMA server believes of connection
 * requests (memnode/rdma/challenge.c, parse.c): one that is changed, comes again, comes for another
 * connection, or is cut, is worth nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <cmocka.h>
#include "common/proof.h"
#include "memnode/rdma/challenge.h"
#include "memnode/rdma/parse.h"

/* ---- the keys of memnode ---- */

static bool used;
static struct key alice = { .name = "alice", .secret = "alice's own secret", .bytes = 18 };
static const struct key none;

bool keyring_is_used(void) { return used; }
bool keyring_find_mark(uint64_t mark, struct key *k)
{
        bool found = mark == proof_mark(alice.name);

        if (found)
                *k = alice;
        return found;
}

/* ---- proofs ---- */

static struct node_private any(uint16_t kind)
{
        return (struct node_private){ .magic = NODE_MAGIC,
                                      .version = NODE_VERSION,
                                      .length = sizeof(struct node_private),
                                      .kind = kind,
                                      .depth = 64,
                                      .generation = 3,
                                      .member = 2,
                                      .id = 77,
                                      .cookie = 99 };
}

static void flip(void *bytes, size_t bit) { ((uint8_t *)bytes)[bit / 8] ^= 1u << bit % 8; }

static void marks(void **state)
{
        (void)state;
        assert_true(proof_mark("alice") != proof_mark("alicf"));
        assert_true(proof_mark("") != 0);
        /* The first bytes of SHA-256("abc") are known. */
        assert_int_equal(proof_mark("abc"), 0xeacf018fbf1678baull);
}

static void a_request_is_covered(void **state)
{
        struct node_private p = any(NODE_NEW);
        uint8_t address[PROOF_ADDRESS] = { 1, 2, 3 }, secret[] = "sixteen bytes ..";
        uint32_t qpn = 4711;

        (void)state;
        proof_request(&p, address, qpn, secret, 16);
        assert_true(proof_request_holds(&p, address, qpn, secret, 16));
        for (size_t i = 0; i < 8 * sizeof(p); i++) {
                flip(&p, i);
                assert_false(proof_request_holds(&p, address, qpn, secret, 16));
                flip(&p, i);
        }
        for (size_t i = 0; i < 8 * sizeof(address); i++) {
                flip(address, i);
                assert_false(proof_request_holds(&p, address, qpn, secret, 16));
                flip(address, i);
        }
        for (size_t i = 0; i < 8 * sizeof(qpn); i++) {
                flip(&qpn, i);
                assert_false(proof_request_holds(&p, address, qpn, secret, 16));
                flip(&qpn, i);
        }
        for (size_t i = 0; i < 8 * 16; i++) {
                flip(secret, i);
                assert_false(proof_request_holds(&p, address, qpn, secret, 16));
                flip(secret, i);
        }
        assert_false(proof_request_holds(&p, address, qpn, secret, 15));
        assert_false(proof_request_holds(&p, address, qpn, NULL, 0));
        proof_request(&p, address, qpn, NULL, 0);
        assert_true(proof_request_holds(&p, address, qpn, NULL, 0));
}

static void an_answer_is_for_its_request(void **state)
{
        struct node_private a = any(NODE_DATA), asked = any(NODE_DATA);
        uint8_t address[PROOF_ADDRESS] = { 0 }, secret[NODE_SECRET] = "client's secret";

        (void)state;
        proof_request(&asked, address, 1, secret, sizeof(secret));
        /* What a client sends is no answer to it, nor to a request without a proof. */
        assert_false(proof_answer_holds(&asked, asked.proof, secret, sizeof(secret)));
        assert_false(proof_answer_holds(&asked, (uint8_t[NODE_PROOF]){ 0 }, secret,
                                        sizeof(secret)));
        proof_answer(&a, asked.proof, secret, sizeof(secret));
        assert_true(proof_answer_holds(&a, asked.proof, secret, sizeof(secret)));
        assert_false(proof_request_holds(&a, address, 1, secret, sizeof(secret)));
        for (size_t i = 0; i < 8 * sizeof(a); i++) {
                flip(&a, i);
                assert_false(proof_answer_holds(&a, asked.proof, secret, sizeof(secret)));
                flip(&a, i);
        }
        for (size_t i = 0; i < 8 * NODE_PROOF; i++) {
                flip(asked.proof, i);
                assert_false(proof_answer_holds(&a, asked.proof, secret, sizeof(secret)));
                flip(asked.proof, i);
        }
        for (size_t i = 0; i < 8 * sizeof(secret); i++) {
                flip(secret, i);
                assert_false(proof_answer_holds(&a, asked.proof, secret, sizeof(secret)));
                flip(secret, i);
        }
}

static void cookies_differ(void **state)
{
        uint8_t key[32] = "a key of 32 bytes, as memnode's", address[PROOF_ADDRESS] = { 9 };
        const uint64_t cookie = proof_cookie(key, address, 5);

        (void)state;
        assert_true(cookie == proof_cookie(key, address, 5));
        assert_true(cookie != proof_cookie(key, address, 6));
        for (size_t i = 0; i < 8 * sizeof(address); i++) {
                flip(address, i);
                assert_true(cookie != proof_cookie(key, address, 5));
                flip(address, i);
        }
        for (size_t i = 0; i < 8 * sizeof(key); i++) {
                flip(key, i);
                assert_true(cookie != proof_cookie(key, address, 5));
                flip(key, i);
        }
}

static void secrets_differ(void **state)
{
        struct { uint8_t key[20]; uint64_t id; uint8_t client[NODE_NONCE], node[NODE_NONCE]; } in =
                { "the secret of a key", 5, "client", "node" };
        uint8_t first[NODE_SECRET], other[NODE_SECRET];

        (void)state;
        proof_secret(first, in.key, sizeof(in.key), in.id, in.client, in.node);
        for (size_t i = 0; i < 8 * sizeof(in); i++) {
                if (i / 8 >= sizeof(in.key) && i / 8 < offsetof(typeof(in), id))
                        continue;       /* padding */
                flip(&in, i);
                proof_secret(other, in.key, sizeof(in.key), in.id, in.client, in.node);
                assert_memory_not_equal(first, other, sizeof(first));
                flip(&in, i);
        }
        proof_secret(other, in.key, sizeof(in.key), in.id, in.node, in.client);
        assert_memory_not_equal(first, other, sizeof(first));
        proof_secret(other, in.key, sizeof(in.key), in.id, in.client, in.node);
        assert_memory_equal(first, other, sizeof(first));
}

static void addresses(void **state)
{
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(7471) };
        struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(1) };
        uint8_t a[PROOF_ADDRESS], b[PROOF_ADDRESS];

        (void)state;
        inet_pton(AF_INET, "10.77.0.1", &in.sin_addr);
        inet_pton(AF_INET6, "::ffff:10.77.0.1", &in6.sin6_addr);
        proof_address(a, (struct sockaddr *)&in);
        proof_address(b, (struct sockaddr *)&in6);
        assert_memory_equal(a, b, sizeof(a));
        inet_pton(AF_INET, "10.77.0.2", &in.sin_addr);
        proof_address(a, (struct sockaddr *)&in);
        assert_memory_not_equal(a, b, sizeof(a));
}

/* ---- what is believed ---- */

#define ID 4242
static struct challenge c;
static struct asker here = { .address = { [10] = 0xff, 0xff, 10, 77, 0, 1 }, .qpn = 17 };
static const struct asker there = { .address = { [10] = 0xff, 0xff, 10, 77, 0, 3 }, .qpn = 17 };
static const uint8_t secret[NODE_SECRET] = "client's secret";
static int64_t now;

static int begin(void **state)
{
        (void)state;
        memset(&c, 0, sizeof(c));
        used = true;
        here.qpn = 17;
        now = 1000000;
        return challenge_begin(&c) ? 0 : -1;
}

static int judge(const struct node_private *p, const struct asker *who)
{
        struct key k;

        bool fresh = p->kind == NODE_NEW;
        int error = fresh ? challenge_new(&c, p, who, now, &k)
                          : challenge_client(&c, p, who, now, p->id == ID ? secret : NULL);
        if (!error && fresh)
                assert_string_equal(k.name, used ? alice.name : "");
        return error ? error : challenge_take(&c, p, who, now);
}

/* A request as `who` makes it now, with the cookie that it has just got. */
static struct node_private ask(uint16_t kind, const struct asker *who, const struct key *k)
{
        struct node_private p = any(kind);

        p.id = kind != NODE_NEW ? ID : *k->name ? proof_mark(k->name) : 0;
        p.cookie = challenge_cookie(&c, who, now);
        proof_request(&p, who->address, who->qpn, kind == NODE_NEW ? k->secret : secret,
                      kind == NODE_NEW ? k->bytes : NODE_SECRET);
        return p;
}

static void who_proves_is_believed(void **state)
{
        struct node_private p;

        (void)state;
        p = ask(NODE_NEW, &here, &alice);
        assert_int_equal(judge(&p, &here), 0);
        p = ask(NODE_CONTROL, &here, NULL);
        assert_int_equal(judge(&p, &here), 0);
        p = ask(NODE_DATA, &here, NULL);
        assert_int_equal(judge(&p, &here), 0);
}

static void keys_are_checked(void **state)
{
        struct key k = alice;

        (void)state;
        struct node_private p = ask(NODE_NEW, &here, &none);
        assert_int_equal(judge(&p, &here), NODE_EKEY);
        strcpy(k.name, "mallory");
        p = ask(NODE_NEW, &here, &k);
        assert_int_equal(judge(&p, &here), NODE_EKEY);
        k = alice;
        k.secret[17] ^= 1;
        p = ask(NODE_NEW, &here, &k);
        assert_int_equal(judge(&p, &here), NODE_EKEY);
        /* Who is not known may not guess what stands for the secret. */
        k = (struct key){ .name = "mallory", .bytes = 0 };
        p = ask(NODE_NEW, &here, &k);
        assert_int_equal(judge(&p, &here), NODE_EKEY);
        p = ask(NODE_CONTROL, &here, NULL);
        p.id = ID + 1;
        proof_request(&p, here.address, here.qpn, secret, NODE_SECRET);
        assert_int_equal(judge(&p, &here), NODE_EUNKNOWN);
        proof_request(&p, here.address, here.qpn, c.decoy, NODE_SECRET);
        assert_int_equal(judge(&p, &here), NODE_EUNKNOWN);
        p = ask(NODE_NEW, &here, &(struct key){ .name = "mallory" });
        proof_request(&p, here.address, here.qpn, c.decoy, sizeof(c.decoy));
        assert_int_equal(judge(&p, &here), NODE_EKEY);
}

static void without_keys(void **state)
{
        (void)state;
        used = false;
        struct node_private p = ask(NODE_NEW, &here, &none);
        assert_int_equal(judge(&p, &here), 0);
        assert_int_equal(judge(&p, &here), 0);  /* it proves nothing, and takes no room */
        p.depth++;
        assert_int_equal(judge(&p, &here), NODE_EKEY);
        p = ask(NODE_NEW, &here, &alice);
        assert_int_equal(judge(&p, &here), NODE_ENOKEYS);
}

static void cookies_are_checked(void **state)
{
        (void)state;
        struct node_private p = ask(NODE_CONTROL, &here, NULL);
        p.cookie = 0;
        proof_request(&p, here.address, here.qpn, secret, NODE_SECRET);
        assert_int_equal(judge(&p, &here), NODE_ECOOKIE);
        p.cookie = challenge_cookie(&c, &there, now);
        proof_request(&p, here.address, here.qpn, secret, NODE_SECRET);
        assert_int_equal(judge(&p, &here), NODE_ECOOKIE);
        p = ask(NODE_NEW, &there, &alice);
        assert_int_equal(judge(&p, &here), NODE_ECOOKIE);
        /* Neither did any of these take room. */
        for (unsigned i = 0; i < PROOFS_MAX; i++)
                assert_int_equal(c.taken[i].forgotten, 0);
}

static void cookies_grow_old(void **state)
{
        struct node_private p, q;

        (void)state;
        now = 5 * COOKIE_MS;            /* the beginning of a slot */
        p = ask(NODE_CONTROL, &here, NULL);
        here.qpn++;
        q = ask(NODE_CONTROL, &here, NULL);
        here.qpn--;
        now += 2 * COOKIE_MS - 1;
        assert_int_equal(judge(&p, &here), 0);
        now++;
        here.qpn++;
        assert_int_equal(judge(&q, &here), NODE_ECOOKIE);
        assert_int_equal(judge(&p, &here), NODE_ECOOKIE);
        now = 0;                        /* there is no slot before the first */
        p = ask(NODE_CONTROL, &here, NULL);
        assert_int_equal(judge(&p, &here), 0);
        p.cookie = proof_cookie(c.key, here.address, (uint64_t)-1);
        proof_request(&p, here.address, here.qpn, secret, NODE_SECRET);
        assert_int_equal(judge(&p, &here), NODE_ECOOKIE);
}

/* As long as its cookie is valid, at every time; and for others all goes on. */
static void no_proof_counts_twice(void **state)
{
        (void)state;
        for (unsigned kind = NODE_CONTROL; kind <= NODE_NEW; kind++) {
                now = (7 + 10 * kind) * COOKIE_MS + 10;
                struct node_private p = ask((uint16_t)kind, &here, &alice), q;
                const struct asker first = here;
                assert_int_equal(judge(&p, &here), 0);
                for (int64_t end = now + 2 * COOKIE_MS; now < end; now += COOKIE_MS / 8) {
                        int error = judge(&p, &first);
                        assert_true(error == NODE_ESTALE || error == NODE_ECOOKIE);
                        here.qpn++;
                        q = ask((uint16_t)kind, &here, &alice);
                        assert_int_equal(judge(&q, &here), 0);
                        assert_int_equal(judge(&q, &here), NODE_ESTALE);
                }
        }
}

/* One taken in the second half of a cookie's life, when its slot is the one before. */
static void an_older_cookie_counts_once(void **state)
{
        (void)state;
        now = 5 * COOKIE_MS;
        struct node_private p = ask(NODE_DATA, &here, NULL);
        now = 6 * COOKIE_MS;
        assert_int_equal(judge(&p, &here), 0);
        for (; now < 7 * COOKIE_MS; now += COOKIE_MS / 4)
                assert_int_equal(judge(&p, &here), NODE_ESTALE);
        assert_int_equal(judge(&p, &here), NODE_ECOOKIE);
}

/* What is for one connection is nothing for another one, whichever comes first. */
static void nothing_is_mixed(void **state)
{
        (void)state;
        struct node_private one = ask(NODE_DATA, &here, NULL);
        here.qpn++;
        struct node_private two = ask(NODE_CONTROL, &here, NULL);
        assert_int_equal(judge(&one, &here), NODE_EUNKNOWN);    /* of another queue pair */
        struct node_private mixed = two;
        memcpy(mixed.proof, one.proof, NODE_PROOF);
        assert_int_equal(judge(&mixed, &here), NODE_EUNKNOWN);
        mixed = two;
        mixed.kind = NODE_DATA;
        assert_int_equal(judge(&mixed, &here), NODE_EUNKNOWN);
        mixed.kind = NODE_NEW;
        assert_int_equal(judge(&mixed, &here), NODE_EKEY);
        mixed = two;
        mixed.generation++;
        assert_int_equal(judge(&mixed, &here), NODE_EUNKNOWN);
        mixed = two;
        mixed.member++;
        assert_int_equal(judge(&mixed, &here), NODE_EUNKNOWN);
        /* Another valid cookie: the proof covers it. */
        int64_t before = now;
        now += COOKIE_MS;
        mixed = two;
        mixed.cookie = challenge_cookie(&c, &here, now);
        assert_true(mixed.cookie != two.cookie);
        assert_int_equal(judge(&mixed, &here), NODE_EUNKNOWN);
        now = before;
        /* From another address, with a cookie of that. */
        mixed = two;
        mixed.cookie = challenge_cookie(&c, &there, now);
        struct asker far = there;
        far.qpn = here.qpn;
        assert_int_equal(judge(&mixed, &far), NODE_EUNKNOWN);
        /* In the other order, and what was changed did not use them up. */
        assert_int_equal(judge(&two, &here), 0);
        here.qpn--;
        assert_int_equal(judge(&one, &here), 0);
}

/* Whoever connects all the time does not keep out the others, nor does he who is refused. */
static void the_table_is_full(void **state)
{
        struct node_private p;
        struct asker other = there;

        (void)state;
        for (unsigned i = 0; i < PROOFS_ADDRESS; i++) {
                here.qpn++;
                p = ask(NODE_CONTROL, &here, NULL);
                assert_int_equal(judge(&p, &here), 0);
        }
        here.qpn++;
        p = ask(NODE_CONTROL, &here, NULL);
        assert_int_equal(judge(&p, &here), NODE_EBUSY);
        for (unsigned i = PROOFS_ADDRESS; i < PROOFS_MAX; i++) {
                other.qpn++;
                p = ask(NODE_CONTROL, &other, NULL);
                assert_int_equal(judge(&p, &other), 0);
        }
        other.qpn++;
        p = ask(NODE_CONTROL, &other, NULL);
        assert_int_equal(judge(&p, &other), NODE_EBUSY);
        now += 2 * COOKIE_MS;           /* then all is forgotten */
        p = ask(NODE_CONTROL, &other, NULL);
        assert_int_equal(judge(&p, &other), 0);
}

/* ---- what is read at all ---- */

static int parse(const void *bytes, size_t n, struct node_private *p)
{
        char why[NODE_TEXT_MAX] = "";
        int error = node_private_parse(bytes, n, p, why, sizeof(why));

        assert_true(!error == !*why);
        return error;
}

static void requests_that_are_cut(void **state)
{
        struct node_private p = any(NODE_NEW), got;

        (void)state;
        assert_int_equal(parse(&p, sizeof(p), &got), 0);
        assert_memory_equal(&p, &got, sizeof(p));
        for (size_t n = 0; n < sizeof(p); n++) {
                uint8_t *cut = malloc(n ? n : 1);
                memcpy(cut, &p, n);
                assert_int_equal(parse(n ? cut : NULL, n, &got), NODE_EPROTO);
                free(cut);
        }
        p.length--;
        assert_int_equal(parse(&p, sizeof(p), &got), NODE_EPROTO);
}

/* Another version is told, as far as it can be read, and what it said of its length is known. */
static void other_versions(void **state)
{
        struct node_private p = any(NODE_CONTROL), got;

        (void)state;
        p.version = 5;
        p.length = 48;
        assert_int_equal(parse(&p, 48, &got), NODE_EVERSION);
        assert_int_equal(got.length, 48);
        p.version = NODE_VERSION + 1;
        assert_int_equal(parse(&p, 8, &got), NODE_EVERSION);
}

static void kinds(void **state)
{
        struct node_private got;

        (void)state;
        for (unsigned kind = 0; kind < 5; kind++) {
                struct node_private p = any((uint16_t)kind);
                bool good = kind >= NODE_CONTROL && kind <= NODE_NEW;
                assert_int_equal(parse(&p, sizeof(p), &got), good ? 0 : NODE_EPROTO);
                p.id = 0;               /* downgraded to none */
                assert_int_equal(parse(&p, sizeof(p), &got), kind == NODE_NEW ? 0 : NODE_EPROTO);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(marks),
                cmocka_unit_test(a_request_is_covered),
                cmocka_unit_test(an_answer_is_for_its_request),
                cmocka_unit_test(cookies_differ),
                cmocka_unit_test(secrets_differ),
                cmocka_unit_test(addresses),
                cmocka_unit_test_setup(who_proves_is_believed, begin),
                cmocka_unit_test_setup(keys_are_checked, begin),
                cmocka_unit_test_setup(without_keys, begin),
                cmocka_unit_test_setup(cookies_are_checked, begin),
                cmocka_unit_test_setup(cookies_grow_old, begin),
                cmocka_unit_test_setup(no_proof_counts_twice, begin),
                cmocka_unit_test_setup(an_older_cookie_counts_once, begin),
                cmocka_unit_test_setup(nothing_is_mixed, begin),
                cmocka_unit_test_setup(the_table_is_full, begin),
                cmocka_unit_test(requests_that_are_cut),
                cmocka_unit_test(other_versions),
                cmocka_unit_test(kinds),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
