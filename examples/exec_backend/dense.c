/* dense: a backend of dlc in C. It builds models of dense layers (gemm, mat_mul, add, relu) into one C file.

     cc -O2 -o dense dense.c
     dlc build net.onnx --target exec:./dense -o out
     cc -O2 -o net out/dense.c
     ./net < input.f32 > output.f32

   dlc runs the program once for each question: a line of JSON comes in, a line of JSON goes out. docs/exec-backends.md
   describes the questions. Nothing but the C library is used. */

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON: a tree of values ---- */

enum kind { NONE, TRUE, FALSE, NUMBER, STRING, LIST, OBJECT };

struct json {
    enum kind kind;
    double number;
    char *text;          /* of a string */
    size_t count;        /* of a list or an object */
    struct json *items;  /* its values */
    char **keys;         /* of an object */
};

static const char *at;

static void fail(const char *why) {
    fprintf(stderr, "dense: %s\n", why);
    exit(1);
}

static void *grown(void *old, size_t count, size_t size) {
    void *new = realloc(old, count * size);
    if (!new) fail("out of memory");
    return new;
}

static void space(void) {
    while (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n') at++;
}

static void expect(char c) {
    space();
    if (*at++ != c) fail("the request is not JSON");
}

/* The text of a string. Characters beyond ASCII become '?': this backend only compares names that dlc chose. */
static char *string(void) {
    size_t length = 0, room = 16;
    char *text = grown(NULL, room, 1);
    expect('"');
    while (*at != '"') {
        char c = *at++;
        if (c == '\0') fail("the request is not JSON");
        if (c == '\\') {
            c = *at++;
            if (c == 'n') c = '\n';
            else if (c == 't') c = '\t';
            else if (c == 'u') {
                for (int k = 0; k < 4; k++, at++)
                    if (!*at) fail("the request is not JSON");
                c = '?';
            }
        }
        if (length + 2 > room) text = grown(text, room *= 2, 1);
        text[length++] = c;
    }
    at++;
    text[length] = '\0';
    return text;
}

static struct json value(int depth) {
    struct json found = {NONE, 0, NULL, 0, NULL, NULL};
    if (depth > 200) fail("the request is nested too deep");
    space();
    if (*at == '"') {
        found.kind = STRING;
        found.text = string();
    } else if (*at == '[' || *at == '{') {
        char end = *at++ == '[' ? ']' : '}';
        found.kind = end == ']' ? LIST : OBJECT;
        for (space(); *at != end; space()) {
            if (found.count) expect(',');
            found.items = grown(found.items, found.count + 1, sizeof *found.items);
            if (found.kind == OBJECT) {
                space();
                found.keys = grown(found.keys, found.count + 1, sizeof *found.keys);
                found.keys[found.count] = string();
                expect(':');
            }
            found.items[found.count] = value(depth + 1);
            found.count++;
        }
        at++;
    } else if (!strncmp(at, "null", 4)) {
        at += 4;
    } else if (!strncmp(at, "true", 4)) {
        found.kind = TRUE;
        at += 4;
    } else if (!strncmp(at, "false", 5)) {
        found.kind = FALSE;
        at += 5;
    } else {
        char *end;
        found.kind = NUMBER;
        found.number = strtod(at, &end);
        if (end == at) fail("the request is not JSON");
        at = end;
    }
    return found;
}

/* The field of an object. Fields that this program does not know are never asked for, so dlc may add some. */
static const struct json *get(const struct json *object, const char *key) {
    for (size_t k = 0; object->kind == OBJECT && k < object->count; k++)
        if (!strcmp(object->keys[k], key)) return &object->items[k];
    fprintf(stderr, "dense: the request has no field %s\n", key);
    exit(1);
}

static int is(const struct json *value, const char *text) {
    return value->kind == STRING && !strcmp(value->text, text);
}

/* ---- describe ---- */

static void describe(void) {
    printf("\"result\":{\"protocol\":1,\"name\":\"dense\",\"version\":\"1.0\",\"consumes\":\"ops\","
           "\"ops\":[\"gemm\",\"mat_mul\",\"add\",\"relu\"],\"elements\":[\"f32\"],\"legalises\":true,"
           "\"options\":[{\"name\":\"sums\",\"type\":\"string\",\"default\":\"float\","
           "\"choices\":[\"float\",\"double\"],\"doc\":\"type in which products are added\"}]}");
}

/* ---- legalise: op and element types are what describe says; here are the shapes ---- */

static size_t size_of(const struct json *shape) {
    size_t size = 1;
    for (size_t k = 0; k < shape->count; k++) size *= (size_t)shape->items[k].number;
    return size;
}

static double last(const struct json *shape) {
    return shape->count ? shape->items[shape->count - 1].number : 1;
}

/* Whether b is of the shape of a, or a row that is added to each of its rows. */
static int adds(const struct json *a, const struct json *b) {
    return size_of(b) == size_of(a) || (size_of(b) == (size_t)last(b) && last(b) == last(a));
}

static const char *refusal(const struct json *op) {
    const struct json *operands = get(op, "operands"), *attributes = get(op, "attributes");
    const struct json *result = get(&get(op, "results")->items[0], "shape");
    if (is(get(op, "op"), "relu")) return NULL;
    const struct json *a = get(get(operands, "a"), "shape"), *b = get(get(operands, "b"), "shape");
    if (is(get(op, "op"), "add")) {
        if (size_of(a) != size_of(result) || !adds(a, b)) return "the second operand must be a row of the first";
        return NULL;
    }
    if (a->count != 2 || b->count != 2) return "a matrix product of other operands than two matrices";
    if (is(get(op, "op"), "mat_mul")) return NULL;
    if (get(attributes, "alpha")->number != 1 || get(attributes, "beta")->number != 1) return "alpha or beta is not 1";
    if (get(attributes, "trans_a")->kind == TRUE) return "the first operand is transposed";
    const struct json *c = get(operands, "c");
    if (c->kind != NONE && !adds(result, get(c, "shape"))) return "c is neither a row nor a matrix";
    return NULL;
}

static void legalise(const struct json *params) {
    const struct json *ops = get(params, "ops");
    const char *comma = "";
    printf("\"result\":{\"refused\":[");
    for (size_t k = 0; k < ops->count; k++) {
        const char *reason = refusal(&ops->items[k]);
        if (!reason) continue;
        printf("%s{\"op\":%zu,\"reason\":\"%s\"}", comma, k, reason);
        comma = ",";
    }
    printf("]}");
}

/* ---- emit ---- */

static FILE *out;

static void put(const char *form, ...) {
    va_list arguments;
    va_start(arguments, form);
    if (vfprintf(out, form, arguments) < 0) fail("the file cannot be written");
    va_end(arguments);
}

static int operand(const struct json *step, const char *name) {
    const struct json *found = get(get(step, "operands"), name);
    return found->kind == NONE ? -1 : (int)found->number;
}

static const struct json *shape_of(const struct json *values, int number) {
    return get(&values->items[number], "shape");
}

/* v[i] of a row that is added to rows of `columns` elements, or of a whole matrix. */
static void put_added(const struct json *values, int number, size_t size, size_t columns) {
    if (size_of(shape_of(values, number)) == size) put("v%d[i]", number);
    else put("v%d[i %% %zu]", number, columns);
}

static void put_product(const struct json *values, const struct json *step, int y, const char *sums) {
    int a = operand(step, "a"), b = operand(step, "b"), c = -1, turned = 0;
    if (is(get(step, "op"), "gemm")) {
        c = operand(step, "c");
        turned = get(get(step, "attributes"), "trans_b")->kind == TRUE;
    }
    size_t columns = (size_t)last(shape_of(values, y)), inner = (size_t)last(shape_of(values, a));
    size_t size = size_of(shape_of(values, y));
    put("    for (long i = 0; i < %zu; i++) {\n        %s sum = 0;\n", size, sums);
    put("        for (long k = 0; k < %zu; k++)\n            sum += v%d[i / %zu * %zu + k] * ", inner, a, columns, inner);
    if (turned) put("v%d[i %% %zu * %zu + k];\n", b, columns, inner);
    else put("v%d[k * %zu + i %% %zu];\n", b, columns, columns);
    put("        v%d[i] = (float)sum", y);
    if (c >= 0) {
        put(" + ");
        put_added(values, c, size, columns);
    }
    put(";\n    }\n");
}

/* The reason why the weights cannot be written, or NULL. */
static const char *put_weights(const struct json *constants, const char *path, size_t *total) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("the file of weights cannot be opened");
    for (size_t k = 0; k < constants->count; k++) {
        const struct json *constant = &constants->items[k];
        size_t count = (size_t)get(constant, "bytes")->number / 4;
        if (fseek(file, (long)get(constant, "offset")->number, SEEK_SET)) fail("the file of weights is too short");
        put("static const float v%d[%zu] = {\n", (int)get(constant, "value")->number, count ? count : 1);
        for (size_t i = 0; i < count; i++) {
            float x; /* of this machine, which has to be little-endian as the file is */
            if (fread(&x, 4, 1, file) != 1) fail("the file of weights is too short");
            if (!isfinite(x)) return "a weight is not a finite number";
            put("%af,%s", (double)x, i % 8 == 7 ? "\n" : " ");
        }
        put("};\n");
        *total += 4 * count;
    }
    fclose(file);
    return NULL;
}

