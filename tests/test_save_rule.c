/* SPDX-License-Identifier: Apache-2.0 */
/* test_save_rule.c - what the backward pass reads of the forward pass, and that rebuilding the rest changes no bit. */
#include "tests/evaluate.h"

#include "core/passes/save_rule.h"

enum { BATCH = 2, TOKENS = 4, WIDTH = 8, HEADS = 2, VOCABULARY = 11, LAYERS = 2 };

static tern_tensor *norm(tern_graph *g, tern_tensor *x, const char *name)
{
    char weight[96], bias[96];
    const int64_t width = WIDTH;
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    return tern_layer_norm(x, tern_parameter(g, weight, 1, &width, TERN_INIT_ONES, 0),
                           tern_parameter(g, bias, 1, &width, TERN_INIT_ZEROS, 0), 1e-5);
}

static const char *named(char *out, int32_t layer, const char *what)
{
    snprintf(out, 64, "h.%d.%s", layer, what);
    return out;
}

static tern_tensor *block(tern_graph *g, tern_tensor *x, int32_t layer)
{
    char name[64];
    tern_tensor *heads[3], *qkv = norm(g, x, named(name, layer, "ln_1"));
    qkv = tern_linear(qkv, named(name, layer, "attn.c_attn"), 3 * WIDTH);
    tern_label(qkv, named(name, layer, "qkv"));
    for (int32_t i = 0; i < 3; i++)
        heads[i] =
            tern_reshape(tern_slice(qkv, -1, i * WIDTH, WIDTH), 4, (int64_t[]){BATCH, TOKENS, HEADS, WIDTH / HEADS});
    tern_tensor *o =
        tern_label(tern_attention(heads[0], heads[1], heads[2], 0.5, true), named(name, layer, "attention"));
    o = tern_linear(tern_reshape(o, 3, (int64_t[]){BATCH, TOKENS, WIDTH}), named(name, layer, "attn.c_proj"), WIDTH);
    x = tern_add(x, tern_dropout(o, 0.25, named(name, layer, "attn.drop")));
    tern_label(x, named(name, layer, "middle"));
    tern_tensor *h = norm(g, x, named(name, layer, "ln_2"));
    h = tern_linear(h, named(name, layer, "mlp.c_fc"), 2 * WIDTH);
    tern_label(h, named(name, layer, "hidden"));
    h = tern_linear(tern_gelu_tanh(h), named(name, layer, "mlp.c_proj"), WIDTH);
    x = tern_add(x, tern_dropout(h, 0.25, named(name, layer, "mlp.drop")));
    return tern_label(x, named(name, layer, "out"));
}

/* A small GPT with tied embedding, its loss and its gradients as outputs "d.<parameter>". */
static tern_graph *build_gpt(void)
{
    tern_graph *g;
    tern_gradients gradients;
    char name[128];
    TEST_OK(tern_graph_create(&g));
    tern_tensor *wte = tern_parameter(g, "wte", 2, (int64_t[]){VOCABULARY, WIDTH}, TERN_INIT_NORMAL, 0.02);
    tern_tensor *wpe = tern_parameter(g, "wpe", 2, (int64_t[]){TOKENS, WIDTH}, TERN_INIT_NORMAL, 0.02);
    tern_tensor *x = tern_add(tern_gather(wte, tern_input_2d(g, "ids", TERN_I32, BATCH, TOKENS)), wpe);
    x = tern_label(tern_dropout(x, 0.25, "drop"), "embedding");
    for (int32_t layer = 0; layer < LAYERS; layer++) x = block(g, x, layer);
    tern_tensor *logits = tern_label(tern_matmul(norm(g, x, "ln_f"), tern_transpose(wte, 0, 1)), "logits");
    tern_tensor *loss = tern_cross_entropy(logits, tern_input_2d(g, "labels", TERN_I32, BATCH, TOKENS), 7);
    tern_loss(loss, NULL);
    tern_output(loss, "loss");
    TEST_OK(tern_backward(g, loss, tern_detach(loss->weight), &gradients));
    for (uint32_t i = 0; i < gradients.count; i++) {
        snprintf(name, sizeof name, "d.%s", gradients.items[i].parameter->label);
        tern_output(tern_gradient_sum(&gradients.items[i]), name);
    }
    TEST_OK(tern_graph_status(g));
    tern_gradients_finish(&gradients);
    return g;
}

