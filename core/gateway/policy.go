package gateway

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/berth-eval/berth/core/gateway/wire"
	"github.com/berth-eval/berth/plugins/verifier"
)

// seed is that of the digests by which a request is known that comes again.
var seed = maphash.MakeSeed()

// policy makes the request one that the experiment wants.
func (x *exchange) policy() bool {
	u := x.e.up
	edit := wire.Edit{Parameters: u.model.Parameters, AskUsage: x.facts.Stream && x.facts.Silent}
	if asked := x.facts.Model; asked != u.model.Name && !slices.Contains(u.model.AllowModels, asked) {
		edit.Model = u.model.Name
		x.line.Asked = clip(asked)
		x.s.find("other_model", verifier.Note, fmt.Sprintf("the %s asked for model %q and was served by %q", x.s.spec.Role, clip(asked), u.model.Name))
	}
	if !x.hosted(&edit) {
		return false
	}
	if err := x.d.Edit(&x.call, x.body, edit); err != nil {
		x.fail(wire.BadRequest, "%s", err)
		return false
	}
	x.hide = edit.AskUsage
	if x.body.Changed() { // parameters may have changed them
		f, err := x.d.Facts(x.call, x.body)
		if err != nil {
			x.fail(wire.BadRequest, "%s", err)
			return false
		}
		x.facts = f
	}
	if slices.Contains(u.model.AllowModels, x.facts.Model) {
		x.line.Model = x.facts.Model
	}
	x.price = u.priceOf(x.line.Model)
	x.line.Stream = x.facts.Stream
	b := x.body.Bytes()
	x.digest = maphash.Bytes(seed, b)
	return true
}

// hosted keeps tools from the provider that would reach what the sandbox must
// not: those that are merely offered are taken out, and a request that insists
// on one is refused.
func (x *exchange) hosted(edit *wire.Edit) bool {
	if len(x.facts.Hosted) == 0 || x.s.spec.Hosted {
		return true
	}
	if f := x.facts.Forced; f != "" {
		x.s.find("hosted_tool", verifier.Note, fmt.Sprintf("a request that insisted on a tool that the provider would run was refused, because no network is granted: %s", clip(f)))
		x.fail(wire.BadRequest, "the tool %q runs at the provider, and this task grants no network: leave it out, or do not insist on it", clip(f))
		return false
	}
	edit.DropHosted = true
	x.s.find("hosted_tool", verifier.Note, fmt.Sprintf("tools that the provider would run were taken out of requests, because no network is granted: %s",
		clip(strings.Join(x.facts.Hosted, ", "))))
	return true
}

// clip keeps what comes from a client short in a record.
func clip(s string) string {
	const limit = 200
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
