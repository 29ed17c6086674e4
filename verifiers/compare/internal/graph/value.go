package graph

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/berth-eval/berth/verifiers/compare/internal/document"
)

// maxCases is how many elements of a list are compared in any order.
const maxCases = 200

// same compares a value with the expected one. key is the name under which they
// stand: the list under cases may be in any order.
func same(a, e any, key string) bool {
	switch e := e.(type) {
	case string:
		text, ok := a.(string)
		return ok && strings.TrimSpace(text) == strings.TrimSpace(e)
	case json.Number:
		n, ok := a.(json.Number)
		return ok && document.SameNumber(n, e)
	case document.List:
		list, ok := a.(document.List)
		if !ok || len(list) != len(e) {
			return false
		}
		if strings.EqualFold(key, "cases") && len(e) <= maxCases {
			return inAnyOrder(list, e)
		}
		for i := range e {
			if !same(list[i], e[i], "") {
				return false
			}
		}
		return true
	case document.Object:
		o, ok := a.(document.Object)
		return ok && sameObject(o, e)
	}
	return a == e // bool and null
}

// sameObject compares objects below the top: the same keys, in any case. If keys of
// one of them differ only in case, the case counts.
func sameObject(a, e document.Object) bool {
	if len(a) != len(e) {
		return false
	}
	lowA, lowE := lowered(a), lowered(e)
	if len(lowA) == len(a) && len(lowE) == len(e) {
		a, e = lowA, lowE
	}
	for k, v := range e {
		if x, ok := a[k]; !ok || !same(x, v, k) {
			return false
		}
	}
	return true
}

// lowered returns an object with its keys in lower case.
func lowered(o document.Object) document.Object {
	out := make(document.Object, len(o))
	for k, v := range o {
		out[strings.ToLower(k)] = v
	}
	return out
}

// inAnyOrder compares lists of the same length in any order. Equality of values is
// transitive, so that any counterpart will do.
func inAnyOrder(a, e document.List) bool {
	left := slices.Clone(a)
	for _, x := range e {
		i := slices.IndexFunc(left, func(y any) bool { return same(y, x, "") })
		if i < 0 {
			return false
		}
		left = slices.Delete(left, i, i+1)
	}
	return true
}
