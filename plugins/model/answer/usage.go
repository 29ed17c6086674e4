package answer

import (
	"encoding/json"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/berth-eval/berth/plugins/dialect"
)

// count is one number in a record of usage.
type count int

const (
	input     count = iota // with what the cache holds of it
	fresh                  // input without that
	tools                  // input that the provider's own tools added
	cached                 // input read from the cache
	written                // input written to the cache
	minutes                // of written, for five minutes
	hour                   // of written, for an hour
	output                 // usually with reasoning
	reasoning              // of output
	thoughts               // output beside the rest of it
	total
	counts // number of them
)

// members are the members of a record of usage that hold each number, in all
// dialects: servers of one dialect often pass on the record of another.
var members = [counts][]string{
	input:   {"prompt_tokens", "promptTokenCount", "prompt_token_count"},
	tools:   {"toolUsePromptTokenCount", "tool_use_prompt_token_count"},
	cached:  {"prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens", "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens", "cachedContentTokenCount", "cached_content_token_count"},
	written: {"cache_creation_input_tokens", "prompt_tokens_details.cache_write_tokens", "prompt_tokens_details.cache_creation_tokens", "input_tokens_details.cache_write_tokens"},
	minutes: {"cache_creation.ephemeral_5m_input_tokens"},
	hour:    {"cache_creation.ephemeral_1h_input_tokens"},
	output:  {"completion_tokens", "output_tokens", "candidatesTokenCount", "candidates_token_count"},
	reasoning: {
		"completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens", "output_tokens_details.thinking_tokens", "reasoning_tokens",
	},
	thoughts: {"thoughtsTokenCount", "thoughts_token_count"},
	total:    {"total_tokens", "totalTokenCount", "total_token_count"},
}

// Usage is what an answer says about its usage.
type Usage struct {
	n    [counts]*int64  // nil: not said
	bad  [counts]bool    // the last one is of an unknown form
	usd  *float64        // the cost that the provider states; nil: none
	json json.RawMessage // the provider's own record
}

// names are the members of an answer that hold a record of usage.
var names = []string{"usage", "usageMetadata", "usage_metadata"}

// echoed are members that repeat the request or hold what the model wrote. A
// record of usage in them would not be the provider's.
var echoed = []string{"metadata", "text", "tools", "reasoning", "input", "arguments", "args", "content", "parts"}

// usages reads the records of usage in an answer. Servers put them into many
// places: beside the choices, into one of them, or into their own member.
func (r *reader) usages(where string, v gjson.Result, depth int) {
	v.ForEach(func(name, m gjson.Result) bool {
		at := where + name.Str
		switch {
		case slices.Contains(names, name.Str):
			r.usage(at, m)
		case depth == 0 || slices.Contains(echoed, name.Str):
		case m.IsObject():
			r.usages(at+".", m, depth-1)
		case m.IsArray() && (at == "choices" || at == "candidates"):
			m.ForEach(func(_, e gjson.Result) bool {
				if e.IsObject() {
					r.usages(at+"[].", e, depth-1)
				}
				return true
			})
		}
		return true
	})
}

// usage reads one record of usage.
func (r *reader) usage(where string, v gjson.Result) {
	if absent(v) {
		return
	}
	if !v.IsObject() {
		r.note(where, v)
		return
	}
	one := Usage{json: json.RawMessage(v.Raw)}
	for k, paths := range members {
		for _, path := range paths {
			r.number(&one, count(k), where+"."+path, v.Get(path))
		}
	}
	kind := input
	if r.exclusive && one.n[input] == nil && !v.Get("input_tokens_details").IsObject() {
		kind = fresh
	}
	r.number(&one, kind, where+".input_tokens", v.Get("input_tokens"))
	for k := range one.bad { // it may have another name, too
		one.bad[k] = one.bad[k] && one.n[k] == nil
	}
	one.usd = r.cost(where+".cost", v)
	r.p.Usage.add(&one)
}

// number reads a number of tokens.
func (r *reader) number(u *Usage, k count, where string, v gjson.Result) {
	if absent(v) {
		return
	}
	var t dialect.Tokens
	if v.Type != gjson.Number && v.Type != gjson.String || t.UnmarshalJSON([]byte(v.Raw)) != nil {
		r.note(where, v)
		u.bad[k] = true
		return
	}
	n := int64(t)
	larger(&u.n[k], &n)
}