static tern_reference *run(const tern_graph *g)
{
    tern_reference *reference = evaluate_create(g, -0.5, 0.5);
    double *ids = tern_reference_data(reference, tern_graph_find(g, TERN_OP_INPUT, "ids"));
    double *labels = tern_reference_data(reference, tern_graph_find(g, TERN_OP_INPUT, "labels"));
    for (int32_t i = 0; i < BATCH * TOKENS; i++) {
        ids[i] = (i * 5) % VOCABULARY;
        labels[i] = (i * 5 + 2) % VOCABULARY;
    }
    TEST_OK(tern_reference_run(reference));
    return reference;
}

static bool read_late(const tern_graph *g, uint32_t id)
{
    for (uint32_t i = 0; i < g->node_count; i++)
        for (int32_t k = 0; g->nodes[i]->pass != TERN_PASS_FORWARD && k < g->nodes[i]->in_count; k++)
            if (g->nodes[i]->in[k]->id == id) return true;
    return false;
}

/* Same outputs, bit for bit, dropout included. */
static void test_same_values(void **state)
{
    (void)state;
    tern_graph *before = build_gpt(), *after;
    TEST_OK(tern_pass_save_rule(before, &after));
    tern_reference *a = run(before), *b = run(after);
    assert_true(before->output_count > 20);
    assert_int_equal(before->output_count, after->output_count);
    for (uint32_t i = 0; i < before->output_count; i++) {
        const tern_tensor *x = before->outputs[i].tensor, *y = after->outputs[i].tensor;
        assert_string_equal(before->outputs[i].name, after->outputs[i].name);
        if (memcmp(tern_reference_data(a, x), tern_reference_data(b, y), (size_t)tern_count(x) * sizeof(double)) != 0)
            fail_msg("%s changed", before->outputs[i].name);
    }
    assert_string_equal(after->loss->label, before->loss->label);
    assert_ptr_equal(after->loss->graph, after);
    assert_ptr_equal(after->loss_weight->graph, after);
    assert_ptr_equal(after->loss->weight->graph, after);
    assert_ptr_equal(tern_graph_find(after, TERN_OP_INPUT, "ids.order")->at.input.sort_of,
                     tern_graph_find(after, TERN_OP_INPUT, "ids"));
    tern_reference_destroy(a);
    tern_reference_destroy(b);
    tern_graph_destroy(before);
    tern_graph_destroy(after);
}

/* The tensors of full size that live from forward to backward: per block the qkv projection, attention's result, the
 * two residual sums and the hidden layer; besides them the embedding, where the residual stream begins, and the logits.
 * No norm, no gelu, no mask, no raw matmul. */
static void test_what_is_kept(void **state)
{
    (void)state;
    tern_graph *before = build_gpt(), *g;
    TEST_OK(tern_pass_save_rule(before, &g));
    uint32_t full = 0;
    for (uint32_t id = 0; id < g->node_count; id++) {
        const tern_tensor *x = g->nodes[id];
        if (x->pass != TERN_PASS_FORWARD || !read_late(g, id)) continue;
        tern_op_kind kind = tern_ops[x->op].kind;
        if (kind == TERN_KIND_LEAF || x->op == TERN_OP_SECOND) continue;
        if (kind == TERN_KIND_REDUCE) {
            assert_int_equal(x->shape[x->rank - 1], 1); /* one number per row */
            continue;
        }
        const char *dot = strrchr(x->label, '.');
        bool expected = kind == TERN_KIND_CONTRACTION
                            ? x->op == TERN_OP_ATTENTION || x->in[1]->shape[2] == VOCABULARY
                            : x->op == TERN_OP_ADD && dot && strstr(".qkv.middle.hidden.out", dot);
        expected = expected || strcmp(x->label, "embedding") == 0;
        if (!expected) fail_msg("kept beyond need: %s \"%s\"", tern_ops[x->op].name, x->label);
        full++;
    }
    assert_int_equal(full, 5 * LAYERS + 2);
    tern_graph_destroy(before);
    tern_graph_destroy(g);
}

