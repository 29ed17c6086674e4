package eval_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/berth-eval/berth/cmd/berth/internal/config/internal/eval"
)

func parse(t testing.TB, text string) hclsyntax.Expression {
	t.Helper()
	expr, diags := hclsyntax.ParseExpression([]byte(text), "x.hcl", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return expr
}

func env(t testing.TB, locals map[string]string) *eval.Env {
	t.Helper()
	r, err := eval.NewReader(t.TempDir(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := eval.Names{
		Refs:      map[string][]string{"agent": {"a", "b"}, "model": nil},
		Variables: map[string]eval.Variable{"v": {Value: cty.StringVal("x")}, "s": {Value: cty.StringVal("hidden"), Sensitive: true}},
		Locals:    map[string]hclsyntax.Expression{},
		Axes:      []string{"effort"},
	}
	for name, text := range locals {
		names.Locals[name] = parse(t, text)
	}
	return eval.NewEnv(r, func(name string) (string, bool) { return "value-of-" + name, name != "NOT_SET" }, names)
}

// hostile are expressions that take as long or as much memory as they can.
func hostile() (exprs, locals map[string]string) {
	loop := func(depth int, inner string) string {
		return strings.Repeat("[for x in range(1000) : ", depth) + inner + strings.Repeat("]", depth)
	}
	locals = map[string]string{"t0": `[1, 2]`, "s0": `"0123456789"`, "n0": "1e300", "big": `join("", [for x in range(1000) : join("", range(300))])`}
	for i := 1; i < 40; i++ {
		prev, name := "0123456789"[(i-1)%10:][:1], "0123456789"[i%10:][:1]
		prev, name = string(rune('a'+(i-1)/10))+prev, string(rune('a'+i/10))+name
		if i == 1 {
			locals["ta0"], locals["sa0"], locals["na0"] = locals["t0"], locals["s0"], locals["n0"]
		}
		locals["t"+name] = "[local.t" + prev + ", local.t" + prev + "]"
		locals["s"+name] = "\"${local.s" + prev + "}${local.s" + prev + "}\""
		locals["n"+name] = "local.n" + prev + " * local.n" + prev
	}
	return map[string]string{
		"loops":                      loop(6, "1"),
		"loops that fail":            loop(6, `1 + "x"`),
		"loops with a condition":     loop(3, "[for y in range(1000) : y if y > 2000]"),
		"loops that make maps":       "{for x in range(1000) : x => " + loop(3, "1") + "}",
		"loops in a template":        `"%{for x in range(1000)}%{for y in range(1000)}%{for z in range(1000)}x%{endfor}%{endfor}%{endfor}"`,
		"loops under try":            "try(" + loop(6, `1 + "x"`) + ", 1)",
		"tuples that double":         "local.td9",
		"texts that double":          "local.sd9",
		"numbers that double":        "\"${local.nd9}\"",
		"nested replaces":            strings.Repeat("replace(", 30) + `"a"` + strings.Repeat(`, "a", "aa")`, 30),
		"nested encodings":           strings.Repeat("jsonencode(", 40) + `"\""` + strings.Repeat(")", 40),
		"regular expressions":        `regexreplace(join("", range(1000)), "", join("", range(1000)))`,
		"format widths":              `format("%9999999d", 1)`,
		"format with many verbs":     `format(join("", [for x in range(1000) : "%[1]s"]), join("", [for x in range(1000) : "xxxxxxxxxx"]))`,
		"products":                   `setproduct(range(100), range(100), range(100), range(100))`,
		"a number as text":           `"x${"1e600000000" + 0}"`,
		"joins":                      `join(join("", range(1000)), range(1000))`,
		"distinct of a long list":    `distinct(flatten([for x in range(16) : [for y in range(1000) : 1000 * x + y]]))`,
		"deep JSON":                  `jsondecode(join("", [for x in range(1000) : "[[[[[[[[[[[[[[[["]))`,
		"indentation":                `indent(1000, join("\n", flatten([for x in range(20) : range(1000)])))`,
		"deep YAML":                  `yamldecode(join("", [for x in range(1000) : "[[[[[[[[[[[[[[[["]))`,
		"YAML that refers to itself": `yamldecode("a: &a [1]\nb: &b [*a, *a]\nc: [*b, *b]")`,
		"loops that make texts":      loop(2, `"${local.big}${x}"`),
		"loops over literals":        strings.Repeat("[for x in [1"+strings.Repeat(", 1", 999)+"] : ", 4) + "x" + strings.Repeat("]", 4),
		"a text of many parts":       `"` + strings.Repeat("${local.big}", 50_000) + `"`,
		"a number as an argument":    `upper("1e600000000" + 0)`,
		"a number that grows":        `[for x in range(1000) : "${"1e600000000" + x}"]`,
	}, locals
}

// Nothing that an experiment can say takes long or much memory. Each expression
// has a process of its own: what is given up on ends with it, as with a command.
func TestEvaluationIsBounded(t *testing.T) {
	exprs, locals := hostile()
	if name := os.Getenv("BERTH_TEST_HOSTILE"); name != "" {
		eval.LimitTime(500 * time.Millisecond)
		_, diags := env(t, locals).Scope(nil).Eval(t.Context(), parse(t, exprs[name]))
		fmt.Fprintf(os.Stderr, "%d problems: %s\n", len(diags), diags.Error())
		os.Exit(0)
	}
	for name := range exprs {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEvaluationIsBounded$")
			cmd.Env = append(os.Environ(), "BERTH_TEST_HOSTILE="+name, "TMPDIR="+t.TempDir())
			start := time.Now()
			out, err := cmd.CombinedOutput()
			took := time.Since(start)
			if err != nil {
				t.Fatalf("%v after %s: %.2000s", err, took, out)
			}
			usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			if !ok {
				t.Fatal("the memory of the process is not known")
			}
			t.Logf("%s, %d MiB: %.300s", took.Round(time.Millisecond), usage.Maxrss>>10, out)
			if bytes.HasPrefix(out, []byte("0 problems")) || len(out) > 10_000_000 {
				t.Errorf("it was evaluated: %.300s", out)
			}
			if took > 2*time.Minute || usage.Maxrss > mostMemory { // the promise: neither long nor much memory
				t.Errorf("it took %s and %d MiB", took, usage.Maxrss>>10)
			}
		})
	}
}

func TestEvaluationEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, diags := env(t, nil).Scope(nil).Eval(ctx, parse(t, `upper("a")`))
	if !diags.HasErrors() || !strings.Contains(diags.Error(), "ontext canceled") {
		t.Errorf("got %v; want an error that says that it was canceled", diags)
	}
}

func TestNamesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"agent.c":           `There is no agent "c". Known: a, b.`,
		"agent[\"c\"]":      `There is no agent "c".`,
		"model.x":           `There is no model "x". Write a block: model "x" { … }.`,
		"var.w":             `There is no variable "w". Known: s, v.`,
		"local.x":           `There is no local "x".`,
		"matrix.efort":      `There is no axis "efort". Did you mean "effort"?`,
		"agnet.a":           `Did you mean "agent"?`,
		"uper(\"a\")":       `There is no function "uper". Did you mean "upper"?`,
		"log(-1, 10)":       `Call to function "log" failed: it cannot work on these values.`,
		"agent.a.nme":       `does not have an attribute named "nme"`,
		"zzz":               `There is no variable named "zzz"`,
		"[for a in b : a]":  `There is no variable named "b"`,
		"agent.a.label":     "",
		"[for a in [1]: a]": "",
	} {
		_, diags := env(t, nil).Scope(map[string]cty.Value{"effort": cty.True}).Eval(t.Context(), parse(t, text))
		got := diags.Error()
		if diags.HasErrors() != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s gave %q, want %q", text, got, want)
		}
	}
	_, diags := env(t, nil).Outside("Because.").Eval(t.Context(), parse(t, "matrix.effort"))
	if !strings.Contains(diags.Error(), "Because.") {
		t.Errorf("got %v; want the reason", diags)
	}
}

// What depends on a secret is unknown until it is asked for, and says so.
func TestSecretsAreUnknownUntilTheyAreAskedFor(t *testing.T) {
	for text, label := range map[string]string{
		`secret("K")`:                               `${secret("K")}`,
		`"Bearer ${secret("K")}"`:                   `Bearer ${secret("K")}`,
		`var.s`:                                     `${var.s}`,
		`secret("K") == "x" ? "a" : "b"`:            "b",
		`upper(secret("K"))`:                        `${SECRET("K")}`,
		`[for x in [secret("K")] : x][0]`:           `${secret("K")}`,
		`split("-", secret("K"))[0]`:                `${secret("K")}`,
		`lookup({ a = secret("K") }, "a", "b")`:     `${secret("K")}`,
		`merge({ a = "x" }, { b = secret("K") }).b`: `${secret("K")}`,
	} {
		e := env(t, nil)
		shape, diags := e.Scope(nil).Eval(t.Context(), parse(t, text))
		if diags.HasErrors() || shape.IsKnown() || len(eval.SecretsOf(shape)) != 1 {
			t.Errorf("%s is %#v, %v; want an unknown value with one secret", text, shape, diags)
		}
		v, diags := e.Scope(nil).With(eval.Labels).Eval(t.Context(), parse(t, text))
		plain, _ := v.Unmark()
		if diags.HasErrors() || plain.AsString() != label || len(eval.SecretsOf(v)) != 1 {
			t.Errorf("the label of %s is %#v, %v; want %q", text, v, diags, label)
		}
		v, diags = e.Scope(nil).Real().Eval(t.Context(), parse(t, text))
		plain, _ = v.Unmark()
		if diags.HasErrors() || len(eval.SecretsOf(v)) != 1 || plain.AsString() == "" {
			t.Errorf("%s is really %#v, %v", text, v, diags)
		}
	}
	if got := env(t, nil).Scope(nil).Missing([]string{"K", "NOT_SET", "var.s"}); !slices.Equal(got, []string{"NOT_SET"}) {
		t.Errorf("missing %q, want NOT_SET", got)
	}
}