// cost reads the cost that the provider states, in USD. If the user's own key of
// another provider was used, that is its fee, and the other's cost is beside it.
func (r *reader) cost(where string, usage gjson.Result) *float64 {
	v := usage.Get("cost")
	if v.IsObject() {
		v = v.Get("total_cost")
	}
	if absent(v) {
		return nil
	}
	usd := v.Float()
	if v.Type != gjson.Number && (v.Type != gjson.String || v.Str == "") || !(usd >= 0 && usd < maxCost) || usd == 0 && v.Type == gjson.String && v.Str[0] != '0' {
		r.note(where, v)
		return nil
	}
	if more := usage.Get("cost_details.upstream_inference_cost").Float(); usage.Get("is_byok").Bool() && more > 0 && more < maxCost {
		usd += more
	}
	return &usd
}

// maxCost is more than a request can cost, in USD.
const maxCost = 1e6

// larger keeps the larger number.
func larger[T int64 | float64](to **T, n *T) bool {
	if n == nil || *to != nil && **to >= *n {
		return false
	}
	*to = n
	return true
}

// add adds another record of the same answer. The largest numbers count: some
// servers send zeros before or after the real record, others a growing one.
func (u *Usage) add(more *Usage) {
	grown := false
	for k, n := range more.n {
		rises := larger(&u.n[k], n)
		u.bad[k] = !rises && (u.bad[k] || more.bad[k])
		grown = grown || rises
	}
	grown = larger(&u.usd, more.usd) || grown
	if grown {
		u.json = overlay(u.json, more.json)
	}
}

// overlay merges the members of over into under; members of over take
// precedence.
func overlay(under, over json.RawMessage) json.RawMessage {
	if under == nil {
		return slices.Clone(over)
	}
	o, err := dialect.ParseObject(under)
	if err != nil {
		return slices.Clone(over)
	}
	p, err := dialect.ParseObject(slices.Clone(over))
	if err != nil {
		return under
	}
	for _, n := range p.Names() {
		o.Set(n, p.Get(n))
	}
	return o.Bytes()
}

func (u *Usage) of(k count) int64 {
	if u.n[k] == nil {
		return 0
	}
	return *u.n[k]
}

// Tokens returns the usage, and whether all of its input and all of its output
// are known. Providers differ in what the input and the output include; their
// total shows it.
func (u *Usage) Tokens() (t dialect.Usage, in, out bool) {
	t.CacheWrite = max(u.of(written), u.of(minutes)+u.of(hour))
	t.Cached, t.CacheHour, t.Reasoning = u.of(cached), min(u.of(hour), t.CacheWrite), max(u.of(reasoning), u.of(thoughts))
	cache := t.Cached + t.CacheWrite
	in = (u.n[input] != nil || u.n[fresh] != nil) && !u.bad[input] && !u.bad[fresh]
	out = (u.n[output] != nil || u.n[thoughts] != nil) && !u.bad[output]
	t.Input, t.Output = u.of(input)+u.of(tools), u.of(output)+u.of(thoughts)
	beside := cache // what may be missing in the input
	if u.n[fresh] != nil {
		t.Input, beside = max(t.Input, u.of(fresh)+cache), 0
	}
	all, known := u.of(total), u.n[total] != nil
	switch rest := all - t.Input - t.Output; {
	case known && in && !out && rest >= 0:
		t.Output, out = rest, true
	case known && out && !in && rest > 0:
		t.Input, in = rest, true
	case known && in && out && rest > 0:
		switch { // the cache and the reasoning are not in these numbers
		case beside > 0 && (rest == beside || rest == t.Cached):
			t.Input += rest
		case beside > 0 && rest == beside+t.Reasoning:
			t.Input, t.Output = t.Input+beside, t.Output+t.Reasoning
		default: // thoughts that only the total has
			t.Output += rest
		}
	}
	if in && cache > t.Input {
		t.Input += cache
	}
	if out && t.Reasoning > t.Output {
		t.Output += t.Reasoning
	}
	return t, in, out
}

// Known returns the numbers of tokens, with nil for what is not known.
func (u *Usage) Known() (in, cache, out, thought *int64) {
	t, inKnown, outKnown := u.Tokens()
	if inKnown {
		in = &t.Input
	}
	if u.n[cached] != nil {
		cache = &t.Cached
	}
	if outKnown {
		out = &t.Output
	}
	if u.n[reasoning] != nil || u.n[thoughts] != nil {
		thought = &t.Reasoning
	}
	return in, cache, out, thought
}