/* Clones carry the key of the mask, are marked BACKWARD, stand before their readers, and none is made twice. */
static void test_clones(void **state)
{
    (void)state;
    tern_graph *before = build_gpt(), *g;
    TEST_OK(tern_pass_save_rule(before, &g));
    uint32_t masks[2] = {0, 0}, forward = 0, old_forward = 0;
    for (uint32_t i = 0; i < before->node_count; i++) old_forward += before->nodes[i]->pass == TERN_PASS_FORWARD;
    for (uint32_t i = 0; i < g->node_count; i++) {
        const tern_tensor *x = g->nodes[i];
        assert_int_equal(x->id, i);
        forward += x->pass == TERN_PASS_FORWARD;
        for (int32_t k = 0; k < x->in_count; k++) {
            assert_true(x->in[k]->id < i);
            if (x->pass == TERN_PASS_FORWARD) assert_int_equal(x->in[k]->pass, TERN_PASS_FORWARD);
        }
        if (x->op == TERN_OP_RANDOM) masks[x->pass == TERN_PASS_BACKWARD]++;
        if (x->op == TERN_OP_RANDOM)
            assert_int_equal(x->at.random.label_hash,
                             tern_graph_find(before, TERN_OP_RANDOM, x->label)->at.random.label_hash);
    }
    assert_int_equal(forward, old_forward);
    assert_int_equal(masks[0], 1 + 2 * LAYERS);
    assert_int_equal(masks[1], masks[0]); /* the gradients need them all */
    tern_graph_destroy(before);
    tern_graph_destroy(g);
}

/* A named output is in memory anyway; a long chain of elementwise ops is rebuilt without recursion; errors pass
 * through. */
static void test_edges(void **state)
{
    (void)state;
    tern_graph *g, *out;
    tern_gradients gradients;
    const int64_t three = 3;
    TEST_OK(tern_graph_create(&g));
    tern_tensor *w = tern_parameter(g, "w", 1, &three, TERN_INIT_ZEROS, 0), *x = tern_exp(w), *first = x;
    tern_output(first, "first");
    for (int32_t i = 0; i < 20000; i++) x = tern_sin(x);
    TEST_OK(tern_backward(g, x, tern_expand(tern_constant(g, 1), 1, &three), &gradients));
    tern_output(tern_gradient_sum(&gradients.items[0]), "dw");
    TEST_OK(tern_pass_save_rule(g, &out));
    uint32_t sines = 0;
    for (uint32_t i = 0; i < out->node_count; i++) {
        const tern_tensor *y = out->nodes[i];
        sines += y->op == TERN_OP_SIN && y->pass == TERN_PASS_BACKWARD;
        if (y->op == TERN_OP_EXP) assert_int_equal(y->pass, TERN_PASS_FORWARD);
    }
    assert_int_equal(sines, 19999); /* the last one's gradient needs only its input */
    tern_gradients_finish(&gradients);
    tern_graph_destroy(out);
    (void)tern_add(w, tern_input_1d(g, "other", TERN_F32, 4));
    TEST_ERROR(tern_pass_save_rule(g, &out), TERN_ERROR_INVALID, "\"w\" (3) f32");
    assert_null(out);
    tern_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_values),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_clones),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests_name("save_rule", tests, NULL, NULL);
}
