package gateway

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/dialect"
)

// seed is the seed of the digests that recognise a repeated request.
var seed = maphash.MakeSeed()

// policy changes the request as the experiment requires.
func (x *exchange) policy() bool {
	u := x.e.up
	edit := dialect.Edit{Parameters: u.model.Parameters, AskUsage: x.facts.Stream && x.facts.Silent}
	if x.line.FallbackFor != "" {
		edit.Model = u.model.Name
	} else if asked := x.facts.Model; asked != u.model.Name && !slices.Contains(u.model.AllowModels, asked) {
		edit.Model = u.model.Name
		x.line.Asked = clip(asked)
		x.s.find("other_model", fmt.Sprintf("the %s asked for model %q and was served by %q", x.s.spec.Role, clip(asked), u.model.Name))
	}
	if !x.seal() {
		return false
	}
	x.usualRate()
	if err := x.d.Edit(&x.call, x.body, edit); err != nil {
		x.reject(dialect.BadRequest, "%s", err)
		return false
	}
	x.hide = edit.AskUsage
	if x.body.Changed() { // parameters may have changed the facts
		f, err := x.d.Facts(x.call, x.body)
		if err != nil {
			x.reject(dialect.BadRequest, "%s", err)
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

// seal keeps the provider from fetching or running anything that the sandbox
// must not reach: features that are only offered are removed, and a request
// that depends on one is refused.
func (x *exchange) seal() bool {
	if x.s.spec.Hosted {
		return true
	}
	dropped, r := x.d.Restrict(x.call, x.body, x.e.up.model.AllowHosted)
	if r != "" {
		x.s.find("hosted_tool", fmt.Sprintf("a request was refused with something that the provider would fetch or run, because no network is granted: %s; "+
			"allow_hosted = [%q] in the model block allows it", clip(r), clip(r)))
		x.s.setRefused(fmt.Errorf("a request of the %s was refused: %q runs at the provider, or is fetched by it", x.s.spec.Role, clip(r)))
		x.fail(dialect.BadRequest, "%q runs at the provider, or is fetched by it, and this task grants no network: leave it out, or send the content itself", clip(r))
		return false
	}
	if len(dropped) > 0 {
		slices.Sort(dropped)
		x.s.find("hosted_tool", fmt.Sprintf("taken out of requests, because the provider would or might fetch or run something, and no network is granted: %s",
			clip(strings.Join(dropped, ", "))))
	}
	return true
}

// clip shortens text from a client for a record.
func clip(s string) string {
	const limit = 200
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
