package eval_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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

// What an expression makes is bounded in size, also on the way to its value.
func TestValuesAreBoundedInSize(t *testing.T) {
	t.Parallel()
	locals := map[string]string{"t0": `[1, 2]`, "s0": `"0123456789"`, "n0": "1e300"}
	for i := 1; i < 40; i++ {
		locals[fmt.Sprint("t", i)] = fmt.Sprintf("[local.t%d, local.t%[1]d]", i-1)
		locals[fmt.Sprint("s", i)] = fmt.Sprintf("\"${local.s%d}${local.s%[1]d}\"", i-1)
		locals[fmt.Sprint("n", i)] = fmt.Sprintf("local.n%d * local.n%[1]d", i-1)
	}
	for name, text := range map[string]string{
		"tuples that double":  "local.t39",
		"texts that double":   "local.s39",
		"numbers that double": "\"${local.n39}\"",
		"format widths":       `format("%9999999d", 1)`,
		"a long list":         `flatten([for x in range(20) : range(1000)])`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := env(t, locals).Scope(nil).Eval(t.Context(), parse(t, text))
			if !diags.HasErrors() || !strings.Contains(diags.Error(), "oo large") && !strings.Contains(diags.Error(), "at most") {
				t.Errorf("got %.300s", diags.Error())
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
