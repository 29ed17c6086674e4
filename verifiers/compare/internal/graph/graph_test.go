package graph

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

func flow(nodes, edges string) string {
	return fmt.Sprintf(`{"name": "w", "graph": {"nodes": [%s], "edges": [%s]}}`, nodes, edges)
}

func box(id, kind, data string) string {
	return fmt.Sprintf(`{"id": %q, "type": %q, "data": {%s}, "position": {"x": 1}}`, id, kind, data)
}

func link(source, target, handle string) string {
	return fmt.Sprintf(`{"source": %q, "target": %q, "sourceHandle": %s, "targetHandle": "in"}`, source, target, handle)
}

func differences(t *testing.T, truth, prediction string) string {
	t.Helper()
	e, err := document.Parse(truth)
	if err != nil {
		t.Fatalf("%v: %s", err, truth)
	}
	p, err := document.Parse(prediction)
	if err != nil {
		t.Fatalf("%v: %s", err, prediction)
	}
	d, err := Compare(e, p)
	if err != nil {
		t.Fatalf("%v: %s", err, truth)
	}
	if d.Empty() {
		return ""
	}
	return d.String()
}

type pair struct {
	name, truth, prediction string
	want                    string // part of the differences; empty: none
}

func check(t *testing.T, cases []pair) {
	t.Helper()
	for _, tt := range cases {
		got := differences(t, tt.truth, tt.prediction)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestDataOfNodes(t *testing.T) {
	t.Parallel()
	one := func(data string) string { return flow(box("a", "http", data), "") }
	check(t, []pair{
		{"the same", one(`"url": "x"`), one(`"url": "x"`), ""},
		{"stripped", one(`"url": "x"`), one(`"url": " x\n"`), ""},
		{"another case", one(`"url": "x"`), one(`"url": "X"`), `url is "X"`},
		{"a key is missing", one(`"url": "x"`), one(``), "url is missing"},
		{"a further key at the top", one(`"url": "x"`), one(`"url": "x", "more": 1`), ""},
		{"a key in another case at the top", one(`"url": "x"`), one(`"URL": "x"`), "url is missing"},
		{"a key in another case below", one(`"o": {"Url": 1}`), one(`"o": {"uRL": 1}`), ""},
		{"a further key below", one(`"o": {"a": 1}`), one(`"o": {"a": 1, "b": 2}`), "o is"},
		{"a key is missing below", one(`"o": {"a": 1, "b": 2}`), one(`"o": {"a": 1}`), "o is"},
		{"another key below", one(`"o": {"a": 1}`), one(`"o": {"b": 1}`), "o is"},
		{"keys that differ in case", one(`"o": {"a": 1, "A": 2}`), one(`"o": {"a": 1, "A": 2}`), ""},
		{"keys that differ in case, exchanged", one(`"o": {"a": 1, "A": 2}`), one(`"o": {"a": 2, "A": 1}`), "o is"},
		{"bool", one(`"on": true`), one(`"on": true`), ""},
		{"another bool", one(`"on": true`), one(`"on": false`), "on is"},
		{"1 is not true", one(`"on": true`), one(`"on": 1`), "on is"},
		{"true is not 1", one(`"on": 1`), one(`"on": true`), "on is"},
		{"text is not true", one(`"on": true`), one(`"on": "true"`), "on is"},
		{"numbers by value", one(`"n": 1`), one(`"n": 1.0`), ""},
		{"another number", one(`"n": 1`), one(`"n": 1.0001`), "n is"},
		{"a number as text", one(`"n": 1`), one(`"n": "1"`), "n is"},
		{"null", one(`"n": null`), one(`"n": null`), ""},
		{"null is there", one(`"n": null`), one(``), "n is missing"},
		{"null and a value", one(`"n": null`), one(`"n": 0`), "n is"},
		{"a list", one(`"l": [1, "b"]`), one(`"l": [1, " b"]`), ""},
		{"a list in another order", one(`"l": [1, 2]`), one(`"l": [2, 1]`), "l is"},
		{"a list of another length", one(`"l": [1, 2]`), one(`"l": [1, 2, 2]`), "l is"},
		{"cases in another order", one(`"cases": [{"v": 1}, {"v": 2}]`), one(`"cases": [{"v": 2}, {"v": 1}]`), ""},
		{"other cases", one(`"cases": [{"v": 1}, {"v": 2}]`), one(`"cases": [{"v": 2}, {"v": 2}]`), "cases is"},
		{"cases below in another order", one(`"o": {"cases": [1, 2]}`), one(`"o": {"Cases": [2, 1]}`), ""},
		{"a list in cases keeps its order", one(`"cases": [[1, 2]]`), one(`"cases": [[2, 1]]`), "cases is"},
		{"no object", one(`"o": {"a": 1}`), one(`"o": [1]`), "o is"},
		{"a number that is not finite", one(`"n": 1`), one(`"n": 1e999`), "n is"},
	})
}

func TestNodes(t *testing.T) {
	t.Parallel()
	two := flow(box("a", "http", `"url": "x"`)+","+box("b", "wait", `"s": 1`), "")
	check(t, []pair{
		{"other ids, positions and order", two, `{"graph": {"nodes": [{"id": 7, "type": "wait", "data": {"s": 1}}, {"id": "q", "type": "http", "data": {"url": "x"}}]}, "name": "other"}`, ""},
		{"without the outer object", two, `{"nodes": [{"id": 7, "type": "wait", "data": {"s": 1}}, {"id": "q", "type": "http", "data": {"url": "x"}}], "edges": []}`, ""},
		{"another type", two, flow(box("a", "http", `"url": "x"`)+","+box("b", "sleep", `"s": 1`), ""), `1 nodes of type "wait" are missing`},
		{"a node too many", two, flow(box("a", "http", `"url": "x"`)+","+box("b", "wait", `"s": 1`)+","+box("c", "wait", `"s": 1`), ""), `1 nodes of type "wait" are not expected`},
		{"a node is missing", two, flow(box("a", "http", `"url": "x"`), ""), `1 nodes of type "wait" are missing`},
		{"two that are exchanged", flow(box("a", "n", `"v": 1`)+","+box("b", "n", `"v": 2`), ""), flow(box("a", "n", `"v": 2`)+","+box("b", "n", `"v": 1`), ""), ""},
		{"one twice", flow(box("a", "n", `"v": 1`)+","+box("b", "n", `"v": 2`), ""), flow(box("a", "n", `"v": 1`)+","+box("b", "n", `"v": 1`), ""), "v is 1, expected 2"},
		{"a node without data", flow(box("a", "n", ``), ""), `{"graph": {"nodes": [{"id": "a", "type": "n"}]}}`, ""},
		{"no nodes", two, `{"graph": {}}`, "no list of nodes"},
		{"no object", two, `[]`, "no list of nodes"},
		{"a node without an id", two, `{"graph": {"nodes": [{"type": "n"}, {}]}}`, "no id or no type"},
		{"an id twice", two, flow(box("a", "http", `"url": "x"`)+","+box("a", "wait", `"s": 1`), ""), "two nodes have the id a"},
		{"edges that are not a list", two, `{"nodes": [], "edges": 7}`, "edges is not a list"},
		{"an empty truth is 0", flow("", ""), flow("", ""), "no nodes"},
	})
	for name, truth := range map[string]any{"no graph": document.Object{}, "nil": nil} {
		if _, err := Compare(truth, nil); err == nil {
			t.Errorf("a truth that is %s is not an error", name)
		}
	}
}

func TestEdges(t *testing.T) {
	t.Parallel()
	nodes := box("a", "x", "") + "," + box("b", "y", "") + "," + box("c", "z", "")
	with := func(edges ...string) string { return flow(nodes, strings.Join(edges, ",")) }
	one := func(handle string) string { return with(link("a", "b", handle)) }
	check(t, []pair{
		{"the same", one(`"default"`), one(`"default"`), ""},
		{"another target handle", one(`"default"`), strings.ReplaceAll(one(`"default"`), `"in"`, `"left"`), ""},
		{"other ids", one(`"default"`), strings.NewReplacer(`"a"`, `"1"`, `"b"`, `"2"`).Replace(one(`"default"`)), ""},
		{"another direction", one(`"default"`), with(link("b", "a", `"default"`)), "b → a"},
		{"an edge is missing", one(`"default"`), with(), "is missing"},
		{"an edge too many", one(`"default"`), with(link("a", "b", `"default"`), link("b", "c", `"default"`)), `b → c from "default" is not expected`},
		{"an edge twice", one(`"default"`), with(link("a", "b", `"default"`), link("a", "b", `"default"`)), "is not expected"},
		{"twice in both", with(link("a", "b", `"default"`), link("a", "b", `"default"`)), with(link("a", "b", `"default"`), link("a", "b", `"default"`)), ""},
		{"another handle", one(`"onTrue"`), one(`"onFalse"`), "onTrue"},
		{"a case by its name", one(`"case-1"`), one(`"case-1"`), ""},
		{"a case as case", one(`"case-1"`), one(`"case"`), ""},
		{"another case", one(`"case-1"`), one(`"case-2"`), "case-1"},
		{"case in the truth", one(`"case"`), one(`"case-1"`), "is missing"},
		{"default is not case", one(`"default"`), one(`"case"`), "is missing"},
		{"onTrue is not case", one(`"onTrue"`), one(`"case"`), "is missing"},
		{"onFalse is not case", one(`"onFalse"`), one(`"case"`), "is missing"},
		{"trigger is not case", one(`"trigger"`), one(`"case"`), "is missing"},
		{"null", one(`null`), one(`null`), ""},
		{"null is not default", one(`null`), one(`"default"`), "without a handle is missing"},
		{"default is not null", one(`"default"`), one(`null`), "is missing"},
		{"null is not case", one(`null`), one(`"case"`), "is missing"},
		{"none is null", one(`null`), strings.ReplaceAll(one(`null`), `"sourceHandle": null, `, ""), ""},
		{"two cases", with(link("a", "b", `"one"`), link("a", "b", `"two"`)), with(link("a", "b", `"case"`), link("a", "b", `"one"`)), ""},
		{"two cases as case", with(link("a", "b", `"one"`), link("a", "b", `"two"`)), with(link("a", "b", `"case"`), link("a", "b", `"case"`)), ""},
		{"one case for two", with(link("a", "b", `"one"`), link("a", "b", `"two"`)), with(link("a", "b", `"case"`)), "is missing"},
		{"an edge from nowhere", one(`"default"`), with(link("a", "b", `"default"`), link("q", "b", `"default"`)), "unknown source"},
		{"an edge to itself", with(link("a", "a", `"default"`)), with(link("a", "a", `"default"`)), ""},
	})
}