static void emit(const struct json *params) {
    const struct json *program = get(params, "program"), *values = get(program, "values");
    const struct json *inputs = get(program, "inputs"), *outputs = get(program, "outputs");
    const struct json *steps = get(program, "steps");
    const char *sums = get(get(params, "options"), "sums")->text;
    size_t weights = 0, products = 0;
    char name[4096];
    snprintf(name, sizeof name, "%s/dense.c", get(params, "output")->text);
    out = fopen(name, "w");
    if (!out) fail("dense.c cannot be written");
    put("/* Reads the inputs from standard input and writes the outputs to standard output, as raw floats. */\n");
    put("#include <stdio.h>\n\n");
    const char *problem = put_weights(get(program, "constants"), get(params, "weights")->text, &weights);
    if (problem) {
        printf("\"error\":{\"kind\":\"model\",\"message\":\"%s\"}", problem);
        return;
    }
    for (size_t k = 0; k < inputs->count; k++) {
        int x = (int)get(&inputs->items[k], "value")->number;
        put("static float v%d[%zu];\n", x, size_of(shape_of(values, x)));
    }
    for (size_t k = 0; k < steps->count; k++) {
        int y = (int)get(&steps->items[k], "results")->items[0].number;
        put("static float v%d[%zu];\n", y, size_of(shape_of(values, y)));
    }
    put("\nint main(void) {\n");
    for (size_t k = 0; k < inputs->count; k++) {
        int x = (int)get(&inputs->items[k], "value")->number;
        put("    if (fread(v%d, sizeof v%d, 1, stdin) != 1) return 1;\n", x, x);
    }
    for (size_t k = 0; k < steps->count; k++) {
        const struct json *step = &steps->items[k], *op = get(step, "op");
        int y = (int)get(step, "results")->items[0].number;
        size_t size = size_of(shape_of(values, y)), columns = (size_t)last(shape_of(values, y));
        if (is(op, "relu")) {
            int x = operand(step, "x");
            put("    for (long i = 0; i < %zu; i++) v%d[i] = v%d[i] < 0 ? 0 : v%d[i];\n", size, y, x, x);
        } else if (is(op, "add")) {
            put("    for (long i = 0; i < %zu; i++) v%d[i] = v%d[i] + ", size, y, operand(step, "a"));
            put_added(values, operand(step, "b"), size, columns);
            put(";\n");
        } else {
            put_product(values, step, y, sums);
            products += size * (size_t)last(shape_of(values, operand(step, "a")));
        }
    }
    for (size_t k = 0; k < outputs->count; k++) {
        int y = (int)get(&outputs->items[k], "value")->number;
        put("    if (fwrite(v%d, sizeof v%d, 1, stdout) != 1) return 1;\n", y, y);
    }
    put("    return 0;\n}\n");
    if (fclose(out)) fail("dense.c cannot be written");
    printf("\"result\":{\"entry\":\"dense.c\",\"facts\":{\"weights_bytes\":%zu,\"multiply_adds\":%zu}}", weights, products);
}

int main(void) {
    size_t length = 0, room = 1 << 16;
    char *line = grown(NULL, room, 1);
    while ((length += fread(line + length, 1, room - length - 1, stdin)) == room - 1) line = grown(line, room *= 2, 1);
    line[length] = '\0';
    at = line;
    struct json request = value(0);
    const struct json *method = get(&request, "method"), *params = get(&request, "params");
    printf("{\"id\":%.0f,", get(&request, "id")->number);
    if (is(method, "describe")) describe();
    else if (is(method, "legalise")) legalise(params);
    else if (is(method, "emit")) emit(params);
    else printf("\"error\":{\"kind\":\"protocol\",\"message\":\"there is no such method\"}");
    printf("}\n");
    return 0;
}
